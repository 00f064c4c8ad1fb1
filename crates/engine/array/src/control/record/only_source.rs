//! Members that alone can give some block, because blocks of others are recorded as bad.
//!
//! One that says nothing is waited for, and a stop keeps it for whatever reason it is to be failed: the superblocks stay as
//! they are, and the next start has all that was ever made durable. One that gives errors while the array serves fails like
//! any other: a few blocks are lost then, and the array goes on.
//!
//! Does not know why a member is to be failed.

use crate::control::record::members::{Member, Roster, Standing};
use crate::state::bad_blocks::BadBlocks;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_layout::{Layout, Place, Slot};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

type Places = SmallVec<[Place; 8]>;

/// Members that hold their slots, with their bad blocks.
struct Sources<'a> {
    geometry: &'a Geometry,
    /// By slot, in component bytes; `None`: nobody that counts.
    bad: Vec<Option<Arc<BadBlocks>>>,
}

impl Roster {
    /// The array can do without members as a whole, but some block that the others list as bad can be had only while
    /// member `nr` is there. Those of `without` do not count.
    pub(crate) fn is_only_source(
        &self,
        geometries: &Geometries,
        nr: MemberNr,
        without: &[MemberNr],
    ) -> bool {
        // Whichever of two shapes the block is of.
        self.is_only_source_in(geometries.whole(), nr, without)
            || !geometries.is_one() && self.is_only_source_in(geometries.before(), nr, without)
    }

    fn is_only_source_in(&self, geometry: &Geometry, nr: MemberNr, without: &[MemberNr]) -> bool {
        let Some(Standing::InSync(own)) = self.member(nr).map(|member| &member.standing) else {
            return false;
        };
        let mut bad = vec![None; geometry.slots()];
        let counts = |member: &&Member| {
            let lost = member.given_up.is_some() || without.contains(&member.nr);
            member.nr == nr || !lost
        };
        for member in self.members.iter().filter(counts) {
            if let Standing::InSync(slot) = member.standing
                && let Some(place) = bad.get_mut(slot)
            {
                *place = Some(member.bad_component_bytes(geometry).unwrap_or_default());
            }
        }
        Sources { geometry, bad }.needs(*own)
    }
}

