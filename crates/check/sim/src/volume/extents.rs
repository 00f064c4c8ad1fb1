//! Which write each byte of a file is from: ranges in order, holes between them.

use super::stamp::{Version, ZEROES};
use std::collections::BTreeMap;
use std::ops::Range;

/// A sparse map from bytes to versions; bytes that are not in it are zeroes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(BTreeMap<u64, (u64, Version)>);

impl Extents {
    /// `range` is from `version` from now on; zeroes make a hole.
    pub fn set(&mut self, range: Range<u64>, version: Version) {
        if range.is_empty() {
            return;
        }
        let before = self.0.range(..range.start).next_back().map(|(start, of)| (*start, *of));
        if let Some((start, (end, old))) = before
            && end > range.start
        {
            self.0.insert(start, (range.start, old));
            if end > range.end {
                self.0.insert(range.end, (end, old));
            }
        }
        let within: Vec<u64> = self.0.range(range.clone()).map(|(start, _)| *start).collect();
        for start in within {
            if let Some((end, old)) = self.0.remove(&start)
                && end > range.end
            {
                self.0.insert(range.end, (end, old));
            }
        }
        if version != ZEROES {
            self.0.insert(range.start, (range.end, version));
        }
    }

    /// `range` in pieces of one version each, holes among them, in order.
    pub fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Version)> {
        let mut pieces = Vec::new();
        if range.is_empty() {
            return pieces;
        }
        let mut at = range.start;
        let first =
            self.0.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        for (start, (end, version)) in self.0.range(first..range.end) {
            if *end <= at {
                continue;
            }
            if *start > at {
                pieces.push((at..*start, ZEROES));
            }
            let piece = (*start).max(at)..(*end).min(range.end);
            at = piece.end;
            pieces.push((piece, *version));
        }
        if at < range.end {
            pieces.push((at..range.end, ZEROES));
        }
        pieces
    }

    /// The ranges that are not holes.
    pub fn written(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, (end, _))| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn extents_are_what_an_array_of_versions_would_be() {
        for seed in 0..200 {
            let rng = Rng::new(seed, 0);
            let (mut extents, mut plain) = (Extents::default(), [ZEROES; 64]);
            for _ in 0..30 {
                let start = rng.range(0..64);
                let range = start..rng.range(start..65);
                let version = rng.range(0..4) as Version;
                extents.set(range.clone(), version);
                plain[range.start as usize..range.end as usize].fill(version);
                let from = rng.range(0..64);
                let asked = from..rng.range(from..65);
                let mut given = Vec::new();
                for (piece, version) in extents.pieces(asked.clone()) {
                    given.extend(piece.map(|_| version));
                }
                assert_eq!(given, plain[asked.start as usize..asked.end as usize]);
            }
        }
    }
}
