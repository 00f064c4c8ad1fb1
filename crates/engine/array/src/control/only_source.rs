//! Members that alone can give some block, because blocks of others are recorded as bad.
//!
//! One that says nothing is waited for, and a stop keeps it for whatever reason it is to be failed: the superblocks stay as
//! they are, and the next start has all that was ever made durable. One that gives errors while the array serves fails like
//! any other: a few blocks are lost then, and the array goes on.
//!
//! Does not know why a member is to be failed.

use crate::control::members::{Member, Roster, Standing};
use crate::state::bad_blocks::BadBlocks;
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
    bad: Vec<Option<Option<Arc<BadBlocks>>>>,
}

impl Roster {
    /// The array can do without members as a whole, but some block that the others list as bad can be had only while
    /// member `nr` is there. Those of `without` do not count.
    pub(crate) fn is_only_source(
        &self,
        geometry: &Geometry,
        nr: MemberNr,
        without: &[MemberNr],
    ) -> bool {
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
                *place = Some(member.bad_component_bytes(geometry));
            }
        }
        Sources { geometry, bad }.needs(*own)
    }
}

impl Sources<'_> {
    /// Some block that is bad on another can be had with the member of slot `own`, and not without it.
    fn needs(&self, own: Slot) -> bool {
        let others = self.bad.iter().enumerate().filter(|(slot, _)| *slot != own);
        let lists = others.filter_map(|(slot, list)| Some((slot, list.as_ref()?.as_ref()?)));
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
                let within = at % chunk;
                len = len.min(chunk - within);
                let nr = raid10.logical(slot, at).map(|logical| logical / chunk);
                let copies = nr
                    .into_iter()
                    .flat_map(|nr| (0..raid10.copy_count()).map(move |copy| raid10.copy(nr, copy)));
                copies.map(|at| Place { slot: at.slot, offset: at.offset + within }).collect()
            }
            layout => (0..layout.slots()).map(|slot| Place { slot, offset: at }).collect(),
        };
        for place in &places {
            if let Some(Some(Some(list))) = self.bad.get(place.slot) {
                let end = list.next_change(&(place.offset..place.offset + len));
                len = end - place.offset;
            }
        }
        (places, len)
    }

    fn is_the_last(&self, own: Slot, places: &Places, len: u64) -> bool {
        let gives = |place: &&Place| match self.bad.get(place.slot) {
            Some(Some(Some(list))) => !list.overlaps(&(place.offset..place.offset + len)),
            Some(Some(None)) => true,
            _ => false,
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
