//! Segments: cutting one contiguous write of a stripe into row ranges in each of which the same
//! set of chunks is written.

use crate::view::View;
use smallvec::SmallVec;
use std::ops::Range;

/// A row range of a stripe, and the data chunks that are written over all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes within the chunk.
    pub rows: Range<u64>,
    /// Data chunk indices that are written; consecutive, except that a write that wraps from the
    /// end of one chunk to the start of the next gives separate segments.
    pub written: Range<usize>,
}

impl Segment {
    /// The segment in parts over each of which a member's blocks are all recorded as bad, or none of them:
    /// only then the same members can give what each part needs. `base` is the stripe's first component byte.
    pub fn cut_at_bad(self, view: &View, base: u64) -> SmallVec<[Segment; 1]> {
        let end = base + self.rows.end;
        let mut at = base + self.rows.start;
        let mut parts = SmallVec::new();
        while at < end {
            let until = view.same_until(&(at..end));
            parts.push(Segment { rows: at - base..until - base, written: self.written.clone() });
            at = until;
        }
        parts
    }
}

/// A write of a stripe: bytes `start..end` of the stripe's data, data chunks laid end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Extent {
    /// Rows that the write touches in any chunk.
    pub fn rows(&self, chunk: u64) -> Range<u64> {
        if self.start / chunk == (self.end - 1) / chunk {
            self.start % chunk..(self.end - 1) % chunk + 1
        } else {
            0..chunk
        }
    }

    /// Rows of data chunk `k` that are written.
    pub fn rows_of(&self, k: usize, chunk: u64) -> Range<u64> {
        let base = k as u64 * chunk;
        let start = self.start.clamp(base, base + chunk) - base;
        let end = self.end.clamp(base, base + chunk) - base;
        start..end
    }

    /// Data chunks that are touched.
    pub fn chunks(&self, chunk: u64) -> Range<usize> {
        (self.start / chunk) as usize..(self.end.div_ceil(chunk)) as usize
    }

    /// The segments, in row order; rows that nothing writes are left out. `end` is after `start`.
    pub fn segments(&self, chunk: u64) -> SmallVec<[Segment; 3]> {
        let chunks = self.chunks(chunk);
        let head = self.start % chunk;
        let tail = (self.end - 1) % chunk + 1;
        let mut segments = SmallVec::new();
        if chunks.len() == 1 {
            segments.push(Segment { rows: head..tail, written: chunks });
            return segments;
        }
        // Chunk `first` is written from row `head` on, chunk `last` up to row `tail`, those
        // between wholly.
        let (first, last) = (chunks.start, chunks.end - 1);
        let mut add = |rows: Range<u64>, written: Range<usize>| {
            if !rows.is_empty() && !written.is_empty() {
                segments.push(Segment { rows, written });
            }
        };
        let (low, high) = (head.min(tail), head.max(tail));
        add(0..low, first + 1..chunks.end);
        if head < tail {
            add(low..high, first..chunks.end);
        } else {
            add(low..high, first + 1..last);
        }
        add(high..chunk, first..last);
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_cover_each_written_byte_once_and_no_other(
            chunks in 2u64..6, start in 0u64..48, len in 1u64..48,
        ) {
            let chunk = 8;
            let end = (start + len).min(chunks * chunk);
            prop_assume!(start < end);
            let extent = Extent { start, end };
            let mut seen = vec![0u32; (chunks * chunk) as usize];
            for segment in extent.segments(chunk) {
                for k in segment.written.clone() {
                    for row in segment.rows.clone() {
                        seen[k * chunk as usize + row as usize] += 1;
                    }
                }
            }
            for (at, count) in seen.iter().enumerate() {
                let written = (start..end).contains(&(at as u64));
                prop_assert_eq!(*count, u32::from(written));
            }
        }
    }

    #[test]
    fn a_write_that_wraps_without_meeting_itself_gives_two_segments() {
        let segments = Extent { start: 6, end: 10 }.segments(8);
        assert_eq!(segments.len(), 2);
        assert_eq!(segments[0], Segment { rows: 0..2, written: 1..2 });
        assert_eq!(segments[1], Segment { rows: 6..8, written: 0..1 });
    }
}
