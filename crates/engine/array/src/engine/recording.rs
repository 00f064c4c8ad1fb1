//! Records of the consistency policy that a write waits for: it enters at once where they are there, else the home shard is
//! asked for them.

use crate::consistency::{Entered, Policy, WriteInFlight};
use crate::engine::Engine;
use crate::engine::home::Question;
use crate::metadata::bitmap::{BitmapNr, Shape};
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

    fn may_write(&self) -> Result<(), IoError> {
        let view = self.view();
        if view.broken {
            return Err(IoError::new(IoErrorKind::Lost));
        }
        if view.read_only || self.is_stopping() {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        Ok(())
    }

    /// Writes from now on are recorded in another bitmap; without one by "active" alone.
    pub(crate) fn record_in(&self, bitmap: Option<(BitmapNr, Shape)>) {
        self.consistency.change_to(Policy::of(&self.shard, bitmap));
    }
}
