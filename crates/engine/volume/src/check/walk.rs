//! A check under way: what it looks at, and the small steps in which it goes.

use super::one::{Check, Halt};
use super::report::CheckReport;
use crate::pace::STEP_NANOS;
use crate::parts::Parts;
use crate::watch::Watch;
use braid_filesystem::Ino;
use braid_format::volume::keys;
use braid_kv::Pair;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Records that are looked at in one step.
const AT_ONCE: usize = 256;

/// A check under way.
pub(super) struct Walk {
    pub(super) on: Rc<Parts>,
    pub(super) repair: bool,
    pub(super) watch: Rc<Watch>,
    pub(super) report: RefCell<CheckReport>,
    /// Numbers of files from here on were given since it began.
    pub(super) limit: Cell<Ino>,
    pub(super) check: Rc<Check>,
    /// The work done before the current part, the size of that part, and the total.
    parts: Cell<(f64, f64, f64)>,
}

impl Walk {
    pub(super) fn new(on: Rc<Parts>, watch: &Rc<Watch>, check: &Rc<Check>) -> Walk {
        Walk {
            on,
            repair: check.repairs(),
            watch: Rc::clone(watch),
            report: RefCell::default(),
            limit: Cell::new(0),
            check: Rc::clone(check),
            parts: Cell::new((0.0, 0.0, 1.0)),
        }
    }

    /// The work of the parts that are to come.
    pub(super) fn expect(&self, work: f64) {
        self.parts.set((0.0, 0.0, work));
    }

    /// Between two steps: requests of files go first, and while the check is paused nothing happens.
    pub(super) async fn rest(&self) -> Result<(), Halt> {
        let (shard, pace, check) = (&self.on.shard, &self.on.pace, &self.check);
        shard.next_turn().await;
        shard.sleep(pace.rest(shard.now(), || self.on.bricks.has_heads())).await;
        let fresh = check.take_fresh();
        loop {
            check.goes_on().await?;
            match pace.wait_check(shard.now(), fresh) {
                0 => return Ok(()),
                wait => shard.sleep(wait.min(STEP_NANOS)).await,
            }
        }
    }

    /// Notes a problem; `repaired`: it is one that a repair puts right.
    pub(super) fn problem(&self, repaired: bool, text: String) {
        self.report.borrow_mut().problem(repaired && self.repair, text);
    }

    /// Another part begins, which is worth so much of the whole.
    pub(super) fn begin(&self, worth: f64) {
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

    /// Some pairs from `from` on, before `to`, as they are when this comes back, and where to go on.
    pub(super) async fn some_pairs(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), Halt> {
        self.so_many_pairs(from, to, AT_ONCE).await
    }

    /// The same for about `count` pairs.
    pub(super) async fn so_many_pairs(
        &self,
        from: &[u8],
        to: &[u8],
        count: usize,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>), Halt> {
        self.rest().await?;
        let (pairs, next) = self.on.transactions.scanned(from, to, count).await?;
        let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.check.looked_at(bytes as u64);
        Ok((pairs, next))
    }

    /// Looks with `is_right` at a record of each file among those whose keys begin with `tag`, until it says of one that all of
    /// the file are right.
    pub(super) async fn each_owner(
        &self,
        tag: &[u8],
        is_right: impl AsyncFn(&[u8]) -> Result<bool, Halt>,
    ) -> Result<(), Halt> {
        let mut cursor = Some(tag.to_vec());
        let mut right: Option<Ino> = None;
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &keys::after(tag)).await?;
            for (key, _) in pairs {
                let ino = keys::ino_of(&key);
                if (ino.is_none() || ino != right) && is_right(&key).await? {
                    right = ino;
                }
            }
            cursor = next;
        }
        Ok(())
    }

    /// Calls `see` with each pair from `from` on, before `to`, each step's as they are then.
    pub(super) async fn each_pair(
        &self,
        (from, to): (Vec<u8>, Vec<u8>),
        mut see: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Halt> {
        let mut from = Some(from);
        while let Some(start) = from.take() {
            let (pairs, next) = self.some_pairs(&start, &to).await?;
            for (key, value) in &pairs {
                see(key, value);
            }
            from = next;
        }
        Ok(())
    }
}
