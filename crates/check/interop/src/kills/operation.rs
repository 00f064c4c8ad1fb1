//! The operations, and how each is set up and undone.

use super::files::{FIRST, Files};
use super::server::Server;
use anyhow::Result;
use clap::ValueEnum;

/// What is under way when the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Files are written, nothing else.
    Write,
    /// Files are written and removed.
    Delete,
    /// A brick is added and gets its share.
    Add,
    /// A brick is removed.
    Remove,
    /// A weight is changed, and stripes move accordingly.
    Weight,
    /// Files go to one brick.
    Migrate,
    /// The proxy takes what is written, and is flushed.
    Flush,
    /// Files that lie in pieces are put together.
    Defrag,
    /// Metadata is checked and repaired, where there is nothing to be repaired.
    Check,
}

impl Operation {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Delete => "delete",
            Operation::Add => "add",
            Operation::Remove => "remove",
            Operation::Weight => "weight",
            Operation::Migrate => "migrate",
            Operation::Flush => "flush",
            Operation::Defrag => "defrag",
            Operation::Check => "check",
        }
    }

    /// Bytes that its job moves in a second, or looks at: so few that most kills come while it is under way.
    pub(super) fn job_speed(self) -> &'static str {
        match self {
            Operation::Migrate => "1M",
            Operation::Weight => "6M",
            Operation::Defrag => "1M",
            Operation::Check => "64K",
            _ => "24M",
        }
    }

    /// The writer also removes files.
    pub(super) fn removes_files(self) -> bool {
        matches!(self, Operation::Delete | Operation::Defrag)
    }

    /// Once, before the first.
    pub(super) fn set_up(self, server: &Server) -> Result<()> {
        match self {
            Operation::Remove => server.volume(&["add", "pool", &server.brick(3)]),
            Operation::Flush => server.volume(&["add", "pool", &server.brick(3), "--proxy"]),
            _ => Ok(()),
        }
    }

    /// Starts it in the background.
    pub(super) fn start(self, server: &Server, files: &mut Files, number: u32) -> Result<()> {
        let brick = server.brick(3);
        match self {
            Operation::Write | Operation::Delete => Ok(()),
            Operation::Add => server.volume(&["add", "pool", &brick, "--detach"]),
            Operation::Remove => server.volume(&["remove", "pool", &brick, "--detach"]),
            Operation::Weight => {
                // The others have a weight of 1.
                let weight = (1 + number % 7).to_string();
                server.volume(&["weight", "pool", &server.brick(0), &weight, "--detach"])
            }
            Operation::Migrate => {
                let name = files.some_name(number);
                // Each time round it is another brick.
                let to = server.brick((number + number / FIRST as u32) % 3);
                server.volume(&["migrate", "pool", &name, "--to", &to, "--detach"])
            }
            Operation::Flush => {
                files.add_some()?;
                server.volume(&["flush", "pool", "--detach"])
            }
            Operation::Defrag => {
                files.add_some()?;
                files.remove_every_other()?;
                server.volume(&["defrag", "pool", "--detach"])
            }
            Operation::Check => server.volume(&["check", "pool", "--repair", "--detach"]),
        }
    }

    /// Brings the volume to where the next round can start.
    pub(super) fn finish(self, server: &Server) -> Result<()> {
        let brick = server.brick(3);
        match self {
            // A kill before the brick was on record leaves nothing to be removed.
            Operation::Add if server.has_brick(&brick)? => {
                server.volume(&["remove", "pool", &brick])
            }
            Operation::Remove if server.has_brick(&brick)? => server.volume(&["balance", "pool"]),
            Operation::Remove => server.volume(&["add", "pool", &brick, "--force"]),
            _ => Ok(()),
        }
    }
}
