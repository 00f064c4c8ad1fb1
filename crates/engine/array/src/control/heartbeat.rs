//! The heartbeat of a running array: by it other hosts see that it is in use ([`crate::assemble::heartbeat`]), and this one
//! sees when another has taken it all the same.
//!
//! Each beat looks before it writes, on each member by itself, so that one that hangs does not keep the others from
//! beating. While no member takes beats, so that others may soon believe that nobody uses the array, requests wait; where all
//! members are gone they fail, as they would without a heartbeat, since members may never come back. When
//! another host's beat stands where this one's did, the array takes no more writes here: what both would write mixes. On a
//! member that has taken no beat yet it may be left from an earlier use: there it counts when it changes, and is written over
//! when it has not for as long as a start would wait.
//!
//! A member that is gone for a whole beat while others answer is failed, as it would be by the next request to it: on an idle
//! array there may be none for hours.

use crate::control::record::Record;
use crate::metadata::heartbeat::{self, FirstBeat, host, interval, look, patience, place, send};
use crate::metadata::reservations::Held;
use crate::state::view::MemberNr;
use crate::status::HeartbeatStatus;
use braid_device::{Device, IoError, IoErrorKind};
use braid_format::heartbeat::{Found, Heartbeat};
use braid_shard::Nanos;
use braid_shard::plant::planted;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Interval at which the end asks whether beats under way have ended, in nanoseconds.
const ASK_EVERY: Nanos = 1_000_000;

/// The meaning of another's beat on a member.
enum Stranger {
    /// Somebody else uses the array.
    Lives,
    /// Nobody does any more.
    Left,
    /// That is not known yet.
    Unknown,
}

/// See the module's documentation.
pub(super) struct Heart {
    record: Rc<Record>,
    /// The beat that was sent last; `None` without a heartbeat.
    beat: RefCell<Option<Heartbeat>>,
    /// Members that have yet to take a beat.
    under_way: RefCell<Vec<MemberNr>>,
    /// When each member took its last, by the shard's clock.
    taken: RefCell<Vec<(MemberNr, Nanos)>>,
    /// Beats of others on members that have taken none, and since when they have been there.
    strangers: RefCell<Vec<(MemberNr, Heartbeat, Nanos)>>,
    begun: Cell<Nanos>,
    /// Members that were gone when the last beat came to them, and since when they have been.
    gone: RefCell<Vec<(MemberNr, Nanos)>>,
    /// Requests wait until a member takes a beat.
    holding: Cell<bool>,
    /// They fail instead.
    refusing: Cell<bool>,
    /// No more beats.
    ended: Cell<bool>,
    /// Another process of this host goes on with the beat and the reservations.
    handed_over: Cell<bool>,
}

impl Heart {
    /// `first`: the first beat, and the names of the members that have taken it.
    pub(super) fn new(record: &Rc<Record>, first: Option<FirstBeat>) -> Rc<Heart> {
        let now = record.shard.now();
        let (beat, names) = first.map(|first| (first.beat, first.on)).unzip();
        let members = &record.roster.borrow().members;
        let has_it = |name: &String| names.iter().flatten().any(|taken| taken == name);
        let taken = members.iter().filter(|member| has_it(&member.name));
        let taken = taken.map(|member| (member.nr, now)).collect();
        Rc::new(Heart {
            record: Rc::clone(record),
            beat: RefCell::new(beat),
            under_way: RefCell::default(),
            taken: RefCell::new(taken),
            strangers: RefCell::default(),
            begun: Cell::new(now),
            gone: RefCell::default(),
            holding: Cell::new(false),
            refusing: Cell::new(false),
            ended: Cell::new(false),
            handed_over: Cell::new(false),
        })
    }

    /// Beats until the end, where there is a heartbeat.
    pub(super) fn start(self: &Rc<Self>) {
        let Some(interval) = self.beat.borrow().as_ref().map(interval) else { return };
        let own = Rc::clone(self);
        self.record.shard.spawn(async move {
            loop {
                own.record.shard.sleep(interval).await;
                if own.ended.get() || own.record.lost().is_some() {
                    // Refused, not held for ever.
                    own.hold(false).await;
                    break;
                }
                own.beat_once();
                own.check_taken(interval).await;
            }
        });
    }

