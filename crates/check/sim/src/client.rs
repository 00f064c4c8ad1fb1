//! The user of the array: sends requests, tells the oracle, compares what comes back.

use crate::content::Version;
use crate::machine::Machine;
use crate::oracle::{Oracle, Tick, WriteTicket};
use crate::rng::Rng;
use crate::scenario::Scenario;
use braid_device::{Completion, Device, IoError, IoErrorKind, Op, Outcome, Request, Sink};
use braid_shard::{Nanos, Pool};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// The longest request in bytes.
const LONGEST: u64 = 1 << 20;

/// A request in flight.
struct InFlight {
    what: What,
    blocks: Range<u64>,
    submitted: Nanos,
    shard: usize,
    /// Flushes of members that had failed when it was sent.
    losses: u64,
}

enum What {
    Read { started: Tick },
    Write { ticket: WriteTicket, fua: bool },
    Zero { ticket: WriteTicket, fua: bool },
    Discard { ticket: WriteTicket },
    Flush { started: Tick },
}

impl What {
    fn name(&self) -> String {
        match self {
            What::Read { .. } => "read".to_string(),
            What::Write { ticket, fua } => format!("write {}{}", ticket.version, fua_text(*fua)),
            What::Zero { fua, .. } => format!("write-zeroes{}", fua_text(*fua)),
            What::Discard { .. } => "discard".to_string(),
            What::Flush { .. } => "flush".to_string(),
        }
    }
}

fn fua_text(fua: bool) -> &'static str {
    if fua { " fua" } else { "" }
}

/// A write that was acknowledged.
pub struct Acknowledged {
    /// Blocks of the array.
    pub blocks: Range<u64>,
    /// What was written.
    pub version: Version,
}

/// A request that ended with an error.
pub struct Failed {
    /// The request, for people.
    pub what: String,
    /// It was a flush.
    pub flush: bool,
    /// It was to change the array's content.
    pub changes: bool,
    /// Its error.
    pub error: IoError,
}

#[derive(Default)]
struct Outcomes(RefCell<VecDeque<(u64, Outcome)>>);

impl Sink for Outcomes {
    fn complete(&self, token: u64, outcome: Outcome) {
        self.0.borrow_mut().push_back((token, outcome));
    }
}

/// See the module's documentation.
pub struct Client {
    rng: Rng,
    devices: Vec<Rc<dyn Device>>,
    outcomes: Rc<Outcomes>,
    in_flight: BTreeMap<u64, InFlight>,
    next: u64,
    /// For each handle: of how many failed flushes of members it has been told; empty where others hold what one loses.
    told: Vec<u64>,
    /// Requests that ended, well or not.
    pub ended: u64,
    /// Requests that ended with an error.
    pub errors: u64,
}

impl Client {
    /// A client of the array that `devices` are, one handle for each shard.
    pub fn new(rng: Rng, devices: Vec<Rc<dyn Device>>) -> Client {
        let (outcomes, in_flight) = (Rc::default(), BTreeMap::new());
        let told = Vec::new();
        Client { rng, devices, outcomes, in_flight, next: 0, told, ended: 0, errors: 0 }
    }

    /// The array is open anew, on every shard.
    pub fn open_anew(&mut self, devices: Vec<Rc<dyn Device>>) {
        self.devices = devices;
    }

    /// Each failed flush of a member from now on, of which there were `losses` so far, must be told to every handle.
    pub fn must_be_told(&mut self, losses: u64) {
        self.told = vec![losses; self.devices.len()];
    }

    /// Requests in flight.
    pub fn waiting(&self) -> usize {
        self.in_flight.len()
    }

    /// When the oldest request in flight was submitted.
    pub fn oldest(&self) -> Option<Nanos> {
        // They are numbered in the order in which they were submitted.
        self.in_flight.first_key_value().map(|(_, request)| request.submitted)
    }

    /// The requests in flight, for people.
    pub fn describe_waiting(&self) -> String {
        let list = self.in_flight.values().map(|request| {
            format!("{} {:?} on shard {}", request.what.name(), request.blocks, request.shard)
        });
        list.collect::<Vec<_>>().join(", ")
    }

