//! The operations, and how each is set up and undone.

use super::begun::Begun;
use super::copies;
use super::files::{BYTES_MAX, FIRST, Files, Random};
use super::replacing;
use super::server::Server;
use super::snapshots;
use anyhow::Result;
use clap::ValueEnum;
use std::thread::JoinHandle;

/// Longest of small files, in bytes.
const SMALL_MAX: u64 = 6000;

/// What is under way when the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Files are written, nothing else.
    Write,
    /// Small files are written, many of them.
    Small,
    /// Files are written and removed.
    Delete,
    /// A brick is added and gets its share.
    Add,
    /// A brick is removed.
    Remove,
    /// A brick is added where files have two copies, and gets its share.
    AddCopies,
    /// A brick is removed where files have two copies.
    RemoveCopies,
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
    /// Snapshots are taken, one after the other.
    Snapshot,
    /// Snapshots are removed that alone hold what was removed since.
    Unsnapshot,
    /// All files get a second copy, or lose it.
    Copies,
    /// A scrub mends what has rotten in one of two copies.
    Scrub,
    /// The copies of a lost brick are made again on the others.
    RemoveLost,
    /// A brick that was away is taken back, and gets what it missed.
    Return,
    /// A brick takes the place of another.
    Replace,
    /// A brick takes the place of another where files have two copies.
    ReplaceCopies,
    /// A brick takes the place of a lost one: its copies are made again there.
    ReplaceLost,
    /// Stripes move to where they belong after a change of weights, where files have two copies.
    BalanceCopies,
}

impl Operation {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Small => "small",
            Operation::Delete => "delete",
            Operation::Add => "add",
            Operation::Remove => "remove",
            Operation::AddCopies => "add-copies",
            Operation::RemoveCopies => "remove-copies",
            Operation::Weight => "weight",
            Operation::Migrate => "migrate",
            Operation::Flush => "flush",
            Operation::Defrag => "defrag",
            Operation::Check => "check",
            Operation::Snapshot => "snapshot",
            Operation::Unsnapshot => "unsnapshot",
            Operation::Copies => "copies",
            Operation::Scrub => "scrub",
            Operation::RemoveLost => "remove-lost",
            Operation::Return => "return",
            Operation::Replace => "replace",
            Operation::ReplaceCopies => "replace-copies",
            Operation::ReplaceLost => "replace-lost",
            Operation::BalanceCopies => "balance-copies",
        }
    }

    /// Bytes that its job moves in a second, or looks at: so few that most kills come while it is under way.
    pub(super) fn job_speed(self) -> &'static str {
        match self {
            Operation::Migrate => "1M",
            Operation::Weight => "6M",
            Operation::Defrag => "1M",
            Operation::Check => "64K",
            Operation::Return => "4M",
            Operation::Replace => "64M",
            Operation::ReplaceCopies | Operation::ReplaceLost => "96M",
            Operation::BalanceCopies => "12M",
            _ => "24M",
        }
    }

    /// Longest time from its start to the kill, in milliseconds: not much more than it takes.
    pub(super) fn life_ms_max(self) -> u64 {
        match self {
            Operation::Snapshot => 200,
            Operation::Unsnapshot => 30,
            _ => 400,
        }
    }

    /// Longest file that the writer writes, in bytes.
    pub(super) fn bytes_max(self) -> u64 {
        if self == Operation::Small { SMALL_MAX } else { BYTES_MAX }
    }

    /// The writer also removes files.
    pub(super) fn removes_files(self) -> bool {
        matches!(self, Operation::Delete | Operation::Defrag | Operation::Unsnapshot)
    }

    /// Once, before the first.
    pub(super) fn set_up(self, server: &Server) -> Result<()> {
        match self {
            Operation::Remove => server.volume(&["add", "pool", &server.brick(3)]),
            Operation::Flush => server.volume(&["add", "pool", &server.brick(3), "--proxy"]),
            Operation::Scrub
            | Operation::AddCopies
            | Operation::ReplaceCopies
            | Operation::ReplaceLost => server.volume(&["copies", "pool", "2"]),
            Operation::RemoveCopies
            | Operation::RemoveLost
            | Operation::Return
            | Operation::BalanceCopies => {
                server.volume(&["add", "pool", &server.brick(3)])?;
                server.volume(&["copies", "pool", "2"])
            }
            _ => Ok(()),
        }
    }

    /// Starts it in the background.
    pub(super) fn start(
        self,
        server: &mut Server,
        files: &mut Files,
        number: u32,
    ) -> Result<Begun> {
        match self {
            Operation::Snapshot => return snapshots::take_some(server, files, number),
            Operation::Unsnapshot => return snapshots::remove_some(server, files, number),
            Operation::Copies => return copies::change(server, number),
            Operation::Scrub => return copies::scrub(server, files),
            Operation::RemoveLost => return copies::remove_lost(server, self.job_speed()),
            Operation::Return => return copies::take_back(server, files, self.job_speed()),
            Operation::Replace | Operation::ReplaceCopies => {
                return Ok(replacing::replace(server, number));
            }
            Operation::ReplaceLost => {
                return replacing::replace_lost(server, number, self.job_speed());
            }
            Operation::BalanceCopies => return Ok(replacing::balance(server, number)),
            _ => self.start_job(server, files, number)?,
        }
        Ok(Begun::default())
    }

    fn start_job(self, server: &Server, files: &mut Files, number: u32) -> Result<()> {
        let brick = server.brick(3);
        match self {
            Operation::Add | Operation::AddCopies => {
                server.volume(&["add", "pool", &brick, "--detach"])
            }
            Operation::Remove | Operation::RemoveCopies => {
                server.volume(&["remove", "pool", &brick, "--detach"])
            }
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
            _ => Ok(()),
        }
    }

    /// Holds what was begun against what is there after the kill, and brings the volume to where the next round can start.
    pub(super) fn finish(
        self,
        server: &mut Server,
        files: &Files,
        (begun, number): (Begun, u32),
        random: &mut Random,
    ) -> Result<()> {
        let brick = server.brick(3);
        let succeeded = match begun.commands.map(JoinHandle::join) {
            Some(Ok(succeeded)) => succeeded?,
            Some(Err(_)) => anyhow::bail!("the thread that gives commands panicked"),
            None => 0,
        };
        match self {
            Operation::Snapshot => {
                snapshots::look_at_taken(server, files, &begun.snapshots, succeeded, random)?;
                snapshots::remove_all(server)
            }
            Operation::Unsnapshot => {
                snapshots::look_at_left(server, files, &begun.snapshots, succeeded, random)?;
                snapshots::remove_all(server)
            }
            Operation::Copies => copies::finish_change(server, number),
            Operation::Scrub => copies::finish_scrub(server, &begun.rotten),
            Operation::RemoveLost => copies::finish_removal(server),
            Operation::Return => copies::finish_return(server),
            Operation::Replace | Operation::ReplaceCopies => {
                replacing::finish(server, number, succeeded == 1)
            }
            Operation::ReplaceLost => replacing::finish_lost(server, number, succeeded == 1),
            Operation::BalanceCopies => replacing::finish_balance(server, succeeded),
            // A kill before the brick was on record leaves nothing to be removed.
            Operation::Add | Operation::AddCopies if server.has_brick(&brick)? => {
                server.volume(&["remove", "pool", &brick])
            }
            Operation::Remove | Operation::RemoveCopies if server.has_brick(&brick)? => {
                server.volume(&["balance", "pool"])
            }
            Operation::Remove | Operation::RemoveCopies => {
                server.volume(&["add", "pool", &brick, "--force"])
            }
            _ => Ok(()),
        }
    }
}
