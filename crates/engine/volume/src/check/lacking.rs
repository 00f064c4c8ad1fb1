//! Stripes that have fewer copies than asked, or copies that miss something: of files, and of what snapshots see.

use super::one::Halt;
use super::walk::Walk;
use crate::extents::Stripe;
use crate::files::Files;
use braid_format::volume::keys;
use std::rc::Rc;

impl Walk {
    /// Counts a stripe of a file if a copy of it misses something that another has.
    pub(super) fn count_lacking(&self, stripe: &Stripe, copies: u8) {
        let written = stripe.together().written;
        let lacks = |copy: u8| copy >= stripe.rows() || written & !stripe.get(copy).written != 0;
        if written != 0 && (0..copies).any(lacks) {
            self.report.borrow_mut().lacking += 1;
        }
    }

    /// Counts those of which snapshots see such copies. A repair notes that copies are to be made.
    pub(super) async fn count_lacking_seen(&self, files: &Rc<Files>) -> Result<(), Halt> {
        let on = &self.on;
        if !on.record.has_copies() {
            return Ok(());
        }
        let prefix = keys::SAVED_EXTENTS;
        let mut cursor = on.snapshots.any().then(|| prefix.to_vec());
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::after(prefix)).await?;
            for (ino, group, id) in pairs.iter().filter_map(|(key, _)| keys::saved_extents_of(key))
            {
                if !on.extents.is_first_saved(ino, group, id).await? {
                    continue;
                }
                // Damage is told where it is seen.
                let lacking = files.lacking_in_snapshots(ino, group).await.unwrap_or_default();
                self.report.borrow_mut().lacking += lacking.len() as u64;
            }
            cursor = next;
        }
        if self.repair && self.report.borrow().lacking > 0 {
            on.record.note_incomplete();
        }
        Ok(())
    }
}
