//! The simulated machine room: the clock, the requests under way at all members, and who finds fault.
//!
//! Everything of one run happens on one thread. Time stands still while a shard has anything to do and
//! then jumps to the next completion or timer. All choices come from the run's seed.
//!
//! Outlives the simulated processes: a crash takes the shards and what is under way, not the members.

mod devices;
mod failure;

pub use failure::Failure;

use crate::content::{Found, Version, recognise};
use crate::member::{Member, joined};
use crate::rng::Rng;
use braid_device::{Completion, IoError, IoErrorKind, Op, Outcome, Request};
use braid_format::superblock::{self, Role, Superblock};
use braid_shard::{Nanos, ShardId};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// How the members of a run behave.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Of 100 requests, how many complete inside `submit`.
    pub inline: u64,
    /// The longest ordinary request in nanoseconds.
    pub latency: Nanos,
    /// Of 10,000 requests, how many take a hundred times as long.
    pub slow: u64,
    /// Of 100,000 requests, how many hang for seconds.
    pub hang: u64,
    /// Of 100 write-zeroes, how many a member finds it cannot do.
    pub unsupported: u64,
}

/// A request of a slow member takes so long at most, in nanoseconds: less than what members are given up after, since nobody
/// need lose one that is only slow.
const SLOWEST: Nanos = 20_000_000_000;

struct Flight {
    member: Rc<Member>,
    shard: ShardId,
    request: Request,
    done: Completion,
    /// For a read that sees the instant of its submission: what it saw.
    early: Option<Result<Vec<u8>, IoError>>,
    /// For a flush: the last write that it covers.
    covers: u32,
    submitted: Nanos,
}

/// A write to the data area that a member did not take.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The member's index.
    pub member: usize,
    /// Component bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Versions of array blocks among the bytes: writes of the client (a job writes older ones).
    pub versions: Vec<Version>,
}

/// The checkers that look at each request when it is submitted, and need no more than that.
#[derive(Clone, Copy)]
pub struct Looks {
    /// At reads of a member: the first byte of it, and how many.
    pub at_read: fn(&World, &Member, u64, u64),
    /// At writes by a shard: the first component byte, and how many.
    pub at_write: fn(&World, &Member, ShardId, u64, u64),
}

/// See the module's documentation.
pub struct World {
    looks: Looks,
    /// The run's seed.
    pub seed: u64,
    /// Choices of members and of the order of events.
    pub rng: Rng,
    /// All members that were ever there, by index.
    pub members: RefCell<Vec<Rc<Member>>>,
    /// The device of the write journal, which is none of them.
    pub journal: RefCell<Option<Rc<Member>>>,
    /// How members behave.
    pub manners: Manners,
    /// Where superblocks stand.
    pub metadata: superblock::Version,
    /// Prints what happens.
    pub verbose: bool,
    /// Requests that members were given.
    pub submissions: Cell<u64>,
    /// Writes outside of the data area.
    pub metadata_writes: Cell<u64>,
    /// Writes that members did not take, since the list was last emptied.
    pub missed: RefCell<Vec<Missed>>,
    /// Which shard writes which unit, by unit; see `checkers::owner_only`.
    pub owners: RefCell<BTreeMap<u64, ShardId>>,
    /// Units are being given to other shards: who writes them is not looked at.
    pub moving: Cell<bool>,
    /// So they are for as long as the array is reshaped, over crashes too, with the border.
    pub reshaping: Cell<bool>,
    /// Flushes of members that failed.
    pub failed_flushes: Cell<u64>,
    /// A member gives older bytes than before, since it has lost some with a failed flush.
    pub loss_was_shown: Cell<bool>,
    /// Power cuts, those after a stop included.
    pub power_cuts: Cell<u64>,
    /// A liar has lost superblocks, so anything that is wrong is excused.
    pub lost_by_superblock: Cell<bool>,
    /// Something is wrong where no lost byte of a liar can be the reason.
    pub beside_lies: Cell<bool>,
    /// Gives the component bytes at which copies of an array block are, and of what is computed with it.
    pub offsets_of: RefCell<Option<OffsetsOf>>,
    /// Gives the unit that a component byte of a member belongs to, once an array runs.
    pub unit_of: RefCell<Option<UnitOf>>,
    now: Cell<Nanos>,
    events: RefCell<BinaryHeap<Reverse<(Nanos, u64, usize)>>>,
    flights: RefCell<Slab<Flight>>,
    ready: RefCell<Vec<VecDeque<usize>>>,
    failure: RefCell<Option<Failure>>,
    /// Writes and flushes submitted to members, and completed by them.
    changes: Cell<u64>,
    /// At so many of them everything stands still.
    still_at: Cell<u64>,
    /// What was submitted after that: it never got anywhere.
    unsent: RefCell<Vec<(Request, Completion)>>,
}

