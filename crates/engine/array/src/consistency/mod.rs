//! The order on disk: what is durable before members are written, so that redundancy can be made to hold again after a crash: md's
//! `consistency_policy`.
//!
//! Each write of a unit passes four gates, and each gate is one function:
//!
//! | gate | in | `resync` | `bitmap` | `ppl` | `journal` |
//! |---|---|---|---|---|---|
//! | *enter*, before it waits for anything else | [`Consistency::try_enter`] | nothing | the bits over it are set on all members | nothing | nothing |
//! | *begin*, with its rows locked | [`Consistency::try_begin`] | the superblocks say "active" | the same | the same | the same; it is widened to whole blocks of the journal |
//! | *before members*: its parity is there, and no member knows of it | [`Consistency::before_members`] | nothing | nothing | its partial parity is durable on the member that holds the parity | all of it is durable in the journal |
//! | *release*: the members have it | what the gates gave is dropped: [`Permit`], [`WriteInFlight`], [`Entered`] | may be marked clean | bits may be cleared | once it is flushed its place in the log may be used again | the same |
//!
//! Levels without redundancy have the policy `none`: nothing of theirs can disagree, and their writes do not come here.
//! Nor do those of jobs: they make redundancy match what is on the members, and what a crash cuts short is done again.
//!
//! | file | subject |
//! |---|---|
//! | `policy` | the policies |
//! | `activity` | "active" in the superblocks, and the writes under way meanwhile |
//! | `outgoing` | a write as the third gate sees it: block by block, member by member |
//! | `ppl` | what is logged for a write, and the writes that wait for that |
//! | `journal` | the same for a write journal |
//!
//! A write that has to wait asks the home shard through `engine/recording`. Nothing here does I/O.

mod activity;
pub(crate) mod journal;
pub(crate) mod outgoing;
mod policy;
pub(crate) mod ppl;

pub(crate) use self::activity::WriteInFlight;
pub(crate) use self::policy::{Entered, Policy};

use self::activity::Activity;
use self::outgoing::{Outgoing, Part};
use self::policy::Logged;
use self::ppl::BatchNr;
use crate::metadata::bitmap::BitmapNr;
use crate::state::extent::Extent;
use crate::state::geometry::Geometry;
use crate::state::view::View;
use braid_format::journal::BLOCK;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The policy of one array on one shard; see the module's documentation.
pub(crate) struct Consistency {
    policy: RefCell<Rc<Policy>>,
    /// Those that are not in effect any more, while writes hold on to them.
    earlier: RefCell<Vec<Weak<Policy>>>,
    activity: Rc<Activity>,
}

/// Members may be given a write. Held until they have it, and only while the array counts as being written.
pub(crate) struct Permit<'a> {
    logged: Option<Logged>,
    writing: PhantomData<&'a WriteInFlight>,
}

impl Permit<'_> {
    /// That of a write that nothing is logged for.
    pub(crate) const FREE: Self = Permit { logged: None, writing: PhantomData };

    /// That of a write of a batch that the log has.
    pub(crate) fn logged(policy: Rc<Policy>, batch: BatchNr) -> Self {
        Permit { logged: Some(Logged { policy, batch }), writing: PhantomData }
    }

    /// Some member did not take the write: what the log has of it stays until `writing` ends, and with it what is done about
    /// that.
    pub(crate) fn keep_with(self, writing: &WriteInFlight) {
        if let Some(logged) = self.logged {
            writing.keep(logged);
        }
    }
}

impl Consistency {
    pub(crate) fn new(policy: Policy) -> Consistency {
        Consistency {
            policy: RefCell::new(Rc::new(policy)),
            earlier: RefCell::default(),
            activity: Rc::default(),
        }
    }

    /// The policy in effect.
    pub(crate) fn policy(&self) -> Rc<Policy> {
        Rc::clone(&self.policy.borrow())
    }

