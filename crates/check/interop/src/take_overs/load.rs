//! The client: a thread that keeps 32 requests under way and knows what each read must give.

use super::door::Door;
use super::servers::Place;
use anyhow::{Context, Result, anyhow, bail, ensure};
use braid_doors::block::BlockDevice;
use braid_doors::nbd::Nbd;
use braid_doors::nvme::Plain as NvmeHost;
use braid_doors::vhost::guest::Guest;
use braid_doors::{Adapter, Answer, Client, Command};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests under way.
const DEPTH: usize = 32;
/// Bytes of a request.
const BLOCK: u64 = 4096;
/// Blocks at the start of the array that are written: more than the depth, so that a free one is found at once.
const BLOCKS: usize = 4096;
/// The longest time that a request may take, whatever happens to servers.
const PATIENCE: Duration = Duration::from_secs(60);
/// The disk of the ublk door.
const DISK: &str = "/dev/braid/disk";
/// Between tries to connect again.
const AGAIN: Duration = Duration::from_millis(1);

/// Figures of the client.
#[derive(Default)]
struct Shared {
    answers: AtomicU64,
    /// Nanoseconds of the longest time from one answer to the next.
    longest: AtomicU64,
    ends: AtomicBool,
}

/// See the module's documentation.
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(u64, u64)>>,
}

impl Load {
    /// Connects a client and lets it begin.
    pub fn start(place: &Arc<Place>, door: Door, seed: u64) -> Result<Load> {
        let shared = Arc::new(Shared::default());
        let (of_thread, place) = (Arc::clone(&shared), Arc::clone(place));
        let (say, begun) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut work = Work::new(&place, door, seed)?;
            // The other side waits for it.
            let _ = say.send(());
            work.run(&of_thread)
        });
        let load = Load { shared, thread };
        match begun.recv() {
            Ok(()) => Ok(load),
            Err(_) => load.end().and_then(|_| bail!("the client has ended at once")),
        }
    }

    /// Waits until so many further requests were answered.
    pub fn wait_for_answers(&self, count: u64) -> Result<()> {
        let wanted = self.shared.answers.load(Ordering::SeqCst) + count;
        let end = Instant::now() + PATIENCE;
        while self.shared.answers.load(Ordering::SeqCst) < wanted {
            // `end` says why.
            if self.thread.is_finished() {
                return Ok(());
            }
            ensure!(Instant::now() < end, "no answers for {PATIENCE:?}");
            std::thread::sleep(AGAIN);
        }
        Ok(())
    }

    /// From now on the longest pause is another.
    pub fn forget_longest(&self) {
        self.shared.longest.store(0, Ordering::SeqCst);
    }

    /// The longest time from one answer to the next.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.shared.longest.load(Ordering::SeqCst))
    }

    /// Lets it end, with a look at every block; gives the requests, and the bytes that were compared.
    pub fn end(self) -> Result<(u64, u64)> {
        self.shared.ends.store(true, Ordering::SeqCst);
        let panicked = |_| anyhow!("the client has panicked: what it got was no answer");
        self.thread.join().map_err(panicked)?
    }
}

/// A request under way.
#[derive(Clone, Copy)]
struct Asked {
    block: usize,
    /// The version that it writes; `None`: it reads.
    writes: Option<u64>,
}

enum Connection {
    Plain(Box<dyn Client>),
    Guest(Box<Guest>),
}

struct Work {
    door: Door,
    socket: PathBuf,
    subsystem: String,
    connection: Connection,
    random: fastrand::Rng,
    /// The version that each block has.
    versions: Vec<u64>,
    newest: u64,
    under_way: Vec<Option<Asked>>,
    requests: u64,
    compared: u64,
}

fn content(block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK as usize];
    }
    let first = ((block as u64) << 40 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..BLOCK / 8).flat_map(|nr| (first ^ nr << 7).rotate_left(nr as u32).to_le_bytes()).collect()
}