    /// Sends a random request.
    pub fn send_random(&mut self, machine: &Machine, scenario: &Scenario, oracle: &mut Oracle) {
        let blocks = self.random_blocks(scenario, oracle);
        let fua = self.rng.percent(15);
        match self.rng.range(0..100) {
            0..35 => self.read(machine, oracle, blocks),
            35..80 => {
                let ticket = oracle.begin_write(blocks, false);
                self.send(machine, oracle, What::Write { ticket, fua });
            }
            80..87 => {
                let ticket = oracle.begin_write(blocks, true);
                self.send(machine, oracle, What::Zero { ticket, fua });
            }
            87..92 => {
                let ticket = oracle.begin_write(blocks, true);
                self.send(machine, oracle, What::Discard { ticket });
            }
            _ => {
                let started = oracle.tick();
                self.send(machine, oracle, What::Flush { started });
            }
        }
    }

    fn random_blocks(&self, scenario: &Scenario, oracle: &Oracle) -> Range<u64> {
        let size = scenario.block;
        let most = (LONGEST / size).min(oracle.len()).max(1);
        let chunk = scenario.create.chunk_size.unwrap_or(64 << 10) / size;
        let len = match self.rng.range(0..10) {
            0..4 => self.rng.log_range(1..most + 1),
            4..7 => 1 + self.rng.range(0..chunk.max(1)),
            7 => 1,
            _ => chunk.max(1) * (1 + self.rng.range(0..4 * scenario.create.raid_disks as u64)),
        };
        let len = len.clamp(1, most);
        let hot = (scenario.hot / size).clamp(1, oracle.len());
        let room = if self.rng.percent(75) { hot } else { oracle.len() };
        let last = oracle.len() - len;
        let mut start = self.rng.range(0..room).min(last);
        if self.rng.percent(30) {
            start = (start / chunk.max(1) * chunk.max(1)).min(last);
        }
        if self.rng.percent(3) {
            start = last;
        }
        start..start + len
    }

    /// Reads `blocks` and has what comes back compared.
    pub fn read(&mut self, machine: &Machine, oracle: &mut Oracle, blocks: Range<u64>) {
        let started = oracle.begin_read();
        self.send_at(machine, oracle, What::Read { started }, blocks);
    }

    /// Writes `blocks`.
    pub fn write(&mut self, machine: &Machine, oracle: &mut Oracle, blocks: Range<u64>, fua: bool) {
        let ticket = oracle.begin_write(blocks, false);
        self.send(machine, oracle, What::Write { ticket, fua });
    }

    /// Flushes.
    pub fn flush(&mut self, machine: &Machine, oracle: &mut Oracle) {
        let started = oracle.tick();
        self.send(machine, oracle, What::Flush { started });
    }

    fn send(&mut self, machine: &Machine, oracle: &mut Oracle, what: What) {
        let blocks = match &what {
            What::Write { ticket, .. } | What::Zero { ticket, .. } | What::Discard { ticket } => {
                ticket.blocks.clone()
            }
            _ => 0..0,
        };
        self.send_at(machine, oracle, what, blocks);
    }

    fn send_at(&mut self, machine: &Machine, oracle: &Oracle, what: What, blocks: Range<u64>) {
        let world = &machine.world;
        let shard = self.rng.below(self.devices.len());
        let pool = machine.shards[shard].pool();
        let size = oracle.block_size();
        let len = (blocks.end - blocks.start) * size;
        let op = match &what {
            What::Read { .. } => {
                Op::Read(self.cut(len, size).into_iter().map(|len| pool.get(len)).collect())
            }
            What::Write { ticket, fua } => {
                let bufs = self.payload(pool, oracle, ticket.version, &blocks);
                Op::Write { bufs, fua: *fua }
            }
            What::Zero { fua, .. } => {
                Op::WriteZeroes { len, unmap: self.rng.percent(50), fua: *fua }
            }
            What::Discard { .. } => Op::Discard { len },
            What::Flush { .. } => Op::Flush,
        };
        let id = self.next;
        self.next += 1;
        world.trace(|| format!("#{id} {} blocks {blocks:?} on shard {shard}", what.name()));
        let request = Request { offset: blocks.start * size, op };
        let submitted = world.now();
        let losses = world.failed_flushes.get();
        self.in_flight.insert(id, InFlight { what, blocks, submitted, shard, losses });
        let sink = Rc::clone(&self.outcomes) as Rc<dyn Sink>;
        self.devices[shard].submit(request, Completion::new(sink, id));
    }