    /// `None` without a heartbeat.
    pub(super) fn status(&self) -> Option<HeartbeatStatus> {
        let beat = self.beat.borrow();
        let beat = beat.as_ref()?;
        let since = self.record.shard.now().saturating_sub(3 * interval(beat));
        let taken = self.taken.borrow();
        let roster = self.record.roster.borrow();
        let beats = |nr: MemberNr| taken.iter().any(|(known, at)| *known == nr && *at >= since);
        let members = roster.members.iter().filter(|member| beats(member.nr)).count();
        Some(HeartbeatStatus { interval: beat.interval, members, lost: self.record.lost() })
    }

    /// The array is about to be stopped for another process of this host: others are still to be kept off.
    pub(super) fn hand_over(&self) {
        self.handed_over.set(true);
    }

    /// The array has been stopped: other hosts need not wait for this one.
    pub(super) async fn end(&self) {
        self.ended.set(true);
        while !self.under_way.borrow().is_empty() {
            self.record.shard.sleep(ASK_EVERY).await;
        }
        let Some(beat) = self.beat.borrow().clone().filter(|_| self.record.lost().is_none()) else {
            return;
        };
        if self.handed_over.get() {
            return;
        }
        for (_, device, at) in self.posts() {
            heartbeat::end(&self.record.shard, &device, at, &beat).await;
        }
        for disk in self.held() {
            disk.leave().await;
        }
    }

    fn held(&self) -> Vec<Held> {
        let roster = self.record.roster.borrow();
        roster.members.iter().filter_map(|member| member.reservation.clone()).collect()
    }

    fn posts(&self) -> Vec<(MemberNr, Rc<dyn Device>, u64)> {
        let roster = self.record.roster.borrow();
        let members = roster.members.iter();
        let serving = members.filter(|member| !member.is_faulty() && member.given_up.is_none());
        serving
            .filter_map(|member| {
                let at = place(&member.superblock)?;
                Some((member.nr, member.device.as_device(), at))
            })
            .collect()
    }

    /// The next beat, to all members that have taken the last.
    fn beat_once(self: &Rc<Self>) {
        if let Some(beat) = &mut *self.beat.borrow_mut() {
            beat.sequence += 1;
            beat.time = (self.record.ctx.wall_clock)();
        }
        for (nr, device, at) in self.posts() {
            if self.under_way.borrow().contains(&nr) {
                continue;
            }
            self.under_way.borrow_mut().push(nr);
            let own = Rc::clone(self);
            self.record.shard.spawn(async move {
                own.send_to(nr, device, at).await;
                own.under_way.borrow_mut().retain(|known| *known != nr);
            });
        }
    }

    /// Looks, and beats where nobody else does.
    async fn send_to(&self, nr: MemberNr, device: Rc<dyn Device>, at: u64) {
        let shard = &self.record.shard;
        let found = look(shard, &device, at).await;
        self.note_gone(nr, found.as_ref().is_err_and(|error| error.kind == IoErrorKind::Gone));
        // A member that fails otherwise does so by other requests, too.
        let Ok(found) = found else { return };
        let Some(beat) = self.beat.borrow().clone() else { return };
        let is_other = |found: &Heartbeat| found.array == beat.array && found.owner != beat.owner;
        match found {
            Found::Foreign => return,
            Found::Beat(other) if is_other(&other) && !planted("beat-over-another") => {
                match self.judge(nr, &other) {
                    Stranger::Left => {}
                    Stranger::Unknown => return,
                    Stranger::Lives => {
                        let host = host(&other);
                        let name = self.record.member_name(nr);
                        let why = format!("{host} has taken it, by its heartbeat on {name}");
                        return self.lose(why).await;
                    }
                }
            }
            Found::Nothing | Found::Beat(_) => {}
        }
        if self.record.lost().is_some() {
            return;
        }
        let sent = send(shard, &device, at, &beat).await;
        if sent.is_err_and(|error| self.record.is_taken(nr, error)) {
            return;
        }
        if sent.is_ok() {
            self.note_taken(nr);
            if self.holding.get() {
                tracing::warn!(
                    "array {}: its heartbeat is taken again, requests go on",
                    self.record.name
                );
            }
            self.hold(false).await;
        }
    }