impl Work {
    fn new(place: &Place, door: Door, seed: u64) -> Result<Work> {
        let socket = place.socket(match door {
            Door::Nbd => "nbd.sock",
            Door::VhostUser => "disk.sock",
            Door::Nvme => "nvme.sock",
            Door::Ublk => DISK,
        });
        let subsystem = if door == Door::Nvme { place.subsystem()? } else { String::new() };
        let connection = match door {
            Door::Nbd => Nbd.connect(&socket).map(Connection::Plain),
            Door::VhostUser => Guest::connect(&socket).map(|guest| Connection::Guest(guest.into())),
            Door::Nvme => {
                NvmeHost::connect(&socket, &subsystem).map(|host| Connection::Plain(Box::new(host)))
            }
            Door::Ublk => BlockDevice::open(&socket).map(|disk| Connection::Plain(Box::new(disk))),
        };
        Ok(Work {
            door,
            socket,
            subsystem,
            connection: connection.context("the client was turned away")?,
            random: fastrand::Rng::with_seed(seed),
            versions: vec![0; BLOCKS],
            newest: 0,
            under_way: vec![None; DEPTH],
            requests: 0,
            compared: 0,
        })
    }

    fn client(&mut self) -> &mut dyn Client {
        match &mut self.connection {
            Connection::Plain(client) => &mut **client,
            Connection::Guest(guest) => &mut **guest,
        }
    }

    fn run(&mut self, shared: &Shared) -> Result<(u64, u64)> {
        (0..DEPTH).for_each(|tag| self.begin(tag));
        let mut last = Instant::now();
        while !shared.ends.load(Ordering::SeqCst) {
            let tag = self.one_answer()?;
            let now = Instant::now();
            let nanos = (now - last).as_nanos() as u64;
            last = now;
            shared.longest.fetch_max(nanos, Ordering::SeqCst);
            shared.answers.fetch_add(1, Ordering::SeqCst);
            self.begin(tag);
        }
        while self.under_way.iter().any(Option::is_some) {
            self.one_answer()?;
        }
        for block in 0..BLOCKS {
            self.submit(0, Asked { block, writes: None });
            self.one_answer()?;
        }
        Ok((self.requests, self.compared))
    }

    /// A request for a block that no other is about.
    fn begin(&mut self, tag: usize) {
        let block = loop {
            let block = self.random.usize(..BLOCKS);
            if !self.under_way.iter().flatten().any(|asked| asked.block == block) {
                break block;
            }
        };
        let writes = self.random.bool().then(|| {
            self.newest += 1;
            self.newest
        });
        self.submit(tag, Asked { block, writes });
    }

    fn submit(&mut self, tag: usize, asked: Asked) {
        self.under_way[tag] = Some(asked);
        let offset = asked.block as u64 * BLOCK;
        let command = match asked.writes {
            Some(version) => {
                Command::Write { offset, data: content(asked.block, version), fua: false }
            }
            None => Command::Read { offset, length: BLOCK },
        };
        self.client().submit(tag as u32, command);
    }

    /// Waits for an answer, over as many servers as it takes; gives its tag.
    fn one_answer(&mut self) -> Result<usize> {
        loop {
            match self.client().answer(PATIENCE) {
                Answer::Done(tag, result) => return self.judge(tag as usize, result),
                Answer::Nothing => bail!("no answer within {PATIENCE:?}"),
                Answer::Disconnected => self.connect_again()?,
            }
        }
    }

    fn judge<E: std::fmt::Debug>(
        &mut self,
        tag: usize,
        result: Result<Vec<u8>, E>,
    ) -> Result<usize> {
        let asked = self.under_way.get_mut(tag).and_then(Option::take);
        let Asked { block, writes } = asked.context("an answer to nothing")?;
        let data = result.map_err(|error| anyhow!("block {block}: {error:?}"))?;
        self.requests += 1;
        match writes {
            Some(version) => self.versions[block] = version,
            None => {
                let version = self.versions[block];
                ensure!(
                    data == content(block, version),
                    "block {block} is not as it was written (write {version})"
                );
                self.compared += BLOCK;
            }
        }
        Ok(tag)
    }

    fn connect_again(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let connected = match (&mut self.connection, self.door) {
                (Connection::Guest(guest), _) => guest.connect_again(&self.socket),
                (Connection::Plain(client), Door::Nvme) => {
                    match NvmeHost::connect(&self.socket, &self.subsystem) {
                        Some(host) => {
                            *client = Box::new(host);
                            true
                        }
                        None => false,
                    }
                }
                _ => bail!("the connection has ended, which must not be at this door"),
            };
            if connected {
                self.repeat();
                return Ok(());
            }
            std::thread::sleep(AGAIN);
        }
        bail!("nobody lets the client in again")
    }

    /// The next server does not know what an NVMe host had asked for.
    fn repeat(&mut self) {
        if self.door != Door::Nvme {
            return;
        }
        for tag in 0..DEPTH {
            if let Some(asked) = self.under_way[tag] {
                self.submit(tag, asked);
            }
        }
    }
}
