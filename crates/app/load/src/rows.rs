//! A write of part of one stripe, cut into row ranges in each of which the same chunks are written.
//!
//! What a write must cost at least follows from this, and the bare loop works by it. The engine cuts
//! in its own way; here nothing has to be fast to be right.

use std::ops::Range;

/// Rows of a stripe, and the run of data chunks that are written over all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Bytes within the chunk.
    pub(crate) rows: Range<u64>,
    /// The data chunks.
    pub(crate) written: Range<usize>,
}

/// The at most four pieces of the bytes `extent` of a stripe's data, in row order; none twice.
pub(crate) fn cut(extent: &Range<u64>, chunk: u64) -> impl Iterator<Item = Rows> {
    let (first, last) = (extent.start / chunk, (extent.end - 1) / chunk);
    let (head, tail) = (extent.start % chunk, (extent.end - 1) % chunk + 1);
    let edges = if first == last {
        [head, head, tail, tail]
    } else {
        [0, head.min(tail), head.max(tail), chunk]
    };
    let one_chunk = first == last;
    (0..3).filter_map(move |at| {
        let rows = edges[at]..edges[at + 1];
        if rows.is_empty() {
            return None;
        }
        // The first chunk is written from `head` on, the last one up to `tail`.
        let from = if one_chunk || rows.start >= head { first } else { first + 1 };
        let to = if one_chunk || rows.end <= tail { last + 1 } else { last };
        (from < to).then_some(Rows { rows, written: from as usize..to as usize })
    })
}

/// How parity of such rows is brought up to date with the fewest bytes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Everything is written.
    Full,
    /// Old data of what is written, and old parity.
    ReadModify,
    /// The data that is not written.
    Reconstruct,
}

/// The way for `written` of `data` chunks with `parity` parity chunks, and the chunks to read.
pub(crate) fn way(written: usize, data: usize, parity: usize) -> (Way, usize) {
    let others = data - written;
    if others == 0 {
        (Way::Full, 0)
    } else if written + parity < others {
        (Way::ReadModify, written + parity)
    } else {
        (Way::Reconstruct, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_each_written_byte_once_and_no_other() {
        let (chunk, data) = (8, 4);
        for start in 0..chunk * data {
            for end in start + 1..=chunk * data {
                let mut seen = vec![0; (chunk * data) as usize];
                for piece in cut(&(start..end), chunk) {
                    for k in piece.written.clone() {
                        for row in piece.rows.clone() {
                            seen[k * chunk as usize + row as usize] += 1;
                        }
                    }
                }
                for (at, count) in (0..).zip(seen) {
                    assert_eq!(count, i32::from((start..end).contains(&at)), "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn the_way_reads_the_fewest_chunks() {
        assert_eq!(way(4, 4, 1), (Way::Full, 0));
        assert_eq!(way(1, 4, 1), (Way::ReadModify, 2));
        assert_eq!(way(2, 4, 1), (Way::Reconstruct, 2));
        assert_eq!(way(1, 2, 1), (Way::Reconstruct, 1));
        assert_eq!(way(1, 6, 2), (Way::ReadModify, 3));
    }
}
