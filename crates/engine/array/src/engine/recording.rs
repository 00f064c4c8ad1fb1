//! Records of the consistency policy that a write waits for: it enters at once where they are there, else the home shard is
//! asked for them.

use crate::consistency::journal::JournalBatch;
use crate::consistency::outgoing::Outgoing;
use crate::consistency::ppl::{self, BatchNr, LogBatch};
use crate::consistency::{Entered, Permit, Policy, WriteInFlight};
use crate::engine::Engine;
use crate::engine::home::Question;
use crate::engine::recorded::Recorded;
use crate::state::extent::Extent;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind};
use std::rc::Rc;

impl Engine {
    /// Enters a write of part of a unit when nothing has to be waited for.
    #[inline]
    pub(crate) fn try_enter(&self, view: &View, unit: u64, extent: Extent) -> Option<Entered> {
        self.consistency.try_enter(view.geometry_of(unit), unit, extent)
    }

    /// Enters a write of part of a unit once what is recorded for it is durable.
    ///
    /// # Errors
    /// As [`Engine::begin_write`].
    pub(crate) async fn enter(
        self: &Rc<Engine>,
        unit: u64,
        extent: Extent,
    ) -> Result<Entered, IoError> {
        loop {
            let view = self.view();
            if let Some(entered) = self.try_enter(&view, unit, extent) {
                return Ok(entered);
            }
            self.may_write()?;
            let policy = self.consistency.policy();
            let Policy::Bitmap(intent) = &*policy else { continue };
            let range = &view.geometry_of(unit).intent_range(unit, extent);
            drop(view);
            let refusals = intent.refusals();
            if intent.want(range) {
                let (engine, policy) = (Rc::clone(self), Rc::clone(&policy));
                // It runs after the tasks that are runnable now, so their bits go with it.
                self.shard.spawn(async move { engine.ask_for_bits(&policy).await });
            }
            intent.until_decided(range).await;
            if intent.refusals() == refusals {
                continue;
            }
            if let Some(entered) = self.try_enter(&self.view(), unit, extent) {
                return Ok(entered);
            }
            self.may_write()?;
            // The bitmap was replaced meanwhile: ask the new one.
            if Rc::ptr_eq(&policy, &self.consistency.policy()) {
                return Err(IoError::new(IoErrorKind::Refused));
            }
        }
    }

    async fn ask_for_bits(self: &Rc<Engine>, policy: &Policy) {
        let Policy::Bitmap(intent) = policy else { return };
        let bits = intent.take_wanted();
        let answer = self.home.ask(Question::Arm(intent.nr, bits.clone()));
        intent.answer(&bits, answer.await == Some(true));
    }

    /// [`begin_write`](Engine::begin_write) when nothing has to be waited for.
    #[inline]
    pub(crate) fn try_begin_write(&self) -> Option<WriteInFlight> {
        self.may_write().ok()?;
        self.consistency.try_begin()
    }

    /// Begins a write: the superblocks say "active" before the first byte is written.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when the array is read-only or stopping, [`IoErrorKind::Lost`]
    /// when too many members have failed.
    pub(crate) async fn begin_write(self: &Rc<Engine>) -> Result<WriteInFlight, IoError> {
        loop {
            self.may_write()?;
            if let Some(writing) = self.try_begin_write() {
                return Ok(writing);
            }
            if self.home.ask(Question::Activate).await != Some(true) {
                self.may_write()?;
                return Err(IoError::new(IoErrorKind::Refused));
            }
        }
    }

    /// Waits until the failures of `view`'s suspects are recorded, if it has any. True when this shard has another view by
    /// then: what has no source in `view` may have one now. Shards learn that a rebuilt member is whole after the
    /// superblocks say so, and meanwhile the member that it was filled from may fail: it is a suspect at once.
    pub(crate) async fn suspects_recorded(&self, view: &Rc<View>) -> bool {
        if view.any_suspect() {
            // No answer means that the array was stopped meanwhile.
            let _ = self.home.ask(Question::Record).await;
        }
        !Rc::ptr_eq(view, &self.view())
    }

