//! The user of a file system: makes requests, several at once, and compares every answer with the model.

use super::call::{Answer, Call, What, carry_out, is_behind, may_be_behind};
use super::history::History;
use super::leased;
use super::meta::{Change, Id, Key, Moment, ROOT, moment};
use super::model::{Begun, Model};
use super::project_limits::may_be_reached;
use super::readable::{Readable, look_at};
use super::room::Room;
use super::seen::Number;
use super::{OpNr, stamp};
use crate::machine::{Later, Machine};
use crate::rng::Rng;
use crate::world::World;
use braid_filesystem::{Allocate, Attr, DirEntry, Entry, Errno, FileSystem, Leases, Seek, Time};
use braid_shard::{Nanos, Shard};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// The clock of the file system.
pub type Clock = Rc<dyn Fn() -> Time>;

/// A request in flight.
struct InFlight {
    call: Call,
    submitted: Nanos,
}

/// What a failed write left, being read.
struct Settling {
    call: Call,
    later: Later<Result<(Attr, Readable), Errno>>,
}

type Results = Rc<RefCell<VecDeque<(OpNr, Result<Answer, Errno>)>>>;

/// See the module's documentation.
pub struct Client<F> {
    /// Choices.
    pub rng: Rng,
    /// The last requests.
    pub history: History,
    pub(super) fs: Rc<F>,
    world: Rc<World>,
    shard: Shard,
    clock: Clock,
    results: Results,
    in_flight: BTreeMap<OpNr, InFlight>,
    failed: Vec<(OpNr, Call)>,
    settling: BTreeMap<OpNr, Settling>,
    refs: BTreeMap<Id, u64>,
    opens: BTreeMap<Id, u64>,
    /// How full it may be; `None`: requests may fail for want of space at any time.
    pub room: Option<Room>,
    /// Requests may fail because a brick has: those on data, and with `true` all.
    pub may_fail: Option<bool>,
    /// Files from this one on were made after the last brick had failed, so that nothing of them is on it.
    pub unharmed: Option<Id>,
    /// Those of them that have extents of files before it.
    mixed: BTreeSet<Id>,
    /// What could not be read when everything was.
    pub unread: Vec<(Id, Range<u64>)>,
    /// Bytes of files, by their numbers, that may be of any time before a crash.
    pub may_be_old: BTreeMap<u64, Vec<(u64, u64)>>,
    /// The calls that came last are drawn, too.
    pub calls: bool,
    /// Devices can be told of free space: all of them, or none; `None`: some, or arrays may.
    pub trims: Option<bool>,
    /// There are snapshots: what changes takes space, also what is cut.
    pub shares: bool,
    /// Ranges of files are copied to others.
    pub copies_ranges: bool,
    /// Metadata has no room without an end.
    pub names_may_be_full: bool,
    /// Some reads are made by leases.
    pub leases: Option<Rc<dyn Leases>>,
    /// Requests that ended.
    pub ended: u64,
    /// Requests that found no space.
    pub full: u64,
    /// Requests that failed because a brick had.
    pub failures: u64,
}

