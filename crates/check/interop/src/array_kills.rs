//! The server of an array is killed (SIGKILL) under writes of single blocks over NBD, again and again.
//!
//! After every kill it is started again, by the program that users have: every sector must hold what was acknowledged last,
//! or what was being written to it. With a consistency policy that closes the write hole a member is missing then in half of
//! the lives, and of what was being written only what was on that member may be anything else. A check must find nothing.

use crate::by_braid::{Outcome, text};
use anyhow::{Context, Result, anyhow, bail, ensure};
use braid_device::{IoSets, Op, Request};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::ClientOptions;
use braid_shard::Shard;
use clap::ValueEnum;
use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// The array that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// Level 5, everything is resynced after a kill.
    Resync,
    /// Level 5 with a write-intent bitmap.
    Bitmap,
    /// Level 5 with a partial parity log.
    Ppl,
    /// Level 5 with a write journal.
    Journal,
    /// Level 6 with a write journal.
    JournalRaid6,
    /// Level 5 that becomes one of more members meanwhile.
    MoreMembers,
    /// Level 5 that becomes one of fewer members meanwhile.
    FewerMembers,
    /// Level 5 that gets larger chunks meanwhile.
    Chunk,
    /// Level 5 that gets another layout meanwhile.
    Layout,
    /// Level 5 that becomes level 6 meanwhile, with a spare that is filled.
    Level,
    /// Level 5 of which a member is replaced meanwhile.
    Replacement,
    /// Level 6 with a write journal of which two members are filled meanwhile.
    TwoRebuilt,
    /// Level 6, everything is resynced after a kill.
    Raid6,
    /// Level 1 with a write-intent bitmap.
    Raid1,
}

/// The change that goes on while the server is killed.
struct Change {
    /// Commands, after one that makes jobs slow.
    begin: &'static [&'static str],
    /// Devices beside the first four.
    more: usize,
    /// Slots at first, and spares.
    slots: usize,
    spares: usize,
}

const NOTHING: Change = Change { begin: &[], more: 0, slots: MEMBERS, spares: 0 };

impl Victim {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Victim::Resync => "resync",
            Victim::Bitmap => "bitmap",
            Victim::Ppl => "ppl",
            Victim::Journal => "journal",
            Victim::JournalRaid6 => "journal-raid6",
            Victim::MoreMembers => "more-members",
            Victim::FewerMembers => "fewer-members",
            Victim::Chunk => "chunk",
            Victim::Layout => "layout",
            Victim::Level => "level",
            Victim::Replacement => "replacement",
            Victim::TwoRebuilt => "two-rebuilt",
            Victim::Raid6 => "raid6",
            Victim::Raid1 => "raid1",
        }
    }

    fn words(self) -> &'static str {
        match self {
            // Room to move the data in.
            Victim::FewerMembers => "--level 5 --chunk 64K --bitmap none --size 6M",
            Victim::Resync
            | Victim::MoreMembers
            | Victim::Chunk
            | Victim::Layout
            | Victim::Level
            | Victim::Replacement => "--level 5 --chunk 64K --bitmap none",
            Victim::Bitmap => "--level 5 --chunk 64K --bitmap internal --bitmap-chunk 64K",
            Victim::Ppl => "--level 5 --chunk 64K --consistency-policy ppl",
            Victim::Journal => "--level 5 --chunk 64K --write-journal m4",
            Victim::JournalRaid6 | Victim::TwoRebuilt => "--level 6 --chunk 64K --write-journal m4",
            Victim::Raid6 => "--level 6 --chunk 64K --bitmap none",
            Victim::Raid1 => "--level 1 --bitmap internal --bitmap-chunk 64K",
        }
    }

    fn change(self) -> Change {
        match self {
            Victim::MoreMembers => {
                Change { begin: &["grow data --raid-devices 5"], more: 1, spares: 1, ..NOTHING }
            }
            Victim::FewerMembers => Change {
                begin: &["grow data --array-size 12M", "grow data --raid-devices 4"],
                more: 1,
                slots: 5,
                ..NOTHING
            },
            Victim::Chunk => Change { begin: &["grow data --chunk 128K"], ..NOTHING },
            Victim::Layout => Change { begin: &["grow data --layout right-symmetric"], ..NOTHING },
            Victim::Level => {
                Change { begin: &["grow data --level 6"], more: 1, spares: 1, ..NOTHING }
            }
            Victim::Replacement => {
                Change { begin: &["replace data m0 --with m4"], more: 1, spares: 1, ..NOTHING }
            }
            Victim::TwoRebuilt => Change {
                begin: &["fail data m0 m2", "remove data m0 m2", "add data m5 m6"],
                more: 3,
                ..NOTHING
            },
            Victim::Journal | Victim::JournalRaid6 => Change { more: 1, ..NOTHING },
            _ => NOTHING,
        }
    }

    /// It closes the write hole: a member may be missing after the kill.
    fn may_miss(self) -> bool {
        matches!(self, Victim::Ppl) || self.has_journal()
    }

    /// Also what was being written on a missing member is old or new.
    fn has_journal(self) -> bool {
        matches!(self, Victim::Journal | Victim::JournalRaid6)
    }

    fn changes(self) -> bool {
        !self.change().begin.is_empty()
    }
}