impl Sources<'_> {
    fn list(&self, slot: Slot) -> Option<&BadBlocks> {
        self.bad.get(slot)?.as_deref()
    }

    /// Some block that is bad on another can be had with the member of slot `own`, and not without it.
    fn needs(&self, own: Slot) -> bool {
        let others = self.bad.iter().enumerate().filter(|(slot, _)| *slot != own);
        let lists = others.filter_map(|(slot, list)| Some((slot, list.as_ref()?)));
        for (slot, list) in lists {
            for range in list.ranges() {
                let mut at = range.start;
                while at < range.end {
                    let (places, within) = self.alike(slot, at..range.end);
                    if self.is_the_last(own, &places, within) {
                        return true;
                    }
                    at += within;
                }
            }
        }
        false
    }

    /// The places of which some have to be there for what `bytes` of a slot hold, and how many bytes from there on each
    /// of them can give, or cannot.
    fn alike(&self, slot: Slot, bytes: Range<u64>) -> (Places, u64) {
        let (at, mut len) = (bytes.start, bytes.end - bytes.start);
        let places: Places = match &self.geometry.layout {
            Layout::Raid10(raid10) => {
                let chunk = raid10.chunk_size();
                let Some(logical) = raid10.logical(slot, at) else {
                    // Nothing lives there, nor in what is left of that chunk.
                    let row = at.saturating_sub(raid10.start());
                    return (Places::new(), len.min(chunk - row % chunk));
                };
                let (nr, within) = raid10.locate(logical);
                len = len.min(chunk - within);
                let copies = (0..raid10.copy_count()).map(|copy| raid10.copy(nr, copy));
                copies.map(|at| Place { slot: at.slot, offset: at.offset + within }).collect()
            }
            layout => (0..layout.slots()).map(|slot| Place { slot, offset: at }).collect(),
        };
        for place in &places {
            if let Some(list) = self.list(place.slot) {
                let end = list.next_change(&(place.offset..place.offset + len));
                len = end - place.offset;
            }
        }
        (places, len)
    }

    fn is_the_last(&self, own: Slot, places: &Places, len: u64) -> bool {
        let gives = |place: &&Place| {
            let bytes = place.offset..place.offset + len;
            self.list(place.slot).is_some_and(|list| !list.overlaps(&bytes))
        };
        let good = places.iter().filter(gives).count();
        let takes_part = places.iter().filter(gives).any(|place| place.slot == own);
        let enough = match &self.geometry.layout {
            Layout::Parity(parity) => parity.data_chunks(),
            _ => 1,
        };
        takes_part && good == enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Level, Spec};
    use proptest::prelude::*;

    const CHUNK: u64 = 4096;
    const COMPONENT: u64 = 6 * CHUNK;
    const STEP: u64 = 1024;

    fn geometry(level: Level, number: u32, slots: usize) -> Geometry {
        let spec = Spec {
            level,
            layout: number,
            chunk_size: CHUNK,
            raid_disks: slots,
            component_size: COMPONENT,
            member_sizes: Vec::new(),
        };
        Geometry::new(level, number, Layout::new(&spec).unwrap(), 512, COMPONENT, 1)
    }

    /// By slot: nobody, or what is bad there, in steps.
    fn lists(slots: usize) -> impl Strategy<Value = Vec<Option<Vec<Range<u64>>>>> {
        let range = (0..COMPONENT / STEP, 1..6_u64)
            .prop_map(|(start, len)| start * STEP..(start + len).min(COMPONENT / STEP) * STEP);
        let list = prop::collection::vec(range, 0..3);
        prop::collection::vec(prop::option::weighted(0.85, list), slots)
    }

    /// [`Sources::needs`], asked of each step of the array by itself.
    fn step_by_step(sources: &Sources<'_>, own: Slot) -> bool {
        let good = |slot: Slot, at: u64| match &sources.bad[slot] {
            Some(list) => !list.overlaps(&(at..at + STEP)),
            None => false,
        };
        let there = |slot: Slot| slot != own && sources.bad[slot].is_some();
        let needed = |places: Vec<(Slot, u64)>, enough: usize| {
            let left = places.iter().filter(|(slot, at)| *slot != own && good(*slot, *at)).count();
            let its = places.iter().any(|(slot, at)| *slot == own && good(own, *at));
            let bad = places.iter().any(|(slot, at)| there(*slot) && !good(*slot, *at));
            its && bad && left + 1 == enough
        };
        let (slots, layout) = (sources.bad.len(), &sources.geometry.layout);
        match layout {
            Layout::Raid10(raid10) => (0..raid10.array_size()).step_by(STEP as usize).any(|at| {
                let copies = (0..raid10.copy_count()).map(|copy| raid10.copy(at / CHUNK, copy));
                needed(copies.map(|place| (place.slot, place.offset + at % CHUNK)).collect(), 1)
            }),
            Layout::Parity(parity) => (0..COMPONENT).step_by(STEP as usize).any(|at| {
                needed((0..slots).map(|slot| (slot, at)).collect(), parity.data_chunks())
            }),
            _ => (0..COMPONENT)
                .step_by(STEP as usize)
                .any(|at| needed((0..slots).map(|slot| (slot, at)).collect(), 1)),
        }
    }

    proptest! {
        #[test]
        fn a_member_is_needed_for_a_block_that_nobody_else_gives(lists in lists(4), own in 0..4_usize) {
            let near_far_offset = [0x102, 0x103, 0x201, 0x1_0201];
            let mut all = vec![(Level::Raid1, 0), (Level::Raid5, 2), (Level::Raid6, 2)];
            all.extend(near_far_offset.map(|number| (Level::Raid10, number)));
            for (level, number) in all {
                let geometry = geometry(level, number, 4);
                let lists = lists.iter().cloned();
                let bad = lists.map(|list| list.map(|list| Arc::new(BadBlocks::new(list))));
                let mut sources = Sources { geometry: &geometry, bad: bad.collect() };
                sources.bad[own].get_or_insert_default();
                prop_assert_eq!(sources.needs(own), step_by_step(&sources, own), "{} {:#x}", level, number);
            }
        }
    }
}
