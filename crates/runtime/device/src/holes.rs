//! Holes: parts of a device that are known to hold nothing.

use std::future::{Future, ready};
use std::ops::Range;
use std::pin::Pin;

/// The holes of a range of bytes: parts that read as zeroes and take no space below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holes {
    /// `ranges` tells of the bytes below this; nothing is known of those from it on.
    pub until: u64,
    /// In order, none touching another, all below `until`.
    pub ranges: Vec<Range<u64>>,
}

/// Finds [`Holes`], perhaps after a while.
pub type FindHoles = Pin<Box<dyn Future<Output = Holes>>>;

impl Holes {
    /// No hole is known of in `bytes`: it is all data, which is never wrong to say.
    #[must_use]
    pub fn none(bytes: &Range<u64>) -> Holes {
        Holes { until: bytes.end, ranges: Vec::new() }
    }

    /// The answer of whoever knows of none.
    #[must_use]
    pub fn unknown(bytes: &Range<u64>) -> FindHoles {
        Box::pin(ready(Holes::none(bytes)))
    }

    /// Adds a hole behind the others; one that touches the last makes that longer.
    pub fn push(&mut self, hole: Range<u64>) {
        match self.ranges.last_mut() {
            _ if hole.is_empty() => {}
            Some(last) if last.end >= hole.start => last.end = last.end.max(hole.end),
            _ => self.ranges.push(hole),
        }
    }

    /// The holes within `bytes`, cut to it.
    pub fn within(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|hole| hole.end <= bytes.start);
        let rest = self.ranges.get(first..).unwrap_or_default();
        let near = rest.iter().take_while(move |hole| hole.start < bytes.end);
        near.map(move |hole| hole.start.max(bytes.start)..hole.end.min(bytes.end))
    }
}

/// The ranges that are in both lists, which are in order.
#[must_use]
pub fn in_both(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut both, mut one, mut other) =
        (Vec::new(), one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        if start < end {
            both.push(start..end);
        }
        if a.end < b.end {
            one.next()
        } else {
            other.next()
        };
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_that_touch_are_one_and_are_cut_to_what_is_asked_for() {
        let mut holes = Holes::none(&(0..100));
        for hole in [0..10, 10..20, 20..20, 30..40, 50..60] {
            holes.push(hole);
        }
        assert_eq!(holes.ranges, [0..20, 30..40, 50..60]);
        let within = |bytes| holes.within(bytes).collect::<Vec<_>>();
        assert_eq!(within(5..55), [5..20, 30..40, 50..55]);
        assert_eq!(within(20..30), []);
        assert_eq!(within(32..35), std::slice::from_ref(&(32..35)));
        assert_eq!(within(60..100), []);
    }

    #[test]
    fn what_is_in_both_lists_is_in_each() {
        let (one, other) = ([0..10, 20..30, 40..50], [5..25, 28..45, 49..60]);
        assert_eq!(in_both(&one, &other), [5..10, 20..25, 28..30, 40..45, 49..50]);
        assert_eq!(in_both(&one, &[]), []);
        assert_eq!(in_both(&one, &one), one);
    }
}