    /// Enters a write of part of a unit; `None` when it has to wait for that.
    #[inline(always)]
    pub(crate) fn try_enter(
        &self,
        geometry: &Geometry,
        unit: u64,
        extent: Extent,
    ) -> Option<Entered> {
        Policy::try_enter(&self.policy.borrow(), geometry, unit, extent)
    }

    /// Begins a write whose rows are locked; `None` when the superblocks do not say "active" yet.
    #[inline]
    pub(crate) fn try_begin(&self) -> Option<WriteInFlight> {
        self.activity.try_begin()
    }

    /// The parity of `write`, which has begun as `_writing`, is computed: its blocks may be given to the members of `view`;
    /// `None` when something has to be logged before that. When the permit is dropped the members have the blocks.
    ///
    /// A policy that logs what is about to be written has all of it here, once, and nothing on the members yet.
    #[inline]
    pub(crate) fn before_members<'a>(
        &self,
        view: &View,
        _writing: &'a WriteInFlight,
        write: &impl Outgoing,
    ) -> Option<Permit<'a>> {
        debug_assert!(self.activity.is_active(), "a write before the superblocks say \"active\"");
        debug_assert!(
            self.covers(view.geometry_of(write.unit()), write),
            "a write without its bits in the bitmap"
        );
        match &**self.policy.borrow() {
            Policy::Resync | Policy::Bitmap(_) => Some(Permit::FREE),
            Policy::Ppl(_) | Policy::Journal(_) => None,
        }
    }

    /// What is logged of a write is written before anything of it is logged anew: its parts by rows, when it is too large
    /// to be logged at once. `None`: it goes as it is.
    #[inline]
    pub(crate) fn in_parts<'a, W: Outgoing>(
        &self,
        view: &View,
        write: &'a W,
    ) -> Option<SmallVec<[Part<'a, W>; 1]>> {
        let parts: SmallVec<[Range<u64>; 1]> = match &**self.policy.borrow() {
            Policy::Ppl(log) => log.parts(write),
            Policy::Journal(journal) => journal.parts(view.geometry_of(write.unit()), write),
            Policy::Resync | Policy::Bitmap(_) => return None,
        };
        if parts.len() <= 1 {
            return None;
        }
        Some(parts.into_iter().map(|rows| Part { whole: write, rows }).collect())
    }

    /// Of each row only chunks that stand side by side may be written together, since an entry of the log has one range.
    #[inline]
    pub(crate) fn wants_neighbours(&self) -> bool {
        matches!(&**self.policy.borrow(), Policy::Ppl(_))
    }

    /// Bytes of the blocks that writes are to be made of, when that is more than the array's own.
    #[inline]
    pub(crate) fn block(&self) -> Option<u64> {
        matches!(&**self.policy.borrow(), Policy::Journal(_)).then_some(BLOCK as u64)
    }

    /// The policy has recorded this write, as far as it records any.
    fn covers(&self, geometry: &Geometry, write: &impl Outgoing) -> bool {
        let policy = self.policy.borrow();
        // Writes from before the policy in effect hold nothing of it.
        self.any_earlier()
            || write.extents().all(|extent| policy.covers(geometry, write.unit(), extent))
    }

    /// Some write that entered under an earlier policy has not ended.
    pub(crate) fn any_earlier(&self) -> bool {
        self.earlier.borrow().iter().any(|policy| policy.strong_count() > 0)
    }

    /// Writes that come from now on enter under another policy.
    pub(crate) fn change_to(&self, policy: Policy) {
        let old = self.policy.replace(Rc::new(policy));
        let mut earlier = self.earlier.borrow_mut();
        earlier.retain(|policy| policy.strong_count() > 0);
        earlier.push(Rc::downgrade(&old));
    }

    /// Gives up bits of bitmap `nr` that no write is under: those without one since the last call, or with `all` every
    /// one. `None` when writes are in flight that began before it, and therefore hold none of its bits.
    pub(crate) fn give_up_bits(&self, nr: BitmapNr, all: bool) -> Option<Vec<u32>> {
        if self.any_earlier() {
            return None;
        }
        Some(match &**self.policy.borrow() {
            Policy::Bitmap(intent) if intent.nr == nr => intent.give_up(all),
            _ => Vec::new(),
        })
    }

    /// Control says: the superblocks are marked active now.
    pub(crate) fn set_active(&self) {
        self.activity.set_active();
    }

    /// Control asks whether the array may be marked clean: true, and no write begins any more, when none is in flight;
    /// with `only_if_idle` also none since the last question.
    pub(crate) fn try_deactivate(&self, only_if_idle: bool) -> bool {
        self.activity.try_deactivate(only_if_idle)
    }
}

