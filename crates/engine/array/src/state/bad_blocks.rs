//! A list of blocks that are bad on one member, and what can be asked of it.
//!
//! Does not know whose it is, nor what its numbers count: control keeps sectors of the member, as its log
//! does; a view has component bytes.
//!
//! Invariant: the ranges are sorted, not empty, and do not touch.

use std::ops::Range;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks(Vec<Range<u64>>);

impl BadBlocks {
    /// The union of `ranges`, which may overlap and come in any order.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> BadBlocks {
        let mut list: Vec<Range<u64>> =
            ranges.into_iter().filter(|range| !range.is_empty()).collect();
        list.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(list.len());
        for range in list {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        BadBlocks(merged)
    }

    /// Nothing is bad.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// The sum of all bad ranges, in the unit of the list.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The first range that ends after `at`, and those behind it.
    fn from(&self, at: u64) -> &[Range<u64>] {
        let first = self.0.partition_point(|range| range.end <= at);
        self.0.get(first..).unwrap_or_default()
    }

    /// Some of `range` is bad.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let first = self.from(range.start).first();
        !range.is_empty() && first.is_some_and(|bad| bad.start < range.end)
    }

    /// All of `range` is bad.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let bad = self.from(range.start).first();
        range.is_empty() || bad.is_some_and(|bad| bad.start <= range.start && range.end <= bad.end)
    }

    /// All that is bad here is bad in `other` too.
    pub fn is_within(&self, other: &BadBlocks) -> bool {
        self.0.iter().all(|range| other.covers(range))
    }

    /// Where, after the start of `range`, it changes whether blocks are bad; the end of `range` when it
    /// does not change before.
    pub fn next_change(&self, range: &Range<u64>) -> u64 {
        let change = match self.from(range.start).first() {
            Some(bad) if bad.start > range.start => bad.start,
            Some(bad) => bad.end,
            None => range.end,
        };
        change.min(range.end)
    }

    /// The list with `range` bad as well.
    #[must_use]
    pub fn with(&self, range: Range<u64>) -> BadBlocks {
        BadBlocks::new(self.0.iter().cloned().chain(std::iter::once(range)))
    }

    /// The list with nothing of `range` bad.
    #[must_use]
    pub fn without(&self, range: &Range<u64>) -> BadBlocks {
        if range.is_empty() {
            return self.clone();
        }
        let left = self.0.iter().flat_map(|bad| {
            let before = bad.start..bad.end.min(range.start);
            let behind = bad.start.max(range.end)..bad.end;
            [before, behind]
        });
        BadBlocks::new(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec(
            (0u64..60, 0u64..12).prop_map(|(start, len)| start..start + len),
            0..8,
        )
    }

    fn set(list: &BadBlocks) -> BTreeSet<u64> {
        list.ranges().iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn a_list_is_the_set_of_what_is_bad(list in ranges(), start in 0u64..70, len in 0u64..15) {
            let bad = BadBlocks::new(list.clone());
            let all: BTreeSet<u64> = list.into_iter().flatten().collect();
            prop_assert_eq!(set(&bad), all.clone());
            prop_assert_eq!(bad.total(), all.len() as u64);
            for pair in bad.ranges().windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            let range = start..start + len;
            let within = range.clone().filter(|at| all.contains(at)).count() as u64;
            prop_assert_eq!(bad.overlaps(&range), within > 0);
            prop_assert_eq!(bad.covers(&range), within == len);
            let (more, less) = (bad.with(range.clone()), bad.without(&range));
            prop_assert_eq!(set(&more), all.iter().copied().chain(range.clone()).collect());
            let left: BTreeSet<u64> = all.iter().copied().filter(|at| !range.contains(at)).collect();
            prop_assert_eq!(set(&less), left);
            prop_assert!(less.is_within(&bad) && bad.is_within(&more));
            prop_assert_eq!(bad.is_within(&less), within == 0);
            let change = bad.next_change(&range);
            prop_assert!(len == 0 || (start < change && change <= range.end));
            for at in start..change {
                prop_assert_eq!(all.contains(&at), all.contains(&start));
            }
            prop_assert!(change >= range.end || all.contains(&change) != all.contains(&start));
        }
    }
}
