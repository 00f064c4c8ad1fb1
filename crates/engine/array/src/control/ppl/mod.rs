//! The partial parity log of a running array: what shards have to log is written, unit by unit, to the member that holds
//! the parity.
//!
//! ```text
//!  shards ─► batches ─► unit of what waits for this member ─► durable ─► yes: the writes go to the members
//!                           ▲                                                      │ ended
//!                           └────────── flush of who has got them ◄────────────────┘
//! ```
//!
//! md replays only the newest unit of a member's log. So each member has one unit under way at a time: what comes meanwhile
//! waits, and goes together with the next. Flushes are shared by the logs of all members.
//!
//! | file | subject |
//! |---|---|
//! | `in_use` | how far it is in use |
//! | `opening` | when the log is in use, and what its areas hold before that |
//! | `growing` | a log added to the running array, or taken away |
//!
//! Order: a unit before the blocks that it is for; those durable before the next unit of the same member. A member whose
//! log cannot be written has failed, like one whose bitmap cannot: without it there is no parity to be kept.

mod growing;
mod in_use;
mod opening;

use crate::consistency::ppl::{BatchNr, LogBatch, LogEntry};
use crate::control::record::Record;
use crate::control::record::members::Member;
use crate::engine::home::Answer;
use crate::metadata::ppl::area::Area;
use crate::state::view::MemberNr;
use braid_device::{Device, Request};
use braid_format::ppl::{ENTRIES_MAX, HEADER, Header};
use braid_layout::Slot;
use braid_shard::plant::planted;
use braid_shard::sync::Notify;
use in_use::Use;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A batch of a shard: the slot, the shard, its number there.
type BatchId = (Slot, u16, BatchNr);

/// The partial parity log of one array, which it may be given or lose while it runs.
pub struct PartialParity {
    record: Rc<Record>,
    in_use: Cell<Use>,
    /// The newest unit of all members.
    generation: Cell<u64>,
    /// By slot.
    logs: RefCell<Vec<MemberLog>>,
    /// Batches under way that were let through without being logged.
    unlogged: RefCell<Vec<BatchId>>,
    /// Told whenever a batch has ended, or a flush.
    changed: Notify,
    flushes: Flushes,
    /// Units written so far.
    units: Cell<u64>,
}

/// A member whose area gets units.
struct LogPlace {
    nr: MemberNr,
    device: Rc<dyn Device>,
    area: Area,
}

/// The log on the member of one slot.
#[derive(Default)]
struct MemberLog {
    /// By member whose area has them: the byte behind the newest unit. The holder of the slot, and its replacement.
    next: SmallVec<[(MemberNr, u64); 2]>,
    /// Batches that wait for the next unit.
    waiting: VecDeque<(LogBatch, Answer)>,
    /// Batches of the newest unit that have not ended.
    under_way: Vec<BatchId>,
    /// A task writes units.
    busy: bool,
}

/// Flushes that logs wait for, one at a time.
#[derive(Default)]
struct Flushes {
    /// Slots that the next one is for.
    wanted: RefCell<SmallVec<[Slot; 8]>>,
    busy: Cell<bool>,
    begun: Cell<u64>,
    ended: Cell<u64>,
}

impl PartialParity {
    pub(super) fn new(record: &Rc<Record>) -> Rc<PartialParity> {
        let slots = record.geometry().slots();
        let there = record.roster.borrow().shared.ppl.is_some() && !record.read_only;
        Rc::new(PartialParity {
            record: Rc::clone(record),
            in_use: Cell::new(if there { Use::Not } else { Use::Absent }),
            generation: Cell::default(),
            logs: RefCell::new((0..slots).map(|_| MemberLog::default()).collect()),
            unlogged: RefCell::default(),
            changed: Notify::new(&record.shard),
            flushes: Flushes::default(),
            units: Cell::default(),
        })
    }

    /// Units written so far, each with what waited for it.
    pub fn units(&self) -> u64 {
        self.units.get()
    }