impl<F: FileSystem + 'static> Client<F> {
    /// A client of `fs`, on the home shard of `machine`.
    pub fn new(rng: Rng, fs: Rc<F>, machine: &Machine, clock: Clock) -> Client<F> {
        Client {
            rng,
            history: History::default(),
            fs,
            world: Rc::clone(&machine.world),
            shard: machine.home().clone(),
            clock,
            results: Rc::default(),
            in_flight: BTreeMap::new(),
            failed: Vec::new(),
            settling: BTreeMap::new(),
            refs: BTreeMap::new(),
            opens: BTreeMap::new(),
            room: None,
            may_fail: None,
            unharmed: None,
            mixed: BTreeSet::new(),
            unread: Vec::new(),
            may_be_old: BTreeMap::new(),
            calls: false,
            trims: None,
            shares: false,
            copies_ranges: false,
            names_may_be_full: false,
            leases: None,
            ended: 0,
            full: 0,
            failures: 0,
        }
    }

    pub(super) fn now(&self) -> Moment {
        moment((self.clock)())
    }

    /// Something is wrong, with these files.
    pub fn fail(&self, checker: &'static str, text: &str, ids: &[Id]) {
        self.world.fail(checker, format!("{text}{}", self.history.tell(ids)));
    }

    /// Requests in flight, and failed ones that are being looked into.
    pub fn waiting(&self) -> usize {
        self.in_flight.len() + self.failed.len() + self.settling.len()
    }

    /// Of each request that ended it is known what it has done.
    pub fn nothing_failed(&self) -> bool {
        self.failed.is_empty() && self.settling.is_empty()
    }

    /// When the oldest request in flight was submitted.
    pub fn oldest(&self) -> Option<Nanos> {
        self.in_flight.values().map(|request| request.submitted).min()
    }

    /// The requests in flight, for people.
    pub fn describe_waiting(&self) -> String {
        let list = self.in_flight.values().map(|request| request.call.to_string());
        list.collect::<Vec<_>>().join(", ")
    }

    /// The file may be named in requests: a look-up gave it, or it is open.
    pub fn has(&self, id: Id) -> bool {
        id == ROOT || self.refs.contains_key(&id) || self.opens.contains_key(&id)
    }

    /// A look-up gave the file once more.
    pub(super) fn add_reference(&mut self, id: Id) {
        *self.refs.entry(id).or_default() += 1;
    }

    /// Some request in flight names the file.
    fn in_use(&self, id: Id) -> bool {
        let named = |call: &Call| call.on == id || call.other == id;
        self.in_flight.values().any(|request| named(&request.call))
            || self.failed.iter().any(|(_, call)| named(call))
            || self.settling.values().any(|settling| named(&settling.call))
    }

    /// Makes the request, unless it would get in the way of others. True when it was made.
    pub fn send(&mut self, model: &mut Model, call: Call) -> bool {
        if !self.has(call.on) || !self.has(call.other) {
            return false;
        }
        let Some(plan) = model.plan(&call) else { return false };
        let numbers = (model.numbers.get(&call.on), model.numbers.get(&call.other));
        let (Some((on, _)), Some((other, _))) = numbers else { return false };
        let inos = (*on, *other);
        let op = model.begin(&call, plan, self.now());
        self.world.trace(|| format!("#{op} {call}"));
        self.note(op, &call, "");
        if let Some(room) = &mut self.room {
            room.note(&call);
        }
        let (fs, pool) = (Rc::clone(&self.fs), self.shard.pool().clone());
        let (results, seed, what) = (Rc::clone(&self.results), model.seed, call.what.clone());
        let behind = is_behind(call.on, &what);
        let submitted = self.world.now();
        if matches!(call.what, What::Copy(..)) && !self.is_unharmed(&call) {
            self.mixed.insert(call.on);
        }
        self.in_flight.insert(op, InFlight { call, submitted });
        let leases = self.leases.clone().filter(|_| !op.is_multiple_of(4));
        self.shard.spawn(async move {
            if let (Some(leases), What::Read(offset, len)) = (leases, &what)
                && let Some(bytes) = leased::read(&*fs, &*leases, inos.0, *offset, *len).await
            {
                return results.borrow_mut().push_back((op, Ok(Answer::Bytes(bytes))));
            }
            let result = carry_out(&*fs, &pool, seed, inos, &what, behind).await;
            results.borrow_mut().push_back((op, result));
        });
        true
    }

    fn note(&mut self, op: OpNr, call: &Call, outcome: &str) {
        let of: &[Id] = match call.what {
            What::Sync => &[],
            _ => &[call.on, call.other],
        };
        let text = format!("{:.6} #{op} {call}{outcome}", self.world.now() as f64 / 1e9);
        self.history.note(of, text);
    }

    /// Takes what has come back and compares it. True when there was something.
    pub fn collect(&mut self, model: &mut Model) -> bool {
        let ended = self.ended;
        loop {
            let next = self.results.borrow_mut().pop_front();
            let Some((op, result)) = next else { break };
            let Some(InFlight { call, .. }) = self.in_flight.remove(&op) else { continue };
            self.ended += 1;
            let text = match &result {
                Ok(_) => " ok".to_string(),
                Err(errno) => format!(" {errno:?}"),
            };
            self.world.trace(|| format!("#{op}{text}"));
            self.note(op, &call, &text);
            self.came_back(model, op, call, result);
        }
        self.settle(model);
        self.let_go(model);
        self.ended > ended
    }

    fn came_back(
        &mut self,
        model: &mut Model,
        op: OpNr,
        call: Call,
        result: Result<Answer, Errno>,
    ) {
        let Some(begun) = model.begun.get(&op) else { return };
        let right = begun.plan.errors.clone();
        match result {
            Ok(answer) => {
                if !right.is_empty() {
                    let text = format!("{call} went well, should be {}", Model::names_of(&right));
                    return self.fail("errors_are_right", &text, &[call.on, call.other]);
                }
                let Some(begun) = model.end(op, self.now()) else { return };
                self.check(model, &call, &begun, answer);
            }
            Err(errno) if right.contains(&errno) => {
                model.refuse(op);
            }
            Err(errno) if begun.plan.may.contains(&errno) => {
                model.refuse(op);
                let size = model.now.nodes.get(&call.on).map_or(0, |node| node.size);
                let is_right = !matches!(call.what, What::Trim(_)) || self.trims != Some(true);
                self.must(is_right, &call, "was refused, and the devices can do that");
                if let What::Seek(offset, _) = call.what {
                    let data = model.data.get(&call.on);
                    let hole = data.is_none_or(|data| data.is_hole(offset..size));
                    self.must(hole, &call, "found no data, and there is some");
                }
            }
            Err(errno) if self.is_excused(model, &call, errno) => {
                if matches!(errno, Errno::NoSpace | Errno::Quota) {
                    self.full += 1;
                } else {
                    self.failures += 1;
                }
                if begun.plan.bytes.is_empty() && begun.plan.changes.is_empty() {
                    model.refuse(op);
                    return;
                }
                // Nobody else gets at the file until it is known what was done.
                model.fail(op);
                let mut alone = begun_needs(model, op);
                alone.iter_mut().for_each(|need| need.alone = true);
                if let Some(begun) = model.begun.get_mut(&op) {
                    begun.plan.needs = alone;
                }
                self.failed.push((op, call));
            }
            Err(errno) => {
                let text = match right.is_empty() {
                    true => format!("{call} gave {errno:?}"),
                    false => {
                        format!("{call} gave {errno:?}, should be {}", Model::names_of(&right))
                    }
                };
                self.fail("errors_are_right", &text, &[call.on, call.other]);
            }
        }
    }

    /// Nothing of what the request is about is on a brick that has failed.
    fn is_unharmed(&self, call: &Call) -> bool {
        let is_copy = matches!(call.what, What::Copy(..));
        let is_mixed = self.mixed.contains(&call.on)
            || self.mixed.contains(&call.other)
            || is_copy && may_be_behind(call.other);
        !is_mixed && self.unharmed.is_some_and(|first| call.on.min(call.other) >= first)
    }

    /// Such a request may fail so.
    fn is_excused(&self, model: &Model, call: &Call, errno: Errno) -> bool {
        let takes_space = match &call.what {
            What::Write(..) | What::Copy(..) => true,
            What::Allocate(how, ..) => self.shares || !matches!(how, Allocate::PunchHole),
            What::SetAttr(_, set) => self.shares && set.size.is_some(),
            _ => false,
        };
        let takes_names = match &call.what {
            What::Make { .. }
            | What::MakeUnnamed { .. }
            | What::Link(_)
            | What::Rename(..)
            | What::SetXattr(..) => true,
            What::SetAttr(_, set) => set.size.is_some(),
            _ => false,
        };
        let syncs = matches!(call.what, What::Fsync(_) | What::Sync);
        let data = match &call.what {
            What::Write(..) | What::Read(..) | What::Allocate(..) | What::Open(true) => true,
            What::Trim(_) | What::Copy(..) => true,
            What::SetAttr(_, set) => set.size.is_some(),
            _ => syncs,
        };
        // What nobody waits to see on a brick may be on its way to one of which nobody knows yet that it is gone.
        let waits = !may_be_behind(call.on);
        let unharmed = waits && !syncs && self.is_unharmed(call);
        match errno {
            Errno::NoSpace if takes_names && !takes_space => self.names_may_be_full,
            Errno::NoSpace => {
                takes_space && self.room.as_ref().is_none_or(|room| room.may_be_full())
            }
            Errno::Quota => may_be_reached(&model.limits, &model.now, call),
            Errno::Io => !unharmed && self.may_fail.is_some_and(|all| all || data),
            _ => false,
        }
    }

    /// Has a look at what failed requests left.
    fn settle(&mut self, model: &mut Model) {
        for (op, call) in std::mem::take(&mut self.failed) {
            let id = call.on;
            // Others that have failed change nothing any more.
            let others = model.begun.iter().filter(|(nr, _)| self.in_flight.contains_key(nr));
            let busy = others
                .flat_map(|(_, begun)| &begun.plan.changes)
                .any(|change| change.key() == Key::Node(id));
            let Some((ino, _)) = model.numbers.get(&id).copied().filter(|_| !busy) else {
                self.failed.push((op, call));
                continue;
            };
            let bytes = model.begun.get(&op).map(|begun| &begun.plan.bytes[..]).unwrap_or_default();
            let range = bytes.first().zip(bytes.last());
            let (start, most) = range.map_or((0, 0), |(first, last)| {
                (first.range.start, last.range.end.min(first.range.start + (64 << 20)))
            });
            let fs = Rc::clone(&self.fs);
            let later = Rc::new(RefCell::new(None));
            let slot = Rc::clone(&later);
            self.shard.spawn(async move {
                let result = look_at(&*fs, ino, start, most).await;
                *slot.borrow_mut() = Some(result);
            });
            self.settling.insert(op, Settling { call, later });
        }
        let done: Vec<OpNr> = self
            .settling
            .iter()
            .filter(|(_, settling)| settling.later.borrow().is_some())
            .map(|(op, _)| *op)
            .collect();
        for op in done {
            let Some(Settling { call, later, .. }) = self.settling.remove(&op) else { continue };
            let Some(result) = later.borrow_mut().take() else { continue };
            match result {
                Ok((attr, left)) => self.settled(model, op, &call, &attr, &left),
                Err(errno) => {
                    let text = format!("looking at what {call} left: {errno:?}");
                    self.fail("errors_are_right", &text, &[call.on]);
                }
            }
        }
    }

    fn settled(
        &mut self,
        model: &mut Model,
        op: OpNr,
        call: &Call,
        attr: &Attr,
        (bytes, unread): &Readable,
    ) {
        let id = call.on;
        let before = model.now.nodes.get(&id).map_or(0, |node| node.size);
        if matches!(call.what, What::SetAttr(..) | What::Open(_)) {
            // Nothing is cut before all is ready for it.
            self.must(attr.size == before, call, "failed and changed the size");
            model.refuse(op);
            return;
        }
        let bytes_of = model.begun.get(&op).and_then(|begun| begun.plan.bytes.first().cloned());
        let start = bytes_of.map_or(0, |bytes| bytes.range.start);
        // Other failed writes of the file may have made it longer, too.
        let grows = model.begun.values().flat_map(|begun| &begun.plan.changes);
        let ends = grows.filter_map(|change| match change {
            Change::Grow(of, end) if *of == id => Some(*end),
            _ => None,
        });
        let most = ends.max().unwrap_or(0).max(before);
        if !(before..=most).contains(&attr.size) {
            let size = attr.size;
            let text = format!("{call} failed and left size {size}, should be {before} to {most}");
            self.fail("failed_writes_leave_old_or_new", &text, &[id]);
        }
        let wrong = model.settled(op, self.now(), id, attr.size, (bytes, unread));
        if let Some(at) = wrong {
            let found = model.describe(start, bytes, at);
            let text = format!("{call} failed and left {found} at {at}");
            self.fail("failed_writes_leave_old_or_new", &text, &[id]);
        }
        model.seen(id, attr);
    }

    /// Gives back references and closes, at random, what no request names.
    fn let_go(&mut self, model: &Model) {
        if !self.rng.percent(20) {
            return;
        }
        let number = |id: Id| model.numbers.get(&id).map(|(ino, _)| *ino);
        let ids: Vec<Id> = self.refs.keys().copied().collect();
        let (Some(id), true) = (ids.get(self.rng.below(ids.len())).copied(), !ids.is_empty())
        else {
            return;
        };
        if self.in_use(id) {
            return;
        }
        let Some(ino) = number(id) else { return };
        match self.rng.range(0..10) {
            // Those with no name go with the last reference.
            0..2 => {
                let count = self.refs.remove(&id).unwrap_or(0);
                self.fs.forget(ino, count);
                self.note(0, &Call { on: id, other: id, what: What::Attr }, " forgotten");
            }
            2..7 => {
                if let Some(count) = self.refs.get_mut(&id).filter(|count| **count > 1) {
                    let less = *count - 1;
                    *count = 1;
                    self.fs.forget(ino, less);
                }
            }
            _ => {
                if let Some(count) = self.opens.get_mut(&id) {
                    *count -= 1;
                    if *count == 0 {
                        self.opens.remove(&id);
                    }
                    self.fs.close(ino);
                    self.note(0, &Call { on: id, other: id, what: What::Attr }, " closed");
                }
            }
        }
    }

    // --- Answers ----------------------------------------------------------------------------

    fn check(&mut self, model: &mut Model, call: &Call, begun: &Begun, answer: Answer) {
        let on = call.on;
        match (&call.what, answer) {
            (What::Lookup(name), Answer::Entry(entry)) => {
                let expected = match name.as_slice() {
                    b"." => Some(on),
                    b".." => model.now.nodes.get(&on).map(|node| node.parent),
                    _ => model.now.names.get(&(on, name.clone())).copied(),
                };
                self.entry(model, call, begun, expected, &entry);
            }
            (
                What::Make { .. } | What::MakeUnnamed { .. } | What::Rename(..),
                Answer::Entry(entry),
            ) if begun.plan.makes.is_some() => {
                let number: Number = (entry.attr.ino, entry.generation);
                if let Some(id) = model.id_of(number) {
                    let text = format!("{call} gave the number {number:?}, which is f{id}'s");
                    return self.fail("numbers_are_unique", &text, &[on, id]);
                }
                if let Some(id) = begun.plan.makes {
                    model.name_it(id, number);
                    self.history.note(&[id], format!("f{id} is file {number:?}, made by {call}"));
                    self.entry(model, call, begun, Some(id), &entry);
                }
            }
            // From one name of a file to another nothing is left to be a whiteout.
            (What::Rename(name, ..), Answer::Entry(entry)) => {
                let there = model.now.names.get(&(on, name.clone())).copied();
                self.entry(model, call, begun, there, &entry);
            }
            (What::Flags, Answer::Flags(flags)) => {
                let right = model.now.nodes.get(&on).is_some_and(|node| node.flags == flags);
                self.must(right, call, &format!("gave {flags:?}, which was not set"));
            }
            (What::Trim(range), Answer::Offset(trimmed)) => {
                let right = trimmed <= range.len && self.trims != Some(false);
                self.must(right, call, &format!("gave {trimmed} bytes, more than can be"));
            }
            (What::Link(_), Answer::Entry(entry)) => {
                self.entry(model, call, begun, Some(on), &entry);
            }
            (What::Attr | What::SetAttr(..), Answer::Attr(attr)) => {
                self.attr(model, call, begun, on, &attr);
            }
            (What::ReadLink, Answer::Bytes(target)) => {
                let right = model.now.nodes.get(&on).is_some_and(|node| node.target == target);
                self.must(right, call, "gave another target than it was made with");
            }
            (What::Read(offset, len), Answer::Bytes(bytes)) => {
                self.bytes(model, call, begun, (*offset, *len), &bytes);
            }
            (What::List(..), Answer::List(entries)) => {
                self.list(model, call, begun, &entries);
            }
            (What::Seek(offset, what), Answer::Offset(found)) => {
                self.seek(model, call, (*offset, *what), found);
            }
            (What::Parent, Answer::Ino(ino)) => {
                let parent = model.now.nodes.get(&on).map(|node| node.parent);
                let number = parent.and_then(|parent| model.numbers.get(&parent));
                let right = number.is_some_and(|(known, _)| *known == ino);
                self.must(right, call, "gave another directory than the one that it is in");
            }
            (What::Xattr(name), Answer::Bytes(value)) => {
                let right = model.now.xattrs.get(&(on, name.clone())) == Some(&value);
                self.must(right, call, "gave another value than was set");
            }
            (What::Xattrs, Answer::Names(names)) => {
                let set = model.now.xattrs.keys().filter(|(id, _)| *id == on);
                let set: BTreeSet<&[u8]> = set.map(|(_, name)| name.as_slice()).collect();
                let given: BTreeSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let right = set == given && names.len() == given.len();
                self.must(right, call, "did not give the names that were set");
            }
            (What::Space, Answer::Space(space)) => {
                let right = space.free <= space.blocks && space.available <= space.free;
                self.must(right, call, "gave more free space than there is");
            }
            (What::Open(_), Answer::Done) => *self.opens.entry(on).or_default() += 1,
            (What::Fsync(_), Answer::Done) => {
                model.make_durable(begun.tick, begun.reach, Some(on));
            }
            (What::Sync, Answer::Done) => model.make_durable(begun.tick, begun.reach, None),
            (_, Answer::Done) => {}
            (_, answer) => self.must(false, call, &format!("gave {answer:?}")),
        }
    }

    fn must(&self, right: bool, call: &Call, text: &str) {
        if !right {
            self.fail("answers_are_right", &format!("{call} {text}"), &[call.on, call.other]);
        }
    }

    fn entry(
        &mut self,
        model: &mut Model,
        call: &Call,
        begun: &Begun,
        expected: Option<Id>,
        entry: &Entry,
    ) {
        let number: Number = (entry.attr.ino, entry.generation);
        let found = model.id_of(number);
        if found.is_none() || found != expected {
            return self.must(false, call, &format!("gave {number:?}, which is {found:?}"));
        }
        if let Some(id) = found {
            *self.refs.entry(id).or_default() += 1;
            self.attr(model, call, begun, id, &entry.attr);
        }
    }

    fn attr(&self, model: &mut Model, call: &Call, begun: &Begun, id: Id, attr: &Attr) {
        let number = model.numbers.get(&id).map(|(ino, _)| *ino);
        let Some(node) = model.now.nodes.get(&id) else { return };
        if number != Some(attr.ino) || node.kind != attr.kind {
            return self.must(false, call, &format!("gave attributes of another file: {attr:?}"));
        }
        if begun.disturbed.contains(&id) {
            return;
        }
        if let Some(why) = node.differs(attr) {
            let text = format!("{call}: f{id}: {why}");
            return self.fail("attributes_are_right", &text, &[id, call.on, call.other]);
        }
        model.seen(id, attr);
    }

    fn bytes(
        &self,
        model: &Model,
        call: &Call,
        begun: &Begun,
        (offset, len): (u64, usize),
        bytes: &[u8],
    ) {
        let size = model.now.nodes.get(&call.on).map_or(0, |node| node.size);
        let there = size.saturating_sub(offset).min(len as u64);
        let disturbed = begun.disturbed.contains(&call.on);
        if bytes.len() > len || !disturbed && bytes.len() as u64 != there {
            let text = format!("gave {} bytes, should be {there}", bytes.len());
            return self.must(false, call, &text);
        }
        let wrong = match model.data.get(&call.on) {
            Some(data) => {
                let exact = data.check(model.seed, offset, bytes).map(|(at, _)| at);
                exact.and_then(|at| match disturbed {
                    true => data.check_racing(model.seed, begun.tick, offset, bytes),
                    false => Some(at),
                })
            }
            None => bytes.iter().position(|byte| *byte != 0).map(|at| offset + at as u64),
        };
        if let Some(at) = wrong {
            let found = model.describe(offset, bytes, at);
            let should = model.data.get(&call.on).map_or(stamp::ZEROES, |data| {
                data.check(model.seed, offset, bytes).map_or(stamp::ZEROES, |(_, of)| of)
            });
            let text = format!("{call}: at {at} found {found}, should be of write #{should}");
            self.fail("reads_return_what_was_written", &text, &[call.on]);
        }
    }

    fn list(
        &mut self,
        model: &Model,
        call: &Call,
        begun: &Begun,
        entries: &[(DirEntry, Option<Entry>)],
    ) {
        let mut names = BTreeSet::new();
        for (entry, looked_up) in entries {
            if let Some(found) = looked_up {
                match model.id_of((found.attr.ino, found.generation)) {
                    Some(id) => *self.refs.entry(id).or_default() += 1,
                    // Made meanwhile, and not answered yet.
                    None => self.fs.forget(found.attr.ino, 1),
                }
            }
            let key = (call.on, entry.name.clone());
            let changing = begun.names.contains(&key);
            let text = String::from_utf8_lossy(&entry.name).into_owned();
            if !names.insert(entry.name.clone()) && !changing {
                return self.must(false, call, &format!("gave {text} twice"));
            }
            if changing {
                continue;
            }
            let id = model.now.names.get(&key);
            let number = id.and_then(|id| model.numbers.get(id)).map(|(ino, _)| *ino);
            let kind = id.and_then(|id| model.now.nodes.get(id)).map(|node| node.kind);
            if (number, kind) != (Some(entry.ino), Some(entry.kind)) {
                return self.must(false, call, &format!("gave {text} as {entry:?}"));
            }
        }
        let missing = model.now.entries(call.on).find(|(name, _)| {
            // A name that a rename gave to another file was there all the while.
            !names.contains(*name) && !begun.vanished.contains(&(call.on, name.to_vec()))
        });
        if let Some((name, _)) = missing {
            let text = format!("did not give {}", String::from_utf8_lossy(name));
            self.must(false, call, &text);
        }
    }

    fn seek(&self, model: &Model, call: &Call, (offset, what): (u64, Seek), found: u64) {
        let size = model.now.nodes.get(&call.on).map_or(0, |node| node.size);
        let hole = |range: std::ops::Range<u64>| {
            model.data.get(&call.on).is_none_or(|data| data.is_hole(range))
        };
        let right = match what {
            Seek::Data => (offset..size).contains(&found) && hole(offset..found),
            Seek::Hole => {
                let end = (found + 1).min(size);
                (offset..=size).contains(&found) && (found == size || hole(found..end))
            }
        };
        self.must(right, call, &format!("gave {found}, which is not the next"));
    }
}

fn begun_needs(model: &Model, op: OpNr) -> Vec<super::expected::Need> {
    model.begun.get(&op).map(|begun| begun.plan.needs.clone()).unwrap_or_default()
}
