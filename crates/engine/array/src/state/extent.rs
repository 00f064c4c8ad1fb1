//! A run of bytes of one stripe, and the rows and chunks that it touches.

use std::ops::Range;

/// A write of a stripe: bytes `start..end` of the stripe's data, data chunks laid end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Extent {
    /// Rows that the write touches in any chunk, whose size is a power of two.
    #[inline]
    pub fn rows(&self, chunk: u64) -> Range<u64> {
        debug_assert!(chunk.is_power_of_two());
        let start = self.start & (chunk - 1);
        let end = start + (self.end - self.start);
        if end <= chunk { start..end } else { 0..chunk }
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

    /// True when the two share a byte.
    pub fn overlaps(&self, other: &Extent) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Rows that extents of a stripe touch, from the first of them to the last; all of the chunk when there are none.
pub(crate) fn rows_of_all(extents: impl Iterator<Item = Extent>, chunk: u64) -> Range<u64> {
    let rows = extents.map(|extent| extent.rows(chunk));
    rows.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..chunk)
}

/// `bytes` cut at multiples of `height`.
pub(crate) fn pieces(bytes: &Range<u64>, height: u64) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end {
        let until = (at / height + 1).saturating_mul(height).min(bytes.end);
        all.push(at..until);
        at = until;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_bytes_and_end_at_multiples() {
        assert_eq!(pieces(&(512..9000), 4096), [512..4096, 4096..8192, 8192..9000]);
        assert_eq!(pieces(&(4096..8193), 4096), [4096..8192, 8192..8193]);
        assert!(pieces(&(5..5), 4096).is_empty());
    }
}