    /// A shard wants a batch to be logged; `answer` is called with true when it is durable, or with false when nothing may
    /// be written.
    pub(crate) fn log(self: &Rc<Self>, batch: LogBatch, answer: Answer) {
        if !self.record.may_record() {
            return answer(false);
        }
        let slot = batch.slot;
        if matches!(self.in_use.get(), Use::Absent | Use::Not) {
            self.unlogged.borrow_mut().push(id(&batch));
            return answer(true);
        }
        if let Some(log) = self.logs.borrow_mut().get_mut(slot) {
            log.waiting.push_back((batch, answer));
        }
        self.start(slot);
    }

    /// All writes of a batch that was answered with true have ended.
    pub(crate) fn ended(&self, slot: Slot, shard: u16, nr: BatchNr) {
        let id = (slot, shard, nr);
        let mut unlogged = self.unlogged.borrow_mut();
        match unlogged.iter().position(|known| *known == id) {
            Some(at) => {
                unlogged.swap_remove(at);
            }
            None => {
                if let Some(log) = self.logs.borrow_mut().get_mut(slot) {
                    log.under_way.retain(|known| *known != id);
                }
            }
        }
        drop(unlogged);
        self.changed.notify_all();
    }

    /// Has what waits for `slot` written, if nobody is at it.
    fn start(self: &Rc<Self>, slot: Slot) {
        if self.in_use.get() == Use::Opening {
            return;
        }
        let idle = match self.logs.borrow_mut().get_mut(slot) {
            Some(log) => !log.waiting.is_empty() && !std::mem::replace(&mut log.busy, true),
            None => false,
        };
        if idle {
            let own = Rc::clone(self);
            self.record.shard.spawn(async move { own.write_units(slot).await });
        }
    }

    async fn write_units(self: Rc<Self>, slot: Slot) {
        loop {
            let places = self.log_places(slot);
            let room = places.iter().map(|place| place.area.partial_max()).min();
            let room = room.unwrap_or(u64::MAX);
            let batches = match self.logs.borrow_mut().get_mut(slot) {
                Some(log) => log.take(room),
                None => Vec::new(),
            };
            if batches.is_empty() {
                if let Some(log) = self.logs.borrow_mut().get_mut(slot) {
                    log.busy = false;
                }
                return;
            }
            let (batches, answers): (Vec<LogBatch>, Vec<Answer>) = batches.into_iter().unzip();
            let mut unflushed = SmallVec::new();
            // Once too many members have failed the newest unit stays: what it describes may have reached some of them only.
            if !places.is_empty() && self.record.may_record() {
                let entries = batches.iter().flat_map(|batch| &batch.entries);
                entries.clone().for_each(|entry| unflushed.extend(entry.unflushed.iter().copied()));
                let entries: Vec<&LogEntry> = entries.collect();
                self.write_unit(slot, &places, &entries).await;
            }
            let may_write = self.record.may_record();
            for answer in answers {
                answer(may_write);
            }
            if may_write {
                let ended = || {
                    let logs = self.logs.borrow();
                    logs.get(slot).is_none_or(|log| log.under_way.is_empty()).then_some(())
                };
                self.changed.wait_for(ended).await;
                self.flush(unflushed).await;
            } else if let Some(log) = self.logs.borrow_mut().get_mut(slot) {
                log.under_way.clear();
            }
        }
    }

    /// Where units for `slot` go: to the member that holds it, and to its replacement, which may have the parity by itself
    /// after a crash. Nowhere when there is nobody whose log could be written.
    fn log_places(&self, slot: Slot) -> SmallVec<[LogPlace; 2]> {
        if self.in_use.get() == Use::Absent {
            return SmallVec::new();
        }
        let roster = self.record.roster.borrow();
        let replacement = roster.replacement_of(slot).filter(|_| !planted("replacement-unlogged"));
        let members = roster.holder(slot).into_iter().chain(replacement);
        let place = |member: &Member| {
            let area = Area::of(&member.superblock)?;
            let device = self.record.engine.members.device(member.nr)?;
            Some(LogPlace { nr: member.nr, device, area })
        };
        members.filter(|member| member.given_up.is_none()).filter_map(place).collect()
    }

