//! The server of an array is killed (SIGKILL) under writes of single blocks over NBD, again and again.
//!
//! After every kill it is started again, by the program that users have: every sector must hold what was acknowledged last,
//! or what was being written to it. With a consistency policy that closes the write hole a member is missing then in half of
//! the lives, and of what was being written only what was on that member may be anything else. A check must find nothing.

mod victims;

pub use victims::{VICTIMS, Victim};

use crate::by_braid::{Outcome, text};
use crate::program::{Killed, Program};
use anyhow::{Context, Result, anyhow, bail, ensure};
use braid_device::{IoSets, Op, Request};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::{ClientOptions, Headers};
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use victims::{Closed, MEMBERS};

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
/// Where a superblock of version 1.2 stands, and how it begins.
const SUPERBLOCK: u64 = 4096;
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// KiB each second for jobs while the server is killed: slow, so that the kill comes in the middle of the first step, or faster,
/// so that it comes in a later one.
const SPEEDS: [u64; 3] = [4096, 40_960, 200_000];

/// Kills the server `kills` times; gives how many sectors were compared.
///
/// # Errors
/// At the first thing that is not as it must be; the members are left as they are then.
pub fn run(braid: &Path, folder: &Path, victim: &Victim, kills: u32, seed: u64) -> Result<u64> {
    let mut random = fastrand::Rng::with_seed(seed ^ victim.number());
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let (mut compared, mut array) = (0, None);
    for kill in 0..kills {
        let context = || format!("{}, kill {kill} (seed {seed})", victim.name);
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
    program: Program,
    victim: Victim,
    known: Rc<RefCell<Vec<Known>>>,
    written: Rc<Cell<u64>>,
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
    fn create(braid: &Path, folder: &Path, victim: &Victim) -> Result<Life> {
        let known = vec![Known::default(); (AREA / SECTOR as u64) as usize];
        let life = Life {
            program: Program::new(braid, folder),
            victim: victim.clone(),
            known: Rc::new(RefCell::new(known)),
            written: Rc::default(),
        };
        let (slots, spares) = (victim.slots, victim.spares);
        for nr in 0..MEMBERS + victim.more {
            let file =
                fs::File::create(folder.join(format!("m{nr}"))).context("making a member")?;
            file.set_len(MEMBER).context("making a member")?;
        }
        let members: Vec<String> = (0..slots + spares).map(|nr| format!("m{nr}")).collect();
        let (words, members) = (victim.words, members.join(" "));
        let spares = if spares > 0 { format!(" --spare-devices {spares}") } else { String::new() };
        life.run(&format!("create data {words} --raid-devices {slots}{spares} {members}"))?;
        let server = life.serve_at_first()?;
        life.run("wait data")?;
        life.run("stop data")?;
        drop(server);
        Ok(life)
    }

    fn run(&self, words: &str) -> Result<String> {
        self.program.run(words)
    }

    /// Starts the server on the devices that are members before anything changes.
    fn serve_at_first(&self) -> Result<Killed> {
        let given = self.victim.at_first.unwrap_or(MEMBERS + self.victim.more);
        self.serve_some(|nr| nr < given, "")
    }

    /// Starts the server on all devices that have a superblock, but one.
    fn serve(&self, without: Option<usize>) -> Result<Killed> {
        let how = if without.is_some() { " --run" } else { self.victim.after };
        let all = 0..MEMBERS + self.victim.more;
        let members: Result<Vec<bool>> = all.map(|nr| self.is_member(nr)).collect();
        let members = members?;
        self.serve_some(|nr| Some(nr) != without && members[nr], how)
    }

    /// The device has a superblock.
    fn is_member(&self, nr: usize) -> Result<bool> {
        let mut file = fs::File::open(self.program.path(&format!("m{nr}")))?;
        let mut begin = MAGIC.map(|_| 0);
        file.seek(SeekFrom::Start(SUPERBLOCK))?;
        file.read_exact(&mut begin).with_context(|| format!("reading the superblock of m{nr}"))?;
        Ok(begin == MAGIC)
    }

    /// Starts the server on some of the devices, and waits until it listens.
    fn serve_some(&self, given: impl Fn(usize) -> bool, run: &str) -> Result<Killed> {
        let all = 0..MEMBERS + self.victim.more;
        let members: Vec<String> = all.filter(|nr| given(*nr)).map(|nr| format!("m{nr}")).collect();
        let members = members.join(" ");
        let words = format!("serve {members} --nbd unix:nbd.sock --shards 2{run}");
        let log = fs::File::options().create(true).append(true).open(self.program.path("log"))?;
        let child = self.program.command(&words).stdout(Stdio::piped()).stderr(log).spawn();
        let mut server = Killed(child.context("starting the server")?);
        let out = server.0.stdout.take().context("its output is not there")?;
        let mut lines = BufReader::new(out).lines();
        while let Some(line) = lines.next().transpose()? {
            if line.starts_with("control socket") {
                // What it says from here on is not waited for.
                std::thread::spawn(move || lines.count());
                return Ok(server);
            }
        }
        bail!("the server ended; see {}", self.program.path("log").display())
    }

    /// From a start to the next, and what is found then.
    fn one_kill(&mut self, random: &mut fastrand::Rng, missing: bool) -> Result<u64> {
        let server = self.serve_at_first()?;
        if self.victim.changes() {
            let speed = SPEEDS[random.usize(..SPEEDS.len())];
            self.run(&format!("set data sync_speed_max={speed}"))?;
        }
        for words in self.victim.begin {
            self.run(words)?;
        }
        let changing = self.change_meanwhile(random);
        self.write_until_killed(server, random)?;
        changing.join().map_err(|_| anyhow!("the thread with the commands panicked"))?;
        let without = missing.then(|| random.usize(..MEMBERS));
        let server = self.serve(without)?;
        let compared = self.compare(missing && self.victim.closed != Closed::All)?;
        if self.victim.changes() {
            self.run("set data sync_speed_max=1000000")?;
        }
        self.run("wait data")?;
        self.ends_as_it_should()?;
        if !missing {
            if self.victim.is_redundant() {
                self.run("check data --wait").context("redundancy after the kill")?;
            }
            self.compare(false)?;
        }
        // The server may not have noticed yet that the client has gone.
        self.run("stop data --force")?;
        drop(server);
        Ok(compared)
    }

    /// Gives the commands while others write, one after the other, until they are done or the server is gone.
    fn change_meanwhile(&self, random: &mut fastrand::Rng) -> std::thread::JoinHandle<()> {
        let after = Duration::from_millis(random.u64(..LIFE_MS_MAX / 2));
        let commands: Vec<Command> =
            self.victim.meanwhile.iter().map(|words| self.program.command(words)).collect();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            for mut command in commands {
                // A kill may come in the middle of it: what has become of the array is looked at afterwards.
                let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            }
        })
    }

    /// The change that was asked for meanwhile is made, by the same commands again where the kill came before.
    fn ends_as_it_should(&self) -> Result<()> {
        let Some(level) = self.victim.becomes else { return Ok(()) };
        for words in self.victim.meanwhile {
            // Refused where it has been done.
            let said = self.run(words).err().map(|error| format!("{error:#}"));
            self.run("wait data").with_context(|| format!("after {words}: {said:?}"))?;
        }
        let detail = self.run("detail data")?;
        ensure!(
            detail.contains(&format!("Raid Level : {level}")) && !detail.contains("degraded"),
            "it should be {level} and whole:\n{detail}"
        );
        Ok(())
    }

    fn write_until_killed(&self, mut server: Killed, random: &mut fastrand::Rng) -> Result<()> {
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
        let address = Address::Unix(self.program.path("nbd.sock"));
        let on = shard.clone();
        let done = shard.block_on(async move {
            let options = ClientOptions { export: "data".to_owned(), headers: Headers::Structured };
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
