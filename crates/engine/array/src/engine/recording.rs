//! The bits of the bitmap that a write needs: entered at once where they are armed, else asked for on the home shard.

use crate::engine::Engine;
use crate::engine::home::Question;
use crate::metadata::bitmap::intent::{Entered, Intent};
use crate::metadata::bitmap::{BitmapNr, Shape};
use crate::state::extent::Extent;
use braid_device::{IoError, IoErrorKind};
use std::rc::Rc;

impl Engine {
    /// Enters a write of part of a unit when nothing has to be waited for.
    #[inline]
    pub(crate) fn try_enter(&self, unit: u64, extent: Extent) -> Option<Entered> {
        let intent = self.intent.borrow();
        let bits = intent.try_enter(&intent.range(&self.geometry, unit, extent))?;
        Some(intent.entered(bits))
    }

    /// Enters a write of part of a unit once its bits are durable.
    pub(crate) async fn enter(
        self: &Rc<Engine>,
        unit: u64,
        extent: Extent,
    ) -> Result<Entered, IoError> {
        loop {
            if let Some(entered) = self.try_enter(unit, extent) {
                return Ok(entered);
            }
            self.may_write()?;
            let intent = Rc::clone(&self.intent.borrow());
            let range = &intent.range(&self.geometry, unit, extent);
            let refusals = intent.refusals();
            if intent.want(range) {
                let (engine, intent) = (Rc::clone(self), Rc::clone(&intent));
                // It runs after the tasks that are runnable now, so their bits go with it.
                self.shard.spawn(async move { engine.ask_for_bits(&intent).await });
            }
            intent.until_decided(range).await;
            if intent.refusals() == refusals {
                continue;
            }
            if let Some(entered) = self.try_enter(unit, extent) {
                return Ok(entered);
            }
            self.may_write()?;
            // The bitmap was replaced meanwhile: ask the new one.
            if Rc::ptr_eq(&intent, &self.intent.borrow()) {
                return Err(IoError::new(IoErrorKind::Refused));
            }
        }
    }

    async fn ask_for_bits(self: &Rc<Engine>, intent: &Intent) {
        let bits = intent.take_wanted();
        let answer = self.ask(Question::Arm(intent.nr, bits.clone()));
        intent.answer(&bits, answer.await == Some(true));
    }

    /// Writes from now on are recorded in another bitmap; without a shape in none.
    pub(crate) fn record_in(&self, bitmap: Option<(BitmapNr, Shape)>) {
        let intent = match bitmap {
            Some((nr, shape)) => Intent::new(&self.shard, nr, shape),
            None => Intent::none(&self.shard),
        };
        let old = self.intent.replace(Rc::new(intent));
        let mut earlier = self.earlier_intents.borrow_mut();
        earlier.retain(|intent| intent.strong_count() > 0);
        earlier.push(Rc::downgrade(&old));
    }

    /// [`Intent::give_up`] of bitmap `nr`. `None` when writes are in flight that began before it, and
    /// therefore hold none of its bits.
    pub(crate) fn give_up_bits(&self, nr: BitmapNr, all: bool) -> Option<Vec<u32>> {
        let intent = self.intent.borrow();
        if self.earlier_intents.borrow().iter().any(|intent| intent.strong_count() > 0) {
            return None;
        }
        Some(if intent.nr == nr { intent.give_up(all) } else { Vec::new() })
    }
}
