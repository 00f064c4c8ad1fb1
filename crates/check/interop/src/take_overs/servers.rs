//! The array, and the servers that follow each other.

use super::door::Door;
use crate::program::{Killed, Program};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Bytes of a member: a sparse file.
const MEMBER: u64 = 24 << 20;
/// The time that a server gets to come up or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// A server says so that is not taken over since devices have not answered in time, and so often it may.
const NOT_DRAINED: &str = "are not answered by their devices within";
const REFUSALS_MAX: u32 = 10;
/// The beginning of the name of an array's subsystem, and the bytes of it.
const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const NQN_BYTES: usize = NQN.len() + 36;

/// A folder with members and sockets.
pub(super) struct Place(Program);

/// A running server.
pub(super) struct Server {
    process: Killed,
    log: PathBuf,
}

impl Server {
    /// Waits for its end.
    pub fn end(mut self) -> Result<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.process.0.try_wait().context("waiting for a server")? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("a server does not end: {}", said(&self.log))
    }
}

fn said(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

impl Place {
    /// Makes the members and the array `disk` of them.
    pub fn make(braid: &Path, folder: &Path) -> Result<Place> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let folder = folder.canonicalize().context("finding the folder")?;
        let place = Place(Program::new(braid, &folder));
        for name in ["m0", "m1", "m2"] {
            let file = File::create_new(place.0.path(name)).context("making a member")?;
            file.set_len(MEMBER).context("making a member")?;
        }
        place.run("create disk --level 5 --raid-devices 3 --chunk 64K --assume-clean m0 m1 m2")?;
        Ok(place)
    }

    /// Runs a command, which must succeed.
    pub fn run(&self, words: &str) -> Result<()> {
        self.0.run(words).map(drop)
    }

    /// Starts a server: with the ublk door, or all doors that have sockets.
    pub fn serve(&self, door: Door) -> Result<Server> {
        self.start(match door {
            Door::Ublk => "serve m0 m1 m2 --ublk --shards 2",
            _ => "serve m0 m1 m2 --nbd unix:nbd.sock --vhost-user disk.sock --nvme unix:nvme.sock --shards 2",
        })
    }

    /// The server is killed, and another takes the ublk disk back.
    pub fn recover(&self, mut before: Server) -> Result<Server> {
        before.process.0.kill().context("killing a server")?;
        before.end()?;
        self.serve(Door::Ublk)
    }

    /// Another server takes over; the one before must end as it should. Where its devices had not answered in time it goes on,
    /// and is asked again; gives also how often.
    pub fn take_over(&self, before: Server) -> Result<(Server, u32)> {
        let mut refusals = 0;
        let next = loop {
            match self.start("serve --take-over") {
                Err(error)
                    if refusals < REFUSALS_MAX && error.to_string().contains(NOT_DRAINED) =>
                {
                    refusals += 1;
                }
                started => break started?,
            }
        };
        let log = before.log.clone();
        let status = before.end()?;
        ensure!(
            status.success(),
            "the server before ended with {status}: {}\nthe next said: {}",
            said(&log),
            said(&next.log)
        );
        Ok((next, refusals))
    }

    fn start(&self, words: &str) -> Result<Server> {
        let nr = (0..).find(|nr| !self.0.path(&format!("log{nr}")).exists()).unwrap_or(0);
        let log = self.0.path(&format!("log{nr}"));
        let file = File::create(&log).context("making a log")?;
        let errors = file.try_clone().context("making a log")?;
        let mut command = self.0.command(words);
        // Its output is searched for words.
        let child = command.env_remove("BRAID_LOG").stdout(file).stderr(errors).spawn();
        let mut server = Server { process: Killed(child.context("starting braid")?), log };
        let end = Instant::now() + PATIENCE;
        while !said(&server.log).contains("control socket") {
            let ended = server.process.0.try_wait().context("waiting for a server")?;
            ensure!(
                ended.is_none() && Instant::now() < end,
                "a server does not come up: {}",
                said(&server.log)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Where the clients of a door connect.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// The name of the array's subsystem, as the first server has said it.
    pub fn subsystem(&self) -> Result<String> {
        let said = said(&self.0.path("log0"));
        let name = said.find(NQN).and_then(|at| said.get(at..at + NQN_BYTES));
        name.map(str::to_string).with_context(|| format!("no subsystem in: {said}"))
    }
}