    fn note_gone(&self, nr: MemberNr, is_gone: bool) {
        let mut gone = self.gone.borrow_mut();
        let since = gone.iter().find(|(known, _)| *known == nr).map(|(_, since)| *since);
        gone.retain(|(known, _)| *known != nr);
        if is_gone {
            gone.push((nr, since.unwrap_or_else(|| self.record.shard.now())));
        }
    }

    fn note_taken(&self, nr: MemberNr) {
        let mut taken = self.taken.borrow_mut();
        taken.retain(|(known, _)| *known != nr);
        taken.push((nr, self.record.shard.now()));
        self.strangers.borrow_mut().retain(|(known, ..)| *known != nr);
    }

    /// The meaning of another's beat on member `nr`.
    fn judge(&self, nr: MemberNr, other: &Heartbeat) -> Stranger {
        if self.taken.borrow().iter().any(|(known, _)| *known == nr) {
            return Stranger::Lives;
        }
        if !other.beating {
            return Stranger::Left;
        }
        let now = self.record.shard.now();
        let mut strangers = self.strangers.borrow_mut();
        match strangers.iter().find(|(known, ..)| *known == nr) {
            Some((_, seen, _)) if seen != other => Stranger::Lives,
            Some((_, _, since)) if now > since + patience(other) => Stranger::Left,
            Some(_) => Stranger::Unknown,
            None => {
                strangers.push((nr, other.clone(), now));
                Stranger::Unknown
            }
        }
    }

    /// Has new requests wait, or go on.
    pub(super) async fn hold(&self, on: bool) {
        if !on {
            self.refuse(false).await;
        }
        if self.holding.replace(on) == on {
            return;
        }
        match on {
            true => self.record.engines.hold_new_requests().await,
            false => self.record.engines.end_hold().await,
        }
    }

    /// Has requests that would wait fail, or wait.
    async fn refuse(&self, on: bool) {
        if self.refusing.replace(on) != on {
            self.record.engines.ask(move |engine| engine.splits.hold.refuse(on)).await;
        }
    }

    /// Others wait for two beats and a second before they take an array for unused: well before that nothing may begin here
    /// that they would not see.
    async fn check_taken(&self, interval: Nanos) {
        if self.posts().is_empty() {
            // No member is left that could take one, and none whose content another host could change meanwhile: what waits
            // is refused or served as it would be without a heartbeat.
            return self.hold(false).await;
        }
        let last = self.taken.borrow().iter().map(|(_, at)| *at).max();
        let silent = self.record.shard.now() - last.unwrap_or_else(|| self.begun.get());
        let due = silent > interval + interval / 2;
        if due && !self.holding.get() && !self.record.end.has_begun() {
            tracing::warn!(
                "array {}: no member has taken its heartbeat for {:.1} s; requests wait until one does, since another host \
                 may start it meanwhile",
                self.record.name,
                silent as f64 / 1e9
            );
            self.hold(true).await;
        }
        if self.holding.get() {
            let is_gone = |(nr, ..): &(MemberNr, Rc<dyn Device>, u64)| {
                self.gone.borrow().iter().any(|(known, _)| known == nr)
            };
            self.refuse(self.posts().iter().all(is_gone)).await;
        }
        self.fail_gone(interval).await;
    }

    /// Fails members that have been gone for a beat which others have taken. Where all are gone it is the way to them, and they
    /// may come back with all that they had.
    async fn fail_gone(&self, interval: Nanos) {
        if self.record.end.has_begun() {
            return;
        }
        let posts = self.posts();
        let gone = self.gone.borrow().clone();
        for (nr, since) in gone {
            let later = |(known, at): &(MemberNr, Nanos)| *known != nr && *at > since + interval;
            let others_answer = self.taken.borrow().iter().any(later);
            if others_answer && posts.iter().any(|(known, ..)| *known == nr) {
                let error = IoError::new(IoErrorKind::Gone);
                self.record.note_away(nr, error);
                self.record.fail_nr_unless_needed(nr, &error.to_string(), true).await;
            }
        }
    }

    async fn lose(&self, why: String) {
        self.ended.set(true);
        if self.record.lose(why) {
            self.record.tell_lost().await;
            self.hold(false).await;
        }
    }
}