/// See [`World::offsets_of`].
pub type OffsetsOf = Box<dyn Fn(u64) -> Vec<Range<u64>>>;

/// See [`World::unit_of`].
pub type UnitOf = Box<dyn Fn(&Member, u64) -> Option<u64>>;

impl World {
    /// A world without members.
    pub fn new(
        looks: Looks,
        seed: u64,
        manners: Manners,
        metadata: superblock::Version,
        verbose: bool,
    ) -> Rc<World> {
        Rc::new(World {
            looks,
            seed,
            rng: Rng::new(seed, 1),
            members: RefCell::default(),
            journal: RefCell::default(),
            manners,
            metadata,
            verbose,
            submissions: Cell::new(0),
            metadata_writes: Cell::new(0),
            missed: RefCell::default(),
            owners: RefCell::default(),
            moving: Cell::new(false),
            reshaping: Cell::new(false),
            failed_flushes: Cell::new(0),
            loss_was_shown: Cell::new(false),
            power_cuts: Cell::new(0),
            lost_by_superblock: Cell::new(false),
            beside_lies: Cell::new(false),
            offsets_of: RefCell::new(None),
            unit_of: RefCell::new(None),
            now: Cell::new(1_000_000_000),
            events: RefCell::default(),
            flights: RefCell::default(),
            ready: RefCell::default(),
            failure: RefCell::new(None),
            changes: Cell::new(0),
            still_at: Cell::new(u64::MAX),
            unsent: RefCell::default(),
        })
    }