    #[inline]
    fn may_write(&self) -> Result<(), IoError> {
        let (broken, read_only) = self.members.look(|view| (view.broken, view.read_only));
        if broken {
            return Err(IoError::new(IoErrorKind::Lost));
        }
        if read_only || self.is_stopping() {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        Ok(())
    }

    /// Writes from now on are recorded in another way.
    pub(crate) fn record_by(&self, recorded: Recorded) {
        self.consistency.change_to(recorded.policy(&self.shard, &self.home.address));
    }

    /// Comes back when the blocks of `write`, which has begun as `writing`, may be given to the members of `view`.
    ///
    /// # Errors
    /// As [`Engine::begin_write`]: what has to be logged cannot be.
    #[inline]
    pub(crate) async fn before_members<'a>(
        self: &Rc<Engine>,
        view: &View,
        writing: &'a WriteInFlight,
        write: &impl Outgoing,
    ) -> Result<Permit<'a>, IoError> {
        match self.consistency.before_members(view, writing, write) {
            Some(permit) => Ok(permit),
            None => match &*self.consistency.policy() {
                Policy::Journal(_) => self.log_all(view, write).await,
                _ => self.log(view, write).await,
            },
        }
    }

    /// Has the partial parity of a write logged.
    #[inline(never)]
    async fn log<'a>(
        self: &Rc<Engine>,
        view: &View,
        write: &impl Outgoing,
    ) -> Result<Permit<'a>, IoError> {
        let policy = self.consistency.policy();
        let Policy::Ppl(log) = &*policy else { return Ok(Permit::FREE) };
        let entries = ppl::entries(view.geometry_of(write.unit()), view, write);
        let Some((slot, entries)) = entries else { return Ok(Permit::FREE) };
        let (nr, first) = log.join(slot, entries);
        let permit = Permit::logged(Rc::clone(&policy), nr);
        if first {
            let (engine, policy) = (Rc::clone(self), Rc::clone(&policy));
            // It runs after the tasks that are runnable now, so what they have to log goes with it.
            self.shard.spawn(async move { engine.ask_to_log(&policy, nr).await });
        }
        if log.until_answered(nr).await {
            return Ok(permit);
        }
        self.may_write()?;
        Err(IoError::new(IoErrorKind::Refused))
    }

    /// Has all of a write logged.
    #[inline(never)]
    async fn log_all<'a>(
        self: &Rc<Engine>,
        view: &View,
        write: &impl Outgoing,
    ) -> Result<Permit<'a>, IoError> {
        let policy = self.consistency.policy();
        let Policy::Journal(journal) = &*policy else { return Ok(Permit::FREE) };
        let rows = journal.rows(view.geometry_of(write.unit()), write);
        if rows.is_empty() {
            return Ok(Permit::FREE);
        }
        let (nr, first) = journal.join(rows);
        let permit = Permit::logged(Rc::clone(&policy), nr);
        if first {
            let (engine, policy) = (Rc::clone(self), Rc::clone(&policy));
            // As above.
            self.shard.spawn(async move { engine.ask_to_journal(&policy, nr).await });
        }
        if journal.until_answered(nr).await {
            return Ok(permit);
        }
        self.may_write()?;
        Err(IoError::new(IoErrorKind::Refused))
    }

    async fn ask_to_journal(self: &Rc<Engine>, policy: &Policy, nr: BatchNr) {
        let Policy::Journal(journal) = policy else { return };
        let Some(rows) = journal.take(nr) else { return };
        let batch = JournalBatch { shard: self.shard.id(), nr, rows };
        let yes = self.home.ask(Question::Journal(batch)).await == Some(true);
        journal.answer(nr, yes);
    }

    async fn ask_to_log(self: &Rc<Engine>, policy: &Policy, nr: BatchNr) {
        let Policy::Ppl(log) = policy else { return };
        let Some((slot, entries)) = log.take(nr) else { return };
        let batch = LogBatch { slot, shard: self.shard.id(), nr, entries };
        let yes = self.home.ask(Question::Log(batch)).await == Some(true);
        log.answer(nr, yes);
    }
}
