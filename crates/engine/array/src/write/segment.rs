//! Segments: cutting what is written of a stripe into row ranges that are planned one by one.
//!
//! With `stripe_size=auto` a segment is as tall as it can be with the same chunks written over all of
//! its rows: 64 KiB within one chunk is one segment, not sixteen. With a fixed `stripe_size` segments
//! are whole lines, and a chunk may be written in some of their rows only.

use crate::state::extent::Extent;
use crate::state::view::View;
use braid_layout::Slot;
use smallvec::SmallVec;
use std::ops::Range;

/// Data chunk indices, ascending.
pub type Chunks = SmallVec<[u16; 8]>;

/// A row range of a stripe, and the data chunks that are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes within the chunk.
    pub rows: Range<u64>,
    /// Chunks that are written over all of the rows.
    pub full: Chunks,
    /// Chunks that are written in some of the rows or in all.
    pub touched: Chunks,
}

impl Segment {
    /// The segment in parts over each of which a member's blocks are all recorded as bad or unreadable, or none of
    /// them: only then the same members can give what each part needs. `base` is the stripe's first component byte,
    /// `unreadable` rows that some member could not give.
    pub fn cut_at_bad(
        self,
        view: &View,
        base: u64,
        unreadable: &[(Slot, Range<u64>)],
    ) -> SmallVec<[Segment; 1]> {
        let end = base + self.rows.end;
        let mut at = base + self.rows.start;
        let mut parts = SmallVec::new();
        while at < end {
            let edges =
                unreadable.iter().flat_map(|(_, rows)| [base + rows.start, base + rows.end]);
            let edge = edges.filter(|edge| *edge > at).min().unwrap_or(end);
            let until = view.same_until(&(at..end)).min(edge);
            parts.push(Segment { rows: at - base..until - base, ..self.clone() });
            at = until;
        }
        parts
    }
}

/// `rows` of a stripe, widened to whole lines when their height is set.
pub(crate) fn whole_lines(rows: Range<u64>, line: Option<u64>, chunk: u64) -> Range<u64> {
    match line {
        None => rows,
        Some(line) => rows.start / line * line..rows.end.next_multiple_of(line).min(chunk),
    }
}

/// A row range in which the same chunks are written throughout.
struct Band {
    rows: Range<u64>,
    chunks: Chunks,
}

/// Puts into `cuts` the rows, ascending, at which the set of written chunks, or the extent that a
/// chunk's bytes come from, changes.
pub fn find_cuts(extents: &[Extent], chunk: u64, cuts: &mut Vec<u64>) {
    cuts.clear();
    for extent in extents {
        cuts.push(extent.start % chunk);
        cuts.push((extent.end - 1) % chunk + 1);
        if extent.chunks(chunk).len() > 1 {
            cuts.extend([0, chunk]);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
}

/// `rows`, divided at `cuts`.
pub fn divided<'a>(
    rows: &Range<u64>,
    cuts: &'a [u64],
) -> impl Iterator<Item = Range<u64>> + use<'a> {
    let (end, mut start) = (rows.end, rows.start);
    let inner = cuts.partition_point(|cut| *cut <= start)..cuts.partition_point(|cut| *cut < end);
    let inner = cuts.get(inner).unwrap_or_default().iter().copied();
    inner.chain([end]).map(move |cut| std::mem::replace(&mut start, cut)..cut)
}

/// True when `extents` (ascending, apart) write all of rows `rows` of chunk `k`, which no cut divides.
fn writes(extents: &[Extent], chunk: u64, k: usize, rows: &Range<u64>) -> bool {
    piece_at(extents, k as u64 * chunk + rows.start).is_some()
}

/// The index of the extent (ascending, apart) that holds byte `at` of the stripe's data.
pub fn piece_at(extents: &[Extent], at: u64) -> Option<usize> {
    let nr = extents.partition_point(|extent| extent.end <= at);
    extents.get(nr).is_some_and(|extent| extent.start <= at).then_some(nr)
}

fn bands(extents: &[Extent], cuts: &[u64], chunk: u64) -> SmallVec<[Band; 4]> {
    let mut bands: SmallVec<[Band; 4]> = SmallVec::new();
    let Some((first, last)) = extents.first().zip(extents.last()) else { return bands };
    let ks = first.chunks(chunk).start..last.chunks(chunk).end;
    for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
        let rows = *start..*end;
        let written = ks.clone().filter(|k| writes(extents, chunk, *k, &rows));
        // A level has at most 1920 slots.
        let chunks: Chunks = written.map(|k| k as u16).collect();
        if chunks.is_empty() {
            continue;
        }
        match bands.last_mut() {
            Some(band) if band.rows.end == rows.start && band.chunks == chunks => {
                band.rows.end = rows.end;
            }
            _ => bands.push(Band { rows, chunks }),
        }
    }
    bands
}

