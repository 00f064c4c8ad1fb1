//! Rows of a stripe that some members cannot give, and the parts of the rows over each of which the same
//! members are missing: latent errors of several members in different rows cost no row.
//!
//! Does not know what is done with a part.

use crate::engine::Engine;
use crate::state::view::View;
use braid_device::{IoError, Op, Request};
use braid_layout::Slot;
use braid_shard::BufMut;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;

/// Slots that cannot give some rows.
pub(crate) type Missing = SmallVec<[Slot; 4]>;

/// Unreadable ranges of one member, in bytes from the first row on.
pub(crate) type Hole = (Slot, Vec<Range<usize>>);

/// Rows `0..len` in parts, ascending, with the slots that are missing over all of each.
pub(crate) fn parts(len: usize, holes: &[Hole]) -> Vec<(Range<usize>, Missing)> {
    let ranges = || holes.iter().flat_map(|(_, ranges)| ranges.iter());
    let mut cuts: Vec<usize> = ranges().flat_map(|range| [range.start, range.end]).collect();
    cuts.extend([0, len]);
    cuts.retain(|cut| *cut <= len);
    cuts.sort_unstable();
    cuts.dedup();
    let mut parts: Vec<(Range<usize>, Missing)> = Vec::new();
    for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
        let lacks = |(_, ranges): &&Hole| ranges.iter().any(|range| range.contains(start));
        let missing: Missing = holes.iter().filter(lacks).map(|(slot, _)| *slot).collect();
        match parts.last_mut() {
            Some((rows, before)) if *before == missing => rows.end = *end,
            _ => parts.push((*start..*end, missing)),
        }
    }
    parts
}

/// Reads component bytes `at ..` of a slot block by block into `into`, whose length is a multiple of the block.
/// Gives the rows that cannot be read; there `into` is left as it was.
///
/// # Errors
/// That of a member which is gone.
pub(crate) async fn read_around(
    engine: &Engine,
    view: &View,
    slot: Slot,
    at: u64,
    into: &mut BufMut,
) -> Result<Vec<Range<usize>>, IoError> {
    let block = engine.info.logical_block as usize;
    let mut unreadable: Vec<Range<usize>> = Vec::new();
    let Some((device, data_offset)) = view.member(slot) else {
        unreadable.push(0..into.len());
        return Ok(unreadable);
    };
    let mut set = engine.sets.start();
    for nr in 0..into.len() / block {
        let buf = engine.shard.pool().get(block);
        let offset = data_offset + at + (nr * block) as u64;
        set.submit(nr as u32, &**device, Request::read(offset, buf));
    }
    let mut lacks = vec![false; into.len() / block];
    let mut gone = None;
    for (nr, outcome) in set.finish().await {
        let nr = nr as usize;
        match (outcome.result, outcome.op) {
            (Ok(()), Op::Read(bufs)) if !planted("mended-with-its-neighbours") => {
                if let Some(buf) = bufs.first() {
                    into[nr * block..(nr + 1) * block].copy_from_slice(buf);
                }
            }
            (result, _) => {
                gone = gone.or(result.err().filter(|error| error.means_gone()));
                // One of the numbers that were submitted.
                lacks[nr] = true;
            }
        }
    }
    if let Some(error) = gone {
        return Err(error);
    }
    for nr in (0..lacks.len()).filter(|nr| lacks[*nr]) {
        let rows = nr * block..(nr + 1) * block;
        match unreadable.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => unreadable.push(rows),
        }
    }
    Ok(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_lacks_the_same_slots_all_over() {
        let holes = [(2, vec![0..4, 8..12]), (5, vec![4..8, 10..16])];
        let parts = parts(20, &holes);
        let expected: Vec<(Range<usize>, &[Slot])> = vec![
            (0..4, &[2]),
            (4..8, &[5]),
            (8..10, &[2]),
            (10..12, &[2, 5]),
            (12..16, &[5]),
            (16..20, &[]),
        ];
        assert_eq!(parts.len(), expected.len());
        for ((rows, missing), (same_rows, same)) in parts.iter().zip(expected) {
            assert_eq!((rows, missing.as_slice()), (&same_rows, same));
        }
    }

    #[test]
    fn rows_without_holes_are_one_part() {
        assert_eq!(parts(8, &[]), [(0..8, Missing::new())]);
        assert_eq!(parts(8, &[(1, vec![])]), [(0..8, Missing::new())]);
    }
}
