//! The clients: threads that each write, read and compare blocks of their own, at whichever host serves.
//!
//! A client that gets no answer does not give up: it looks whether the other host lets it in. Only then it leaves the first one, and
//! repeats there what was not answered: a host that serves says by it that the one before does nothing any more. A write is
//! done when it was answered, with FUA.

use anyhow::{Result, anyhow, bail, ensure};
use braid_doors::nbd::over_tcp;
use braid_doors::{Answer, Client, Command};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;
const BLOCK: u64 = 4096;
/// Blocks of each client.
const BLOCKS: usize = 512;
/// A host gets so long to let a client in, and to answer before the client looks at the other.
const LET_IN: Duration = Duration::from_millis(300);
const ANSWER: Duration = Duration::from_millis(500);
/// Between tries to be let in.
const AGAIN: Duration = Duration::from_millis(20);
/// The longest time that a request may take over all hosts.
const PATIENCE: Duration = Duration::from_secs(120);

/// Figures of all clients.
struct Shared {
    begun: Instant,
    answers: AtomicU64,
    /// Nanoseconds from the beginning to the last answer, and the longest time from one to the next.
    last: AtomicU64,
    longest: AtomicU64,
    ends: AtomicBool,
}

impl Shared {
    fn answered(&self) {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.last.fetch_max(now, Ordering::SeqCst);
        self.longest.fetch_max(now.saturating_sub(before), Ordering::SeqCst);
        self.answers.fetch_add(1, Ordering::SeqCst);
    }
}

/// See the module's documentation.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<(u64, u64)>>>,
}

impl Load {
    /// Clients that connect to one of `hosts`.
    pub fn start(hosts: &[String], seed: u64) -> Result<Load> {
        let hosts: Vec<SocketAddr> =
            hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            answers: AtomicU64::new(0),
            last: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let clients = (0..CLIENTS)
            .map(|nr| {
                let (shared, hosts) = (Arc::clone(&shared), hosts.clone());
                std::thread::spawn(move || {
                    let random = fastrand::Rng::with_seed(seed.wrapping_add(nr as u64));
                    let versions = vec![0; BLOCKS];
                    let connection = None;
                    Work { hosts, nr, random, versions, connection, requests: 0, compared: 0 }
                        .run(&shared)
                })
            })
            .collect();
        Ok(Load { shared, clients })
    }

    /// Waits until so many further requests were answered.
    pub fn wait_for_answers(&self, count: u64) -> Result<()> {
        let wanted = self.shared.answers.load(Ordering::SeqCst) + count;
        let end = Instant::now() + PATIENCE;
        while self.shared.answers.load(Ordering::SeqCst) < wanted {
            if self.clients.iter().any(JoinHandle::is_finished) {
                // `end` says why.
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

    /// The longest time in which no client got an answer.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.shared.longest.load(Ordering::SeqCst))
    }

    /// Lets them end, with a look at every block; gives the requests, and the bytes that were compared.
    pub fn end(self) -> Result<(u64, u64)> {
        self.shared.ends.store(true, Ordering::SeqCst);
        let mut all = (0, 0);
        for client in self.clients {
            let panicked = |_| anyhow!("a client has panicked: what it got was no answer");
            let (requests, compared) = client.join().map_err(panicked)??;
            all = (all.0 + requests, all.1 + compared);
        }
        Ok(all)
    }
}

struct Work {
    hosts: Vec<SocketAddr>,
    nr: usize,
    random: fastrand::Rng,
    /// The version that each block has.
    versions: Vec<u64>,
    /// With the number of the host.
    connection: Option<(usize, Box<dyn Client>)>,
    requests: u64,
    compared: u64,
}

fn content(block: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK as usize];
    }
    let first = (block << 40 ^ version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..BLOCK / 8).flat_map(|nr| (first ^ nr << 7).rotate_left(nr as u32).to_le_bytes()).collect()
}

impl Work {
    fn run(mut self, shared: &Shared) -> Result<(u64, u64)> {
        let mut newest = 0;
        while !shared.ends.load(Ordering::SeqCst) {
            let block = self.random.usize(..BLOCKS);
            if self.random.bool() {
                newest += 1;
                self.write(block, newest)?;
            } else {
                self.compare(block)?;
            }
            shared.answered();
        }
        (0..BLOCKS).try_for_each(|block| self.compare(block))?;
        Ok((self.requests, self.compared))
    }

    fn block(&self, block: usize) -> u64 {
        (self.nr * BLOCKS + block) as u64
    }

    fn write(&mut self, block: usize, version: u64) -> Result<()> {
        let at = self.block(block);
        let data = content(at, version);
        self.ask(&Command::Write { offset: at * BLOCK, data, fua: true })?;
        self.versions[block] = version;
        Ok(())
    }

    fn compare(&mut self, block: usize) -> Result<()> {
        let at = self.block(block);
        let data = self.ask(&Command::Read { offset: at * BLOCK, length: BLOCK })?;
        let version = self.versions[block];
        ensure!(
            data == content(at, version),
            "block {at} is not as it was written (write {version})"
        );
        self.compared += BLOCK;
        Ok(())
    }

    /// Asks until it is answered, whoever does it.
    fn ask(&mut self, command: &Command) -> Result<Vec<u8>> {
        self.requests += 1;
        let end = Instant::now() + PATIENCE;
        let mut asked = false;
        while Instant::now() < end {
            let Some((host, client)) = &mut self.connection else {
                self.connection = self.enter(None);
                asked = false;
                if self.connection.is_none() {
                    std::thread::sleep(AGAIN);
                }
                continue;
            };
            if !asked {
                client.submit(0, command.clone());
                asked = true;
            }
            let host = *host;
            match client.answer(ANSWER) {
                Answer::Done(_, Ok(data)) => return Ok(data),
                // An array that has lost its members says so before its host ends: the other will have them.
                Answer::Done(_, Err(_)) | Answer::Disconnected => self.connection = None,
                Answer::Nothing => {
                    if let Some(other) = self.enter(Some(host)) {
                        (self.connection, asked) = (Some(other), false);
                    }
                }
            }
        }
        bail!("a request was not answered within {PATIENCE:?} by any host")
    }

    /// A host that lets the client in, other than `but`.
    fn enter(&self, but: Option<usize>) -> Option<(usize, Box<dyn Client>)> {
        let hosts = self.hosts.iter().enumerate().filter(|(nr, _)| Some(*nr) != but);
        hosts.into_iter().find_map(|(nr, host)| {
            let socket = TcpStream::connect_timeout(host, LET_IN).ok()?;
            Some((nr, over_tcp(socket, LET_IN)?))
        })
    }
}