    /// Writes the next unit to these members; one that does not take it has failed.
    async fn write_unit(&self, slot: Slot, places: &[LogPlace], entries: &[&LogEntry]) {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let partial: usize = entries.iter().map(|entry| entry.partial.len()).sum();
        let header =
            Header { generation, entries: entries.iter().map(|entry| entry.entry).collect() };
        let set_uuid = self.record.roster.borrow().shared.set_uuid;
        let mut unit = self.record.shard.pool().get(HEADER + partial);
        let parts = std::iter::once(&header.to_bytes(&set_uuid)[..])
            .chain(entries.iter().map(|entry| &entry.partial[..]))
            .fold(0, |at, part| {
                // The buffer was made for all of them.
                if let Some(place) = unit.get_mut(at..at + part.len()) {
                    place.copy_from_slice(part);
                }
                at + part.len()
            });
        debug_assert_eq!(parts, unit.len());
        let unit = unit.freeze();
        self.units.set(self.units.get() + 1);
        let mut set = self.record.engine.sets.start();
        {
            let mut logs = self.logs.borrow_mut();
            let Some(log) = logs.get_mut(slot) else { return };
            let positions = log.next.clone();
            log.next.clear();
            for LogPlace { nr, device, area } in places {
                let known = positions.iter().find(|(member, _)| member == nr);
                let next = known.map_or_else(|| area.first(), |(_, next)| *next);
                let at = area.place(next, unit.len() as u64);
                log.next.push((*nr, at + unit.len() as u64));
                set.submit(*nr, &**device, Request::write(area.at + at, unit.clone(), true));
            }
        }
        for (nr, outcome) in set.finish().await {
            if let Err(error) = outcome.result
                && !self.record.is_unfinished(error)
            {
                let why = format!("its partial parity log could not be written: {error}");
                self.record.note_away(nr, error);
                self.record.fail_nr(nr, &why).await;
            }
        }
    }

    /// Comes back when what the members of these slots have completed is durable, or they have failed.
    async fn flush(self: &Rc<Self>, slots: SmallVec<[Slot; 8]>) {
        // The planted bug takes for durable what members have only acknowledged.
        if slots.is_empty() || planted("log-reused-unflushed") {
            return;
        }
        let flushes = &self.flushes;
        flushes.wanted.borrow_mut().extend(slots);
        let own = flushes.begun.get() + 1;
        if !flushes.busy.replace(true) {
            let log = Rc::clone(self);
            self.record.shard.spawn(async move { log.flush_together().await });
        }
        self.changed.wait_for(|| (flushes.ended.get() >= own).then_some(())).await;
    }

    async fn flush_together(self: Rc<Self>) {
        let flushes = &self.flushes;
        loop {
            let alone = self.record.flushes.alone.take(1).await;
            let slots = flushes.wanted.take();
            if slots.is_empty() {
                flushes.busy.set(false);
                return;
            }
            flushes.begun.set(flushes.begun.get() + 1);
            let which = |member: &Member| {
                member.standing.slot_on_it().is_some_and(|slot| slots.contains(&slot))
                    && member.device.info().volatile_cache
            };
            self.record.flush_alone(alone, which).await;
            if self.record.suspects.any_unrecorded() {
                self.record.record_failures().await;
            }
            flushes.ended.set(flushes.begun.get());
            self.changed.notify_all();
        }
    }
}

fn id(batch: &LogBatch) -> BatchId {
    (batch.slot, batch.shard, batch.nr)
}

impl MemberLog {
    /// Takes what goes into the next unit, which has room for so many bytes of partial parity.
    fn take(&mut self, room: u64) -> Vec<(LogBatch, Answer)> {
        let (mut entries, mut partial, mut taken) = (0, 0, Vec::new());
        while let Some((batch, _)) = self.waiting.front() {
            entries += batch.entries.len();
            partial += batch.entries.iter().map(|entry| entry.partial.len() as u64).sum::<u64>();
            if !taken.is_empty() && (entries > ENTRIES_MAX || partial > room) {
                break;
            }
            self.under_way.push(id(batch));
            taken.extend(self.waiting.pop_front());
        }
        taken
    }
}
