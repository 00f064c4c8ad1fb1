//! Members that say nothing while the array is being stopped: the stop waits for none of them for long.
//!
//! Every member is asked for a block of its superblock, again and again until the end. One that answers neither that nor
//! anything else for a while is given up. It fails where the array can do without it. Where it cannot, the array is left as it
//! is on the members, and the stop says so. A member that gives what it is asked for is slow at the most, since a flush
//! may take long: it has the time that `member_timeout` says.
//!
//! A member that is an array may be silent because of a member of its own. It is told that it is waited for, looks for that
//! one in the same way, and has more time here, so that the lowest array that can spare a member does. Where it cannot spare
//! its own it says so, and counts as silent itself.
//!
//! Invariant: looks are counted, not time. A process that was not let run has not looked for an answer either.

use crate::control::unanswered::Unanswered;
use crate::control::unanswered::questions::Question;
use crate::state::view::MemberNr;
use braid_device::meter::Metered;
use braid_device::{Device, Request};
use braid_format::SECTOR;
use braid_shard::Nanos;
use std::cell::Cell;
use std::rc::Rc;

/// Between two looks, in nanoseconds.
const LOOK_EVERY: Nanos = 50_000_000;
/// A member that answers nothing for so many looks is given up: a second.
const SILENT_LOOKS: u32 = 20;
/// So many more for each array that is stacked in it: three quarters of a second.
const LOOKS_PER_LAYER: u32 = 15;
/// Members for which no more than so many looks are left may be silent for the same reason.
const QUIET_LOOKS: u32 = SILENT_LOOKS / 2;
/// An array above that has not said for so many looks that it waits does not wait any more.
const ABOVE_LOOKS: u32 = 2 * ASK_AFTER;
/// Looks from one question to the next.
const ASK_AFTER: u32 = 10;

impl Unanswered {
    /// Goes on beside a stop, until it is over.
    pub(crate) async fn watch_the_end(self: Rc<Self>) {
        self.questions.begin();
        while !self.record.end.is_over() {
            let (silent, quiet) = self.look_for_silence().await;
            // Where they are too many for the array all are given up together, and then none is recorded as failed.
            let needed: Vec<MemberNr> =
                silent.iter().copied().filter(|nr| !self.spares(*nr, &quiet)).collect();
            if needed.is_empty() || silent.len() == quiet.len() {
                self.record.roster.borrow_mut().needs(&needed);
                self.give_up_silent(&silent, "the array was being stopped");
            }
        }
    }

    /// An array above is being stopped and waits for this one.
    pub(crate) fn watch_for_above(self: &Rc<Self>) {
        self.questions.above.set(ABOVE_LOOKS);
        if self.record.end.has_begun() || self.questions.watched.replace(true) {
            return;
        }
        self.questions.begin();
        let own = Rc::clone(self);
        self.record.shard.spawn(async move {
            let left = || own.questions.above.get();
            while left() > 0 && !own.record.end.has_begun() {
                own.questions.above.set(left() - 1);
                let (mut silent, quiet) = own.look_for_silence().await;
                // It is not being stopped itself, so it waits for members that it cannot spare. Who stands above may
                // be able to spare all of it.
                let all = silent.len();
                silent.retain(|nr| own.spares(*nr, &quiet));
                own.record.engine.home.reports.set_waits_for_silent(silent.len() < all);
                if !own.record.end.has_begun() {
                    own.give_up_silent(&silent, "an array above was being stopped");
                }
            }
            own.record.engine.home.reports.set_waits_for_silent(false);
            own.questions.watched.set(false);
        });
    }

    /// The array can do without member `nr` and all of `quiet`.
    pub(super) fn spares(&self, nr: MemberNr, quiet: &[MemberNr]) -> bool {
        self.record.roster.borrow().spares(&self.record.geometries(), nr, quiet)
    }

    /// Asks, and after a while gives the members that have said nothing for too long, and with them those that are about
    /// to have.
    async fn look_for_silence(self: &Rc<Self>) -> (Vec<MemberNr>, Vec<MemberNr>) {
        self.ask_members();
        self.record.shard.sleep(LOOK_EVERY).await;
        self.silent_members().await
    }