/// Slots.
const MEMBERS: usize = 4;
/// Bytes of a member: a sparse file.
const MEMBER: u64 = 8 << 20;
/// Bytes at the start of the array that are written.
const AREA: u64 = 4 << 20;
/// Bytes of a write, and sectors.
const BLOCK: u64 = 4096;
const SECTOR: usize = 512;
const SECTORS: u64 = BLOCK / SECTOR as u64;
/// Writers, each with blocks of its own.
const WRITERS: u64 = 16;
/// Longest time from the first write to the kill.
const LIFE_MS_MAX: u64 = 150;

/// Kills the server `kills` times; gives how many sectors were compared.
///
/// # Errors
/// At the first thing that is not as it must be; the members are left as they are then.
pub fn run(braid: &Path, folder: &Path, victim: Victim, kills: u32, seed: u64) -> Result<u64> {
    let mut random = fastrand::Rng::with_seed(seed ^ victim as u64);
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let (mut compared, mut array) = (0, None);
    for kill in 0..kills {
        let context = || format!("{}, kill {kill} (seed {seed})", victim.name());
        let mut life = match array.take() {
            Some(array) => array,
            None => Life::create(braid, folder, victim).with_context(context)?,
        };
        let missing = victim.may_miss() && random.bool();
        compared += life.one_kill(&mut random, missing).with_context(context)?;
        // One that was degraded, or has changed already, has had its life.
        array = (!missing && !victim.changes()).then_some(life);
    }
    Ok(compared)
}

/// What a sector may hold: the number of the write.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    /// 0: nothing is being written.
    open: u64,
}

struct Life {
    braid: PathBuf,
    folder: PathBuf,
    victim: Victim,
    known: Rc<RefCell<Vec<Known>>>,
    written: Rc<Cell<u64>>,
}

/// A running server, killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended by itself, or does so now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sector(number: u64, version: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version > 0 {
        let first = (number << 32 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (nr, word) in bytes.chunks_mut(8).enumerate() {
            word.copy_from_slice(&first.wrapping_add((nr as u64) << 5).to_le_bytes());
        }
    }
    bytes
}