    /// Lengths of the buffers of a request.
    fn cut(&self, len: u64, block: u64) -> Vec<usize> {
        let mut pieces = vec![len as usize];
        if len > block && self.rng.percent(20) {
            let first = self.rng.range(1..len / block) * block;
            pieces = vec![first as usize, (len - first) as usize];
        }
        pieces
    }

    fn payload(
        &self,
        pool: &Pool,
        oracle: &Oracle,
        version: Version,
        blocks: &Range<u64>,
    ) -> braid_device::Bufs {
        let mut first = blocks.start;
        let size = oracle.block_size();
        let len = (blocks.end - blocks.start) * size;
        let pieces = self.cut(len, size).into_iter().map(|len| {
            let mut buf = pool.get(len);
            oracle.payload(version, first, &mut buf);
            first += len as u64 / size;
            buf.freeze()
        });
        pieces.collect()
    }

    /// Takes what has come back. Gives the writes that were acknowledged and the errors.
    pub fn collect(
        &mut self,
        machine: &Machine,
        oracle: &mut Oracle,
    ) -> (Vec<Acknowledged>, Vec<Failed>) {
        let (mut acknowledged, mut errors) = (Vec::new(), Vec::new());
        loop {
            let next = self.outcomes.0.borrow_mut().pop_front();
            let Some((id, outcome)) = next else { return (acknowledged, errors) };
            let Some(request) = self.in_flight.remove(&id) else {
                machine.world.fail("completes_once", format!("request #{id} completed twice"));
                continue;
            };
            self.ended += 1;
            let result = outcome.result;
            machine.world.trace(|| match result {
                Ok(()) => format!("#{id} ok"),
                Err(error) => format!("#{id} {error}"),
            });
            if let Err(error) = result {
                self.errors += 1;
                let what = format!("{} {:?}", request.what.name(), request.blocks);
                let flush = matches!(request.what, What::Flush { .. });
                let changes = !flush && !matches!(request.what, What::Read { .. });
                errors.push(Failed { what, flush, changes, error });
            }
            let ok = result.is_ok();
            match &request.what {
                What::Read { started } => {
                    if let (Ok(()), Op::Read(bufs)) = (result, &outcome.op) {
                        crate::checkers::reads_return_acknowledged::look(
                            &machine.world,
                            oracle,
                            *started,
                            &request.blocks,
                            bufs,
                        );
                    }
                    oracle.end_read(*started);
                }
                What::Write { ticket, fua } | What::Zero { ticket, fua } => {
                    oracle.end_write(ticket, ok, *fua && ok);
                }
                What::Discard { ticket } => oracle.end_write(ticket, false, false),
                What::Flush { started } if ok => {
                    if self.told.get(request.shard).is_some_and(|told| *told < request.losses) {
                        let text = format!(
                            "flush #{id} on shard {} succeeded, and a flush of a member had failed before that nobody has \
                             told this handle of",
                            request.shard
                        );
                        machine.world.fail("losses_are_told", text);
                    }
                    oracle.end_flush(*started);
                }
                What::Flush { .. } => {
                    // At once: the next that comes back may be a flush that succeeded after it.
                    if result.is_err_and(|error| error.kind != IoErrorKind::Refused) {
                        oracle.fail_flush();
                    }
                    if let Some(told) = self.told.get_mut(request.shard) {
                        *told = machine.world.failed_flushes.get();
                    }
                }
            }
            if ok && let What::Write { ticket, .. } | What::Zero { ticket, .. } = &request.what {
                let version = ticket.version;
                let blocks = request.blocks;
                acknowledged.push(Acknowledged { blocks, version });
            }
        }
    }
}