#[cfg(test)]
mod tests {
    use super::outgoing::Block;
    use super::*;
    use crate::metadata::bitmap::Shape;
    use crate::testing;
    use braid_layout::{Layout, Level, Spec};

    const CHUNK: u32 = 64 << 10;

    fn geometry() -> Geometry {
        let spec = Spec {
            level: Level::Raid5,
            layout: 2,
            chunk_size: CHUNK.into(),
            raid_disks: 3,
            component_size: 8 << 20,
            member_sizes: Vec::new(),
        };
        Geometry::new(Level::Raid5, 2, Layout::new(&spec).unwrap(), 512, 8 << 20, 1)
    }

    fn bitmap(nr: BitmapNr) -> Policy {
        Policy::of(&testing::shard(), Some((nr, Shape::new(CHUNK, 128))))
    }

    /// Has the bits that a write asked for set.
    fn record(consistency: &Consistency, unit: u64, extent: Extent) {
        let Policy::Bitmap(intent) = &*consistency.policy() else { panic!("no bitmap") };
        intent.want(&geometry().intent_range(unit, extent));
        intent.answer(&intent.take_wanted(), true);
    }

    /// A write of part of unit 3.
    struct Part(Extent);

    impl Outgoing for Part {
        fn unit(&self) -> u64 {
            3
        }

        fn extents(&self) -> impl Iterator<Item = Extent> {
            std::iter::once(self.0)
        }

        fn blocks(&self) -> impl Iterator<Item = Block> {
            std::iter::empty()
        }

        fn fua(&self) -> bool {
            false
        }
    }

    const EXTENT: Extent = Extent { start: 4096, end: 8192 };

    #[test]
    fn by_resync_writes_enter_at_once_and_by_a_bitmap_when_their_bits_are_set() {
        let geometry = geometry();
        let consistency = Consistency::new(Policy::Resync);
        assert!(consistency.try_enter(&geometry, 3, EXTENT).is_some());
        assert!(consistency.covers(&geometry, &Part(EXTENT)));
        let consistency = Consistency::new(bitmap(1));
        assert!(consistency.try_enter(&geometry, 3, EXTENT).is_none());
        record(&consistency, 3, EXTENT);
        assert!(!consistency.covers(&geometry, &Part(EXTENT)), "nobody holds the bit");
        let entered = consistency.try_enter(&geometry, 3, EXTENT).unwrap();
        assert!(consistency.covers(&geometry, &Part(EXTENT)));
        assert_eq!(consistency.give_up_bits(1, true), Some(vec![]));
        drop(entered);
        assert_eq!(consistency.give_up_bits(1, true), Some(vec![3]));
    }

    #[test]
    fn no_bit_is_given_up_while_a_write_from_before_the_bitmap_is_in_flight() {
        let geometry = geometry();
        let consistency = Consistency::new(Policy::Resync);
        let before = consistency.try_enter(&geometry, 3, EXTENT).unwrap();
        consistency.change_to(bitmap(1));
        record(&consistency, 3, EXTENT);
        assert_eq!(consistency.give_up_bits(1, true), None);
        assert!(consistency.covers(&geometry, &Part(EXTENT)), "it holds nothing of the bitmap");
        drop(before);
        assert!(!consistency.covers(&geometry, &Part(EXTENT)));
        assert_eq!(consistency.give_up_bits(2, true), Some(vec![]), "of another bitmap");
        assert_eq!(consistency.give_up_bits(1, true), Some(vec![3]));
    }
}