/// The segments of what `extents` (ascending, apart, not empty) with their `cuts` write of a stripe
/// with chunks of `chunk` bytes, in row order. `line`: the height of a line when it is fixed.
pub fn segments(
    (extents, cuts): (&[Extent], &[u64]),
    chunk: u64,
    line: Option<u64>,
) -> SmallVec<[Segment; 3]> {
    let mut segments: SmallVec<[Segment; 3]> = SmallVec::new();
    let bands = bands(extents, cuts, chunk);
    let Some(line) = line else {
        for Band { rows, chunks } in bands {
            segments.push(Segment { rows, full: chunks.clone(), touched: chunks });
        }
        return segments;
    };
    let mut base = 0;
    let mut rest = bands.as_slice();
    while let Some(band) = rest.first() {
        base = base.max(band.rows.start / line * line);
        let rows = base..(base + line).min(chunk);
        let here: SmallVec<[&Band; 4]> = rest
            .iter()
            .take_while(|band| band.rows.start < rows.end)
            .filter(|band| band.rows.end > rows.start)
            .collect();
        let mut touched = Chunks::new();
        for k in here.iter().flat_map(|band| band.chunks.iter()) {
            if let Err(at) = touched.binary_search(k) {
                touched.insert(at, *k);
            }
        }
        let height = |k: &u16| {
            let bands = here.iter().filter(|band| band.chunks.contains(k));
            bands.map(|b| b.rows.end.min(rows.end) - b.rows.start.max(rows.start)).sum::<u64>()
        };
        let full: Chunks =
            touched.iter().copied().filter(|k| height(k) == rows.end - rows.start).collect();
        match segments.last_mut() {
            Some(last)
                if last.rows.end == rows.start && last.full == full && last.touched == touched =>
            {
                last.rows.end = rows.end;
            }
            _ => segments.push(Segment { rows: rows.clone(), full, touched }),
        }
        base = rows.end;
        let done = rest.iter().take_while(|band| band.rows.end <= base).count();
        rest = rest.get(done..).unwrap_or_default();
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = 8;

    fn cut(extents: &[Extent], line: Option<u64>) -> SmallVec<[Segment; 3]> {
        let mut cuts = Vec::new();
        find_cuts(extents, CHUNK, &mut cuts);
        segments((extents, &cuts), CHUNK, line)
    }

    fn apart(mut marks: Vec<u64>) -> Vec<Extent> {
        marks.sort_unstable();
        marks.dedup();
        let pairs = marks.chunks_exact(2);
        pairs.map(|pair| Extent { start: pair[0], end: pair[1] }).collect()
    }

    /// For each chunk and row, how many segments say that it is written.
    fn seen(segments: &[Segment], of: fn(&Segment) -> &Chunks, chunks: usize) -> Vec<u32> {
        let mut seen = vec![0; chunks * CHUNK as usize];
        for segment in segments {
            for k in of(segment) {
                for row in segment.rows.clone() {
                    seen[usize::from(*k) * CHUNK as usize + row as usize] += 1;
                }
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn segments_cover_each_written_byte_once_and_no_other(
            marks in prop::collection::vec(0u64..40, 2..12),
        ) {
            let extents = apart(marks);
            prop_assume!(!extents.is_empty());
            let segments = cut(&extents, None);
            for (at, count) in seen(&segments, |s| &s.full, 5).iter().enumerate() {
                let written = piece_at(&extents, at as u64).is_some();
                prop_assert_eq!(*count, u32::from(written));
            }
            prop_assert!(segments.iter().all(|segment| segment.full == segment.touched));
        }

        #[test]
        fn segments_of_whole_lines_touch_what_is_written_and_call_full_what_is(
            marks in prop::collection::vec(0u64..40, 2..12), shift in 0u32..4,
        ) {
            let (extents, line) = (apart(marks), 1 << shift);
            prop_assume!(!extents.is_empty());
            let segments = cut(&extents, Some(line));
            let (full, touched) =
                (seen(&segments, |s| &s.full, 5), seen(&segments, |s| &s.touched, 5));
            for at in 0..40 {
                let base = at / line * line;
                let written = |at: u64| piece_at(&extents, at).is_some();
                prop_assert_eq!(full[at as usize], u32::from((base..base + line).all(written)));
                prop_assert_eq!(touched[at as usize], u32::from((base..base + line).any(written)));
            }
            for segment in &segments {
                prop_assert!(segment.rows.start % line == 0 && segment.rows.end % line == 0);
            }
        }
    }

    #[test]
    fn a_write_that_wraps_without_meeting_itself_gives_two_segments() {
        let found = cut(&[Extent { start: 6, end: 10 }], None);
        let of = |rows, k| {
            let chunks = Chunks::from_slice(&[k]);
            Segment { rows, full: chunks.clone(), touched: chunks }
        };
        assert_eq!(found.as_slice(), [of(0..2, 1), of(6..8, 0)]);
    }

    #[test]
    fn rows_are_divided_at_the_cuts_inside() {
        let parts = |rows| divided(&rows, &[0, 2, 5, 8]).collect::<Vec<_>>();
        assert_eq!(parts(0..8), [0..2, 2..5, 5..8]);
        assert_eq!(parts(1..6), [1..2, 2..5, 5..6]);
        assert_eq!(parts(5..8).first(), Some(&(5..8)));
    }

    #[test]
    fn neighbours_make_one_segment() {
        let quarters = |k: u64| (0..4).map(move |nr| (k * CHUNK + nr * 2, k * CHUNK + nr * 2 + 2));
        let extents: Vec<Extent> =
            (0..3).flat_map(quarters).map(|(start, end)| Extent { start, end }).collect();
        let found = cut(&extents, None);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rows.clone(), found[0].full.len()), (0..8, 3));
    }
}
