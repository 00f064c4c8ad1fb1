//! The passes of a check, one after the other, in small steps.

use crate::under_way::{Check, CheckReport, Halt};
use crate::volume::Volume;
use crate::watch::Watch;
use braid_filesystem::Ino;
use braid_format::volume::keys;
use braid_kv::Pair;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Records that are looked at in one step.
const AT_ONCE: usize = 256;
/// Names and files are about so much work as against one pass over the extents.
const FILES_WORTH: f64 = 2.0;

/// A check under way.
pub(super) struct Walk {
    pub(super) repair: bool,
    pub(super) watch: Rc<Watch>,
    pub(super) report: RefCell<CheckReport>,
    /// Numbers of files from here on were given since it began.
    pub(super) limit: Cell<Ino>,
    check: Rc<Check>,
    /// The work done before the current part, the size of that part, and the total.
    parts: Cell<(f64, f64, f64)>,
}

impl Walk {
    /// Notes a problem; `repaired`: it is one that a repair puts right.
    pub(super) fn problem(&self, repaired: bool, text: String) {
        self.report.borrow_mut().problem(repaired && self.repair, text);
    }

    /// Another part begins, which is worth so much of the whole.
    fn begin(&self, worth: f64) {
        let (before, last, all) = self.parts.get();
        self.parts.set((before + last, worth, all));
        self.at(0.0);
    }

    /// So much of the part under way is done, 0 to 1.
    pub(super) fn at(&self, part: f64) {
        let (before, worth, all) = self.parts.get();
        self.check.set_part((before + worth * part.clamp(0.0, 1.0)) / all);
    }

    /// The progress of a walk over the numbers of files that has reached this one, 0 to 1.
    pub(super) fn part(&self, ino: Ino) -> f64 {
        (ino as f64 / self.limit.get().max(1) as f64).min(1.0)
    }
}

/// Tells changes to a watch, as long as it is there.
struct Watching<'a>(&'a Volume, Rc<Watch>);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.watches.borrow_mut().retain(|watch| !Rc::ptr_eq(watch, &self.1));
    }
}

impl Volume {
    /// Carries a check out.
    ///
    /// # Errors
    /// When metadata cannot be read at all, or the check was ended.
    pub(crate) async fn run_check(self: &Rc<Self>, check: &Rc<Check>) -> Result<CheckReport, Halt> {
        let watch = Rc::new(Watch::default());
        self.watches.borrow_mut().push(Rc::clone(&watch));
        let _watching = Watching(self, Rc::clone(&watch));
        let walk = Walk {
            repair: check.repairs(),
            watch,
            report: RefCell::default(),
            limit: Cell::new(0),
            check: Rc::clone(check),
            parts: Cell::new((0.0, 0.0, 1.0)),
        };
        self.rest_of_check(check).await?;
        // A file made from here on may have no record in the store while names are counted.
        walk.limit.set(self.record.borrow().next_ino);
        self.sync_all().await?;
        self.check_numbers(&walk).await?;
        let windows = self.block_windows();
        walk.parts.set((0.0, 0.0, FILES_WORTH + windows.len() as f64));
        walk.begin(FILES_WORTH);
        self.check_files(&walk).await?;
        self.check_attributes(&walk).await?;
        for (number, window) in windows.into_iter().enumerate() {
            walk.begin(1.0);
            self.check_extents(&walk, window, number == 0).await?;
        }
        if walk.repair {
            self.sync_all().await?;
        }
        self.name_lost(&walk).await?;
        Ok(walk.report.into_inner())
    }

    /// Some pairs from `from` on, before `to`, as they are when this comes back, and where to go on.
    pub(super) async fn some_pairs(
        &self,
        walk: &Walk,
        from: &[u8],
        to: &[u8],
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), Halt> {
        self.so_many_pairs(walk, from, to, AT_ONCE).await
    }

    /// The same for about `count` pairs.
    pub(super) async fn so_many_pairs(
        &self,
        walk: &Walk,
        from: &[u8],
        to: &[u8],
        count: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), Halt> {
        self.rest_of_check(&walk.check).await?;
        let scanned = self.transactions.scan(from, to, count).await;
        let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
        let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        walk.check.looked_at(bytes as u64);
        Ok((pairs, next))
    }

    /// Calls `see` with each pair from `from` on, before `to`, each step's as they are then.
    pub(super) async fn each_pair(
        &self,
        walk: &Walk,
        (from, to): (Vec<u8>, Vec<u8>),
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Halt> {
        let mut from = Some(from);
        while let Some(start) = from.take() {
            let (pairs, next) = self.some_pairs(walk, &start, &to).await?;
            for (key, value) in &pairs {
                see(key, value);
            }
            from = next;
        }
        Ok(())
    }

    /// A new file must not take the number of another.
    async fn check_numbers(&self, walk: &Walk) -> Result<(), Halt> {
        let mut last = None;
        let next = self.record.borrow().next_ino;
        // A file made meanwhile has a record only later, and another number if this one is wrong.
        let range = (keys::inode(next), keys::after(b"I"));
        let walked = self.each_pair(walk, range, |key, _| last = keys::ino_of(key).or(last));
        walked.await?;
        let next = self.record.borrow().next_ino;
        if let Some(last) = last.filter(|last| *last >= next) {
            walk.problem(true, "a new file would take the number of another".into());
            let limit = last.saturating_add(1);
            walk.limit.set(limit);
            if walk.repair {
                self.edit_record(|record| record.next_ino = record.next_ino.max(limit));
            }
        }
        Ok(())
    }
}
