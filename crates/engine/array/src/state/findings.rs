//! The findings of checks and repairs, place by place: where redundancy does not match, which member is wrong where
//! that can be known, and blocks that could not be read or mended.
//!
//! Owns the bounded list and its counts. Does not know how a verdict is reached.
//!
//! Invariant: the list holds the first [`PLACES_MAX`] places in the order of the array; the others are counted.

use crate::state::view::MemberNr;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Places that are listed.
pub const PLACES_MAX: usize = 64;

/// The verdict about one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The member holds something else than all others agree on: P and Q name it, or most copies do.
    Wrong,
    /// Redundancy does not match, and nothing tells which member is wrong.
    Unknown,
    /// More than one member of the stripe is wrong, so that P and Q name none.
    Several,
    /// The members could not be read; the others have what they held.
    Unreadable,
    /// The members could not be read, and the others are not enough to compute what they held.
    Lost,
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Array bytes that are concerned; all of the stripe's where a parity block is, or any may be.
    pub array: Range<u64>,
    /// Component bytes of the members.
    pub component: Range<u64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The members that it was found of, ascending; empty where they are not known.
    pub members: SmallVec<[MemberNr; 2]>,
    /// It was written again and read back as it should be.
    pub mended: bool,
}

impl Finding {
    /// `other` goes on where this one ends, and says the same.
    fn goes_on(&self, other: &Finding) -> bool {
        let alike = |a: &Finding| (a.verdict, a.members.clone(), a.mended);
        self.component.end == other.component.start
            && alike(self) == alike(other)
            && (self.array.end == other.array.start || self.array == other.array)
    }

    fn bytes(&self) -> u64 {
        self.component.end - self.component.start
    }
}

/// The findings of one job, or of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// In the order of the array.
    pub places: Vec<Finding>,
    /// Places that are not listed.
    pub more: u64,
    /// Component bytes that were wrong, by member.
    pub wrong: BTreeMap<MemberNr, u64>,
    /// Component bytes of places that could be mended and were not, or not durably enough to be read back.
    pub unmended: u64,
    /// Component bytes that no member has any more.
    pub lost: u64,
}

impl Findings {
    /// Nothing was found.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a place. `corrects`: the job mends what it finds, so that what is not mended is worth a word.
    pub(crate) fn add(&mut self, finding: Finding, corrects: bool) {
        let bytes = finding.bytes();
        match finding.verdict {
            Verdict::Lost => self.lost += bytes,
            Verdict::Unreadable => self.unmended += if finding.mended { 0 } else { bytes },
            _ => self.unmended += if corrects && !finding.mended { bytes } else { 0 },
        }
        if finding.verdict == Verdict::Wrong {
            for nr in &finding.members {
                *self.wrong.entry(*nr).or_default() += bytes;
            }
        }
        self.list(finding);
    }

    /// Takes over what another part of the job has found.
    pub(crate) fn take(&mut self, other: Findings) {
        for (nr, bytes) in other.wrong {
            *self.wrong.entry(nr).or_default() += bytes;
        }
        self.more += other.more;
        self.unmended += other.unmended;
        self.lost += other.lost;
        other.places.into_iter().for_each(|finding| self.list(finding));
    }

    fn list(&mut self, finding: Finding) {
        let key = |f: &Finding| (f.array.start, f.component.start, f.verdict);
        let at = self.places.partition_point(|known| key(known) <= key(&finding));
        self.places.insert(at, finding);
        self.join_with_next(at);
        if at > 0 {
            self.join_with_next(at - 1);
        }
        if self.places.len() > PLACES_MAX {
            self.places.truncate(PLACES_MAX);
            self.more += 1;
        }
    }

    fn join_with_next(&mut self, at: usize) {
        let Some([before, after]) = self.places.get_mut(at..at + 2) else { return };
        if before.goes_on(after) {
            before.array.end = after.array.end;
            before.component.end = after.component.end;
            self.places.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(at: u64, member: MemberNr) -> Finding {
        Finding {
            array: at * 8..at * 8 + 8,
            component: at * 8..at * 8 + 8,
            verdict: Verdict::Wrong,
            members: SmallVec::from_slice(&[member]),
            mended: true,
        }
    }

    #[test]
    fn neighbours_that_say_the_same_are_one_place_in_any_order() {
        for order in [[1, 2, 3], [3, 2, 1], [1, 3, 2]] {
            let mut all = Findings::default();
            order.into_iter().for_each(|at| all.add(wrong(at, 7), true));
            let places: Vec<_> = all.places.iter().map(|place| place.array.clone()).collect();
            assert_eq!(places, [Range { start: 8, end: 32 }]);
            assert_eq!(all.wrong.get(&7), Some(&24));
        }
        let mut all = Findings::default();
        all.add(wrong(1, 7), true);
        all.add(wrong(2, 8), true);
        assert_eq!(all.places.len(), 2);
    }

    #[test]
    fn the_first_places_are_listed_and_the_others_counted() {
        let (mut whole, mut parts) = (Findings::default(), Findings::default());
        for at in (0..100).rev() {
            whole.add(wrong(at * 2, 1), true);
            let mut part = Findings::default();
            part.add(wrong(at * 2, 1), true);
            parts.take(part);
        }
        assert_eq!(whole, parts);
        assert_eq!((whole.places.len(), whole.more), (PLACES_MAX, 36));
        assert_eq!(whole.places.last().map(|place| place.array.start), Some(63 * 16));
        assert_eq!(whole.wrong.get(&1), Some(&800));
    }
}
