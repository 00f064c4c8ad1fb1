//! The answer to a client that asks which parts of a range are holes.

use std::ops::Range;

use braid_device::Holes;

use crate::protocol::constants::{STATE_HOLE, STATE_ZERO};

/// Extents in one reply; a client that wants more asks again from where they end.
const EXTENTS_MAX: usize = 256;

/// The extents from `bytes.start` on: their lengths, and their states. At least one, all multiples of `block`, and not beyond
/// `bytes`, which is no longer than a request says (and so below 4 GiB).
pub(super) fn extents_of(
    bytes: &Range<u64>,
    holes: &Holes,
    block: u64,
    only_one: bool,
) -> Vec<(u32, u32)> {
    let max = if only_one { 1 } else { EXTENTS_MAX };
    // A client may count in bytes, and a hole begin within a block: what is there of it is data.
    let end = match bytes.end <= holes.until {
        true => bytes.end,
        false => bytes.start.max(holes.until - holes.until % block),
    };
    let mut extents = Vec::new();
    let mut at = bytes.start;
    for hole in holes.within(at..end) {
        let start = hole.start.next_multiple_of(block).max(at);
        let stop = if hole.end == bytes.end { hole.end } else { hole.end - hole.end % block };
        if start >= stop {
            continue;
        }
        for (to, state) in [(start, 0), (stop, STATE_HOLE | STATE_ZERO)] {
            if to > at && extents.len() < max {
                extents.push(((to - at) as u32, state));
                at = to;
            }
        }
    }
    if at < end && extents.len() < max {
        extents.push(((end - at) as u32, 0));
    }
    if extents.is_empty() {
        // Nothing is known: data, which is a safe answer (proto.md, `NBD_CMD_BLOCK_STATUS`).
        extents.push(((bytes.end - bytes.start) as u32, 0));
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLE: u32 = STATE_HOLE | STATE_ZERO;

    fn extents(bytes: Range<u64>, until: u64, ranges: &[Range<u64>], one: bool) -> Vec<(u32, u32)> {
        extents_of(&bytes, &Holes { until, ranges: ranges.to_vec() }, 512, one)
    }

    fn hole(start: u64, end: u64) -> Range<u64> {
        start..end
    }

    #[test]
    fn holes_and_data_come_in_turn_and_cover_what_was_asked_for() {
        let holes = [0..1024, 2048..4096];
        assert_eq!(
            extents(0..8192, 8192, &holes, false),
            [(1024, HOLE), (1024, 0), (2048, HOLE), (4096, 0)]
        );
        assert_eq!(extents(512..3072, 8192, &holes, false), [(512, HOLE), (1024, 0), (1024, HOLE)]);
        assert_eq!(extents(512..3072, 8192, &holes, true), [(512, HOLE)]);
        assert_eq!(extents(4096..8192, 8192, &holes, false), [(4096, 0)]);
    }

    #[test]
    fn what_is_not_known_is_left_for_the_next_request_or_data_when_it_is_all() {
        assert_eq!(extents(0..8192, 4096, &[hole(0, 1024)], false), [(1024, HOLE), (3072, 0)]);
        assert_eq!(extents(0..8192, 0, &[], false), [(8192, 0)]);
        assert_eq!(extents(0..8192, 100, &[], false), [(8192, 0)]);
    }

    #[test]
    fn parts_of_blocks_are_data() {
        assert_eq!(
            extents(0..4096, 4096, &[hole(100, 1500)], false),
            [(512, 0), (512, HOLE), (3072, 0)]
        );
        assert_eq!(extents(0..4096, 4096, &[hole(100, 600)], false), [(4096, 0)]);
        // A client that counts in bytes has its bounds where it likes.
        assert_eq!(extents(3..1000, 4096, &[hole(0, 4096)], false), [(509, 0), (488, HOLE)]);
    }

    #[test]
    fn very_many_holes_are_told_in_several_replies() {
        let holes: Vec<Range<u64>> = (0..1000).map(|nr| nr * 1024..nr * 1024 + 512).collect();
        let told = extents(0..1_024_000, 1_024_000, &holes, false);
        assert_eq!(told.len(), EXTENTS_MAX);
        assert!(told.iter().all(|(length, _)| *length == 512));
    }
}