impl Life {
    /// A new array, filled with zeroes.
    fn create(braid: &Path, folder: &Path, victim: Victim) -> Result<Life> {
        let known = vec![Known::default(); (AREA / SECTOR as u64) as usize];
        let life = Life {
            braid: braid.to_path_buf(),
            folder: folder.to_path_buf(),
            victim,
            known: Rc::new(RefCell::new(known)),
            written: Rc::default(),
        };
        let Change { more, slots, spares, .. } = victim.change();
        for nr in 0..MEMBERS + more {
            let file =
                fs::File::create(folder.join(format!("m{nr}"))).context("making a member")?;
            file.set_len(MEMBER).context("making a member")?;
        }
        let members: Vec<String> = (0..slots + spares).map(|nr| format!("m{nr}")).collect();
        let (words, members) = (victim.words(), members.join(" "));
        let spares = if spares > 0 { format!(" --spare-devices {spares}") } else { String::new() };
        life.run(&format!("create data {words} --raid-devices {slots}{spares} {members}"))?;
        let server = life.serve_at_first()?;
        life.run("wait data")?;
        life.run("stop data")?;
        drop(server);
        Ok(life)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.braid);
        command
            .args(words.split_whitespace())
            .current_dir(&self.folder)
            .env("BRAID_CONTROL", self.folder.join("control.sock"))
            .env("BRAID_STATE_DIR", self.folder.join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs `braid` with these words, which must succeed.
    fn run(&self, words: &str) -> Result<String> {
        let output = self.command(words).output().with_context(|| format!("braid {words}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "braid {words}: {}\n{said}{error}", output.status);
        Ok(said)
    }

    /// Starts the server on the devices that are members before anything changes.
    fn serve_at_first(&self) -> Result<Server> {
        let added_later = self.victim == Victim::TwoRebuilt;
        self.serve_some(|nr| nr <= MEMBERS || !added_later, "")
    }

    /// Starts the server on all devices but one.
    fn serve(&self, without: Option<usize>) -> Result<Server> {
        let how = match without {
            Some(_) => " --run",
            // A slot that holds nothing but Q may be empty yet: no data is in doubt.
            None if self.victim == Victim::Level => " --run --force",
            None => "",
        };
        self.serve_some(|nr| Some(nr) != without, how)
    }

    /// Starts the server on some of the devices, and waits until it listens.
    fn serve_some(&self, given: impl Fn(usize) -> bool, run: &str) -> Result<Server> {
        let all = 0..MEMBERS + self.victim.change().more;
        let members: Vec<String> = all.filter(|nr| given(*nr)).map(|nr| format!("m{nr}")).collect();
        let members = members.join(" ");
        let words = format!("serve {members} --nbd unix:nbd.sock --shards 2{run}");
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let child = self.command(&words).stdout(Stdio::piped()).stderr(log).spawn();
        let mut server = Server(child.context("starting the server")?);
        let out = server.0.stdout.take().context("its output is not there")?;
        let mut lines = BufReader::new(out).lines();
        while let Some(line) = lines.next().transpose()? {
            if line.starts_with("control socket") {
                // What it says from here on is not waited for.
                std::thread::spawn(move || lines.count());
                return Ok(server);
            }
        }
        bail!("the server ended; see {}", self.folder.join("log").display())
    }

    /// From a start to the next, and what is found then.
    fn one_kill(&mut self, random: &mut fastrand::Rng, missing: bool) -> Result<u64> {
        let server = self.serve_at_first()?;
        if self.victim.changes() {
            self.run("set data sync_speed_max=4096")?;
        }
        for words in self.victim.change().begin {
            self.run(words)?;
        }
        self.write_until_killed(server, random)?;
        let without = missing.then(|| random.usize(..MEMBERS));
        let server = self.serve(without)?;
        let compared = self.compare(missing && !self.victim.has_journal())?;
        if self.victim.changes() {
            self.run("set data sync_speed_max=1000000")?;
        }
        self.run("wait data")?;
        if !missing {
            self.run("check data --wait").context("redundancy after the kill")?;
            self.compare(false)?;
        }
        // The server may not have noticed yet that the client has gone.
        self.run("stop data --force")?;
        drop(server);
        Ok(compared)
    }

    fn write_until_killed(&self, mut server: Server, random: &mut fastrand::Rng) -> Result<()> {
        let life = Duration::from_millis(1 + random.u64(..LIFE_MS_MAX));
        let (connected, writes_begin) = std::sync::mpsc::channel();
        let killer = std::thread::spawn(move || {
            // Without a client nothing is sent, and there is nothing to wait for.
            let _ = writes_begin.recv();
            std::thread::sleep(life);
            server.0.kill().and_then(|()| server.0.wait())
        });
        let (known, written, seed) =
            (Rc::clone(&self.known), Rc::clone(&self.written), random.u64(..));
        self.with_client(async move |shard, client| {
            connected.send(()).map_err(text)?;
            let left = Rc::new(Cell::new(WRITERS));
            for nr in 0..WRITERS {
                let random = fastrand::Rng::with_seed(seed ^ nr);
                let writer =
                    Writer { known: Rc::clone(&known), written: Rc::clone(&written), random };
                let (on, client, left) = (shard.clone(), Rc::clone(client), Rc::clone(&left));
                shard.spawn(async move {
                    writer.write_on(&on, &client, nr).await;
                    left.set(left.get() - 1);
                });
            }
            while left.get() > 0 {
                shard.sleep(1_000_000).await;
            }
            Ok(())
        })?;
        let killed = killer.join().map_err(|_| anyhow!("the killer panicked"))?;
        killed.context("killing the server")?;
        Ok(())
    }

    /// Reads everything. With `torn` what was being written may be anything.
    fn compare(&self, torn: bool) -> Result<u64> {
        let found = self.with_client(async move |shard, client| {
            let (sets, mut bytes) = (IoSets::new(shard), Vec::new());
            for at in (0..AREA).step_by(1 << 20) {
                let outcome =
                    sets.one(&**client, Request::read(at, shard.pool().get(1 << 20))).await;
                outcome.result.map_err(|error| format!("reading at byte {at}: {error}"))?;
                let Op::Read(bufs) = outcome.op else { return Err("a read gave no bytes".into()) };
                bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
            }
            Ok(bytes)
        })?;
        let mut known = self.known.borrow_mut();
        for (number, bytes) in found.chunks(SECTOR).enumerate() {
            let Known { acknowledged, open } = known[number];
            let holds = |version| bytes == sector(number as u64, version);
            let version = match open {
                _ if holds(acknowledged) => acknowledged,
                0 => bail!("sector {number} is not what was acknowledged, write {acknowledged}"),
                open if holds(open) => open,
                _ if torn => continue,
                open => bail!("sector {number} is neither write {acknowledged} nor {open}"),
            };
            known[number] = Known { acknowledged: version, open: 0 };
        }
        Ok(known.len() as u64)
    }

    fn with_client<T: 'static>(
        &self,
        work: impl AsyncFnOnce(&Shard, &Rc<Client>) -> Outcome<T> + 'static,
    ) -> Result<T> {
        let shard = Shard::with_ring(0)?;
        let address = Address::Unix(self.folder.join("nbd.sock"));
        let on = shard.clone();
        let done = shard.block_on(async move {
            let options = ClientOptions { export: "data".to_owned(), structured: true };
            let client = Client::connect(&on, &address, options).await.map_err(text)?;
            work(&on, &client).await
        });
        done.map_err(anyhow::Error::msg)
    }
}

struct Writer {
    known: Rc<RefCell<Vec<Known>>>,
    written: Rc<Cell<u64>>,
    random: fastrand::Rng,
}

impl Writer {
    /// Writes one block after the other until the server is gone.
    async fn write_on(mut self, shard: &Shard, client: &Client, nr: u64) {
        let sets = IoSets::new(shard);
        loop {
            let block = self.random.u64(..AREA / BLOCK / WRITERS) * WRITERS + nr;
            let version = self.written.get() + 1;
            self.written.set(version);
            let sectors = block * SECTORS..(block + 1) * SECTORS;
            let bytes: Vec<u8> = sectors.clone().flat_map(|at| sector(at, version)).collect();
            let each = |change: &dyn Fn(&mut Known)| {
                let mut known = self.known.borrow_mut();
                sectors.clone().for_each(|at| change(&mut known[at as usize]));
            };
            each(&|known| known.open = version);
            let buf = shard.pool().copy_of(&bytes).freeze();
            let outcome = sets.one(client, Request::write(block * BLOCK, buf, false)).await;
            if outcome.result.is_err() {
                return;
            }
            each(&|known| *known = Known { acknowledged: version, open: 0 });
        }
    }
}