    /// The time in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now.get()
    }

    /// Prints `text` when the run is to be followed.
    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>14.6} {}", self.now.get() as f64 / 1e9, text());
        }
    }

    /// The run has failed; the first finding counts.
    pub fn fail(&self, checker: &'static str, text: String) {
        self.trace(|| format!("FAILED {checker}: {text}"));
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            *failure = Some(Failure { checker, text });
        }
    }

    /// The finding, if there is one.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// Some member has lost what it had said to be durable.
    pub fn lie_has_cost(&self) -> bool {
        self.members.borrow().iter().any(|member| !member.lied.borrow().is_empty())
    }

    /// This array block is wrong, and what liars have lost is perhaps no part of its stripe.
    pub fn compare_with_lies(&self, block: u64) {
        let offsets_of = self.offsets_of.borrow();
        let Some(offsets_of) = offsets_of.as_ref().filter(|_| !self.lost_by_superblock.get())
        else {
            return;
        };
        let of_block = offsets_of(block);
        let touched = self.members.borrow().iter().any(|member| {
            let start = member.data.borrow().start;
            let lied = member.lied.borrow();
            lied.iter().any(|lied| {
                of_block.iter().any(|of| lied.start < of.end + start && of.start + start < lied.end)
            })
        });
        self.beside_lies.set(self.beside_lies.get() || !touched);
    }

    /// Slots and the component bytes of them that liars have lost; `None` when nothing was lost, or more than data: a lost
    /// bit of the bitmap spoils any row, a lost byte of data none but its own.
    pub fn lost_with_lies(&self) -> Option<Vec<(usize, Range<u64>)>> {
        let mut lost = Vec::new();
        for liar in self.members.borrow().iter().filter(|member| !member.lied.borrow().is_empty()) {
            let slot = liar.slot.get()?;
            lost.extend(liar.lied_in_data()?.into_iter().map(|range| (slot, range)));
        }
        Some(lost).filter(|lost| !lost.is_empty() && !self.lost_by_superblock.get())
    }

    /// Takes back a finding that turned out to be outside of every promise.
    pub fn excuse(&self) -> Option<Failure> {
        self.failure.borrow_mut().take()
    }

    /// The run is over. What a process that crashed has left behind may hold members; their images are not kept for that.
    pub fn end(&self) {
        self.unit_of.borrow_mut().take();
        for member in self.members.take().into_iter().chain(self.journal.take()) {
            member.scrap();
        }
    }

    /// Adds a member and gives its index.
    pub fn add_member(&self, member: Member) -> usize {
        let mut members = self.members.borrow_mut();
        members.push(Rc::new(member));
        members.len() - 1
    }

    /// Some request to a member is under way for longer than so many nanoseconds.
    pub fn waits_for_longer_than(&self, nanos: Nanos) -> bool {
        let before = self.now().saturating_sub(nanos);
        self.flights.borrow().iter().any(|(_, flight)| flight.submitted < before)
    }

    /// Members that did not answer come back: what they have got until now is answered.
    pub fn wake_hung(&self) {
        let hung = |flight: &Flight| flight.member.hung.get();
        let keys: Vec<usize> =
            self.flights.borrow().iter().filter(|(_, f)| hung(f)).map(|(key, _)| key).collect();
        let (members, journal) = (self.members.borrow(), self.journal.borrow());
        members.iter().chain(journal.iter()).for_each(|member| member.hung.set(false));
        let mut events = self.events.borrow_mut();
        // Those that were under way when it stopped answering have their time already.
        let timed: Vec<usize> = events.iter().map(|Reverse((_, _, key))| *key).collect();
        for key in keys.into_iter().filter(|key| !timed.contains(key)) {
            let at = self.now() + 1000 + self.rng.range(0..self.manners.latency);
            events.push(Reverse((at, self.rng.next(), key)));
        }
    }

    /// Requests that a member has got and not answered.
    pub fn owed_by(&self, member: &Member) -> usize {
        let of = |flight: &Flight| flight.member.kind.index == member.kind.index;
        self.flights.borrow().iter().filter(|(_, flight)| of(flight)).count()
    }

    /// After `changes` more (writes and flushes submitted, or completed) everything stands still: members complete nothing,
    /// and nothing more gets to them, until power fails.
    pub fn stand_still_after(&self, changes: u64) {
        self.still_at.set(self.changes.get().saturating_add(changes));
    }

    /// Everything stands still.
    pub fn stands_still(&self) -> bool {
        self.changes.get() >= self.still_at.get()
    }

    fn changed(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// Makes room for the completions of `shards` shards.
    pub fn start_shards(&self, shards: usize) {
        *self.ready.borrow_mut() = (0..shards).map(|_| VecDeque::new()).collect();
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.flights.borrow().len()
    }

    /// The requests under way, for people.
    pub fn describe_under_way(&self) -> String {
        let flights = self.flights.borrow();
        let list = flights.iter().map(|(_, flight)| {
            let since = self.now().saturating_sub(flight.submitted) / 1000;
            format!("{} {} ({since} us)", flight.member.name(), describe(&flight.request))
        });
        list.collect::<Vec<_>>().join(", ")
    }

    /// When the next request completes.
    pub fn next_event(&self) -> Option<Nanos> {
        self.events.borrow().peek().map(|Reverse((at, _, _))| *at)
    }

    /// Moves the clock on to `to` and makes ready what completes until then.
    pub fn advance(&self, to: Nanos) {
        self.now.set(self.now.get().max(to));
        let mut events = self.events.borrow_mut();
        while let Some(Reverse((at, _, key))) = events.peek().copied() {
            if at > self.now.get() {
                break;
            }
            events.pop();
            let shard = self.flights.borrow().get(key).map(|flight| flight.shard);
            if let Some(shard) = shard
                && let Some(ready) = self.ready.borrow_mut().get_mut(shard as usize)
            {
                ready.push_back(key);
            }
        }
    }

    /// Completes what is ready on `shard`.
    pub(crate) fn deliver(&self, shard: ShardId) -> bool {
        let mut delivered = false;
        loop {
            if self.stands_still() {
                return delivered;
            }
            let key = self.ready.borrow_mut().get_mut(shard as usize).and_then(VecDeque::pop_front);
            let Some(key) = key else { return delivered };
            let flight = self.flights.borrow_mut().try_remove(key);
            if let Some(flight) = flight {
                delivered = true;
                self.complete(flight);
            }
        }
    }

    fn complete(&self, flight: Flight) {
        let Flight { member, request, done, early, covers, .. } = flight;
        let Request { offset, mut op } = request;
        let is_change = !matches!(op, Op::Read(_));
        let result = match &mut op {
            Op::Read(bufs) => {
                let seen = match early {
                    Some(seen) => seen.map(|bytes| {
                        let mut rest = bytes.as_slice();
                        for buf in bufs {
                            let (head, tail) = rest.split_at(buf.len());
                            buf.copy_from_slice(head);
                            rest = tail;
                        }
                    }),
                    None => {
                        let mut at = offset;
                        bufs.iter_mut().try_for_each(|buf| {
                            let start = at;
                            at += buf.len() as u64;
                            member.read(start, buf)
                        })
                    }
                };
                if seen.as_ref().is_err_and(|error| error.kind == IoErrorKind::Medium) {
                    self.recovery_may_lack(&member);
                }
                seen
            }
            Op::Write { bufs, fua } => self.write(&member, offset, &joined(bufs), *fua),
            Op::Flush => {
                let result = member.flush(covers);
                if result.is_err() {
                    self.failed_flushes.set(self.failed_flushes.get() + 1);
                    let shows = member.shows_loss.get() && member.has_lost();
                    member.lost_at.set(shows.then_some(self.now()));
                    member.out.set(true);
                }
                result
            }
            Op::WriteZeroes { len, fua, .. } => {
                if self.rng.percent(self.manners.unsupported) {
                    Err(IoError::new(IoErrorKind::Unsupported))
                } else {
                    self.write(&member, offset, &vec![0; *len as usize], *fua)
                }
            }
            Op::Discard { len } => {
                if self.rng.percent(50) {
                    self.write(&member, offset, &vec![0; *len as usize], false)
                } else {
                    Ok(())
                }
            }
        };
        if result.is_err() || self.verbose {
            self.trace(|| {
                let kind = result.err().map_or("ok".to_string(), |error| error.to_string());
                let op = Request { offset, op: Op::Flush };
                format!("  {} done at {} {kind}", member.name(), op.offset)
            });
        }
        if is_change {
            self.changed();
        }
        done.complete(Outcome { result, op });
    }

    /// What `source` does not give may be recorded as bad on a member of its array that is being rebuilt.
    fn recovery_may_lack(&self, source: &Member) {
        let members = self.members.borrow();
        let array = members.iter().filter(|member| member.kind.array == source.kind.array);
        for member in array.filter(|member| !member.in_sync.get() && member.has_log.get()) {
            member.scarred.set(true);
        }
    }

    fn write(&self, member: &Member, offset: u64, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        let result = member.write(&self.rng, offset, bytes, fua);
        let (data, len) = (member.data.borrow().clone(), bytes.len() as u64);
        let (at, tear) = (offset.wrapping_sub(data.start), member.kind.tear as usize);
        if let Err(error) = result {
            // Blocks that it does not take are recorded, where it has a log.
            let recorded = error.kind == IoErrorKind::Medium && member.has_log.get();
            if recorded && data.contains(&offset) {
                member.scarred.set(true);
            } else {
                member.out.set(true);
            }
            if data.contains(&offset) {
                // A job may write again what is there already: that is no loss.
                let there = member.image(offset..offset + len);
                let blocks = bytes.chunks(tear).zip(there.chunks(tear));
                let versions = blocks.filter(|(new, old)| new != old).filter_map(|(new, _)| {
                    match recognise(self.seed, new) {
                        Found::Block { version, .. } => Some(version),
                        _ => None,
                    }
                });
                let (member, versions) = (member.kind.index, versions.collect());
                self.missed.borrow_mut().push(Missed { member, offset: at, len, versions });
            }
        } else if !self.missed.borrow().is_empty() {
            // What was written again after all was not missed.
            self.missed.borrow_mut().retain(|missed| {
                missed.member != member.kind.index
                    || missed.offset < at
                    || missed.offset + missed.len > at + len
            });
        }
        result
    }

    /// A member is given a request on a shard.
    pub(crate) fn submit(
        &self,
        member: &Rc<Member>,
        shard: ShardId,
        request: Request,
        done: Completion,
    ) {
        if self.stands_still() {
            return self.unsent.borrow_mut().push((request, done));
        }
        if !matches!(request.op, Op::Read(_)) {
            self.changed();
        }
        self.submissions.set(self.submissions.get() + 1);
        self.trace(|| format!("  {} {} on shard {shard}", member.name(), describe(&request)));
        if let Err(error) = request.check(&member.kind.info) {
            self.fail("requests_are_valid", format!("{} {}", member.name(), describe(&request)));
            return done.finish(Err(error), request.op);
        }
        // Whoever asks at the same instant need not know that the flush has failed.
        if member.lost_at.get().is_some_and(|at| at < self.now()) {
            self.trace(|| format!("  {} gives what it held before the lost writes", member.name()));
            member.show_loss();
            self.loss_was_shown.set(true);
        }
        self.look(member, shard, &request);
        let early = match &request.op {
            Op::Read(_) if self.rng.percent(25) => {
                Some(member.read_new(request.offset, request.len()))
            }
            _ => None,
        };
        let covers = member.writes_so_far();
        let (submitted, slowness) = (self.now(), member.slowness.get());
        let member = Rc::clone(member);
        let flight = Flight { member, shard, request, done, early, covers, submitted };
        if flight.member.hung.get() {
            self.flights.borrow_mut().insert(flight);
            return;
        }
        if self.rng.percent(self.manners.inline) {
            return self.complete(flight);
        }
        let time = self.time_of_one(&flight.member);
        let at = submitted + time.max((time * slowness).min(SLOWEST));
        let key = self.flights.borrow_mut().insert(flight);
        self.events.borrow_mut().push(Reverse((at, self.rng.next(), key)));
    }

    fn time_of_one(&self, member: &Member) -> Nanos {
        let time = 1000 + self.rng.range(0..self.manners.latency);
        if self.rng.range(0..100_000) < self.manners.hang {
            let seconds = self.rng.range(1_000_000_000..20_000_000_000);
            // An array that stops gives up who is silent for a second, and another that is weak, or has left its slot, may need it.
            let left = |other: &Rc<Member>| other.dropped.get() && other.slot.get().is_some();
            let weak = |other: &Rc<Member>| {
                other.kind.index != member.kind.index
                    && ((!other.is_gone() && other.is_weak()) || left(other))
            };
            let needed = self.members.borrow().iter().any(weak) || self.is_journal(member);
            return time + if needed { seconds / 25 } else { seconds };
        }
        if self.rng.range(0..10_000) < self.manners.slow { time * 100 } else { time }
    }

    /// What can be told from the requests alone.
    fn look(&self, member: &Member, shard: ShardId, request: &Request) {
        let data = member.data.borrow().clone();
        let (offset, len) = (request.offset, request.len());
        let in_data = offset < data.end && offset + len > data.start;
        match &request.op {
            Op::Flush => {}
            Op::Read(_) => (self.looks.at_read)(self, member, offset, len),
            _ if in_data => {
                if offset < data.start || offset + len > data.end {
                    let text =
                        format!("{} {}: reaches out of {data:?}", member.name(), describe(request));
                    self.fail("requests_are_valid", text);
                }
                (self.looks.at_write)(self, member, shard, offset - data.start, len);
            }
            Op::Write { bufs, .. } => {
                self.metadata_writes.set(self.metadata_writes.get() + 1);
                self.learn(member, offset, &joined(bufs));
            }
            _ => self.metadata_writes.set(self.metadata_writes.get() + 1),
        }
    }

    /// Learns from a superblock on its way what the member is to be.
    fn learn(&self, member: &Member, offset: u64, bytes: &[u8]) {
        let sectors = member.kind.info.size / 512;
        let Ok(sb) = Superblock::parse(bytes, self.metadata, offset / 512, sectors) else { return };
        if self.is_journal(member) {
            return;
        }
        let new = sb.new_data_offset().unwrap_or(sb.data_offset);
        let start = new.min(sb.data_offset) * 512;
        let len = if sb.size == 0 { sb.data_size } else { sb.size };
        let end = new.max(sb.data_offset) * 512 + len * 512;
        let before = member.data.replace(start..end);
        let slot = sb.own_role().slot().map(usize::from);
        if sb.reshape.is_some() && slot.is_some() && member.slot.get().is_none() {
            // Nothing is read of it before the reshape has written it.
            member.has_more(start..end);
        } else if before.end == end && start < before.start {
            member.has_more(start..before.start);
        }
        if before.start == start && before.end < end {
            // At level 10 the last row of chunks may have been used in part.
            let row = if sb.level == 10 { u64::from(sb.chunk_sectors) * 512 } else { 0 };
            member.has_more(before.end.saturating_sub(row)..end);
        }
        member.slot.set(sb.own_role().slot().map(usize::from));
        let log = (sb.bblog_offset != 0 && sb.bblog_size != 0)
            .then(|| (sb.bblog_sector(), u64::from(sb.bblog_size)));
        let blocks = u64::from(member.kind.info.logical_block) / 512;
        member.has_log.set(log.is_some_and(|(at, len)| {
            at.is_some_and(|at| at.is_multiple_of(blocks)) && len.is_multiple_of(blocks)
        }));
        let whole = sb.recovery_offset.is_none() && !sb.replacement;
        member.in_sync.set(member.slot.get().is_some() && whole);
        member.dev_number.set(Some(sb.dev_number));
        self.trace(|| {
            format!(
                "  {} superblock: events {}, {:?} of {}, recovery {:?}, resync {}",
                member.name(),
                sb.events,
                sb.own_role(),
                sb.raid_disks,
                sb.recovery_offset,
                sb.resync_offset as i64
            )
        });
        if sb.own_role() == Role::Faulty || sb.recovery_offset == Some(0) {
            // It may be that of a member that has left, whose table is as old as that. All that is new others have too.
            return;
        }
        for other in self.members.borrow().iter() {
            if let Some(number) = other.dev_number.get()
                && other.kind.array == member.kind.array
            {
                other.dropped.set(sb.role_of(number).slot().is_none());
            }
        }
    }

    /// The process is killed: of what is under way some has never reached the members, nobody is told, and caches are
    /// kept.
    pub fn kill(&self) {
        self.events.borrow_mut().clear();
        self.ready.borrow_mut().clear();
        let flights = std::mem::take(&mut *self.flights.borrow_mut());
        let mut left: Vec<Flight> = flights.into_iter().map(|(_, flight)| flight).collect();
        self.rng.shuffle(&mut left);
        let keep = *self.rng.pick(&[0, 50, 80, 100]);
        for Flight { member, request, done, .. } in left {
            if self.rng.percent(keep) {
                let data = match &request.op {
                    Op::Write { bufs, .. } => joined(bufs).into_owned(),
                    Op::WriteZeroes { len, .. } => vec![0; *len as usize],
                    _ => Vec::new(),
                };
                let fua = matches!(
                    request.op,
                    Op::Write { fua: true, .. } | Op::WriteZeroes { fua: true, .. }
                );
                if !data.is_empty() {
                    // There is nobody left to be told.
                    let _ = member.write(&self.rng, request.offset, &data, fua);
                }
            }
            drop((request, done));
        }
        // The array may be out of sync from now on, so a failure that was harmless before is not.
        self.members.borrow().iter().for_each(|member| member.cancel_failures());
    }

    /// Power fails: what is under way gets through or not, caches are lost, nobody is told.
    pub fn power_cut(&self) {
        self.power_cuts.set(self.power_cuts.get() + 1);
        self.still_at.set(u64::MAX);
        self.unsent.take();
        self.events.borrow_mut().clear();
        self.ready.borrow_mut().clear();
        let flights = std::mem::take(&mut *self.flights.borrow_mut());
        let mut writes: BTreeMap<usize, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
        for (_, flight) in flights {
            let Flight { member, request, done, .. } = flight;
            let data = match &request.op {
                Op::Write { bufs, .. } => joined(bufs).into_owned(),
                Op::WriteZeroes { len, .. } => vec![0; *len as usize],
                Op::Discard { len } if self.rng.percent(50) => vec![0; *len as usize],
                _ => Vec::new(),
            };
            if !data.is_empty() && !member.is_gone() {
                writes.entry(member.kind.index).or_default().push((request.offset, data));
            }
            drop((request, done));
        }
        for member in self.members.borrow().iter().chain(self.journal.borrow().iter()) {
            let under_way = writes.remove(&member.kind.index).unwrap_or_default();
            member.power_cut(&self.rng, under_way);
        }
    }
}

/// A request in a few words.
pub fn describe(request: &Request) -> String {
    let what = match &request.op {
        Op::Read(_) => "read",
        Op::Write { fua: false, .. } => "write",
        Op::Write { fua: true, .. } => "write-fua",
        Op::Flush => return "flush".to_string(),
        Op::Discard { .. } => "discard",
        Op::WriteZeroes { .. } => "write-zeroes",
    };
    format!("{what} {}+{}", request.offset, request.len())
}