    /// The members are about to be closed: waits until all have answered, or were given up.
    pub(crate) async fn no_questions_any_more(&self) {
        self.questions.over.set(true);
        let all = || self.questions.asked.borrow().iter().all(|question| !question.open.get());
        self.record.changed.wait_for(|| all().then_some(())).await;
    }

    fn ask_members(self: &Rc<Self>) {
        if self.questions.over.get() {
            return;
        }
        let roster = self.record.roster.borrow();
        let members = roster.members.iter().filter(|member| {
            !member.is_faulty() && member.given_up.is_none() && member.device.may_hang()
        });
        for member in members {
            let mut asked = self.questions.asked.borrow_mut();
            let known = asked.iter().find(|question| question.nr == member.nr).cloned();
            let question = known.unwrap_or_else(|| {
                let question = Rc::new(Question {
                    nr: member.nr,
                    open: Cell::new(false),
                    answers: Cell::new(0),
                    silent: Cell::new(0),
                    looks: Cell::new(ASK_AFTER),
                });
                asked.push(Rc::clone(&question));
                question
            });
            if question.looks.get() % ASK_AFTER == 0 {
                member.device.hurry();
            }
            if !question.open.get() && question.looks.get() >= ASK_AFTER {
                let at = member.superblock.super_offset.saturating_mul(SECTOR as u64);
                self.ask_member(question, Rc::clone(&member.device), at);
            }
        }
    }

    fn ask_member(self: &Rc<Self>, question: Rc<Question>, device: Rc<Metered>, at: u64) {
        question.open.set(true);
        question.looks.set(0);
        let len = device.info().logical_block.max(SECTOR as u32) as usize;
        let own = Rc::clone(self);
        self.record.shard.spawn(async move {
            let buf = own.record.shard.pool().get(len);
            // An error is an answer, too.
            let _ = own.record.engine.sets.one(&*device, Request::read(at, buf)).await;
            drop(device);
            question.open.set(false);
            own.record.changed.notify_all();
        });
    }

    /// See [`Unanswered::look_for_silence`].
    async fn silent_members(&self) -> (Vec<MemberNr>, Vec<MemberNr>) {
        let engines = self.record.engines.ask(|engine| engine.members.answers()).await;
        let roster = self.record.roster.borrow();
        let asked = self.questions.asked.borrow();
        let (mut silent, mut quiet) = (Vec::new(), Vec::new());
        for question in asked.iter() {
            let Some(member) = roster.member(question.nr) else { continue };
            let others = engines.iter().flatten().flatten().filter(|(nr, _)| *nr == question.nr);
            let answers =
                others.fold(member.device.answers(), |sum, (_, more)| sum.wrapping_add(*more));
            let said = question.answers.replace(answers) != answers || !question.open.get();
            question.looks.set(question.looks.get().saturating_add(1));
            question.silent.set(if said { 0 } else { question.silent.get().saturating_add(1) });
            let patience = SILENT_LOOKS + LOOKS_PER_LAYER * member.device.layers();
            if member.device.waits_for_silent() {
                // It has looked for long enough itself.
                question.silent.set(patience);
            }
            if question.silent.get() + QUIET_LOOKS < patience || member.given_up.is_some() {
                continue;
            }
            quiet.push(question.nr);
            if question.silent.get() >= patience {
                silent.push(question.nr);
            }
        }
        (silent, quiet)
    }

    /// All of them before any is recorded: what survives without each of them may not without all.
    fn give_up_silent(self: &Rc<Self>, silent: &[MemberNr], meanwhile: &str) {
        let why = format!("it answered nothing while {meanwhile}");
        for nr in silent {
            tracing::error!(
                "array {}: {}: {why}; the stop does not wait for it",
                self.record.name,
                self.record.member_name(*nr)
            );
            self.record.give_up(*nr, &why);
        }
        for nr in silent.iter().copied() {
            let (own, why) = (Rc::clone(self), why.clone());
            self.record.shard.spawn(async move {
                own.record.fail_nr(nr, &why).await;
            });
        }
    }
}
