//! Regions: ranges of a device, one after the other as one row of blocks.

use braid_device::{Device, IoError, IoErrorKind};
use std::rc::Rc;

/// Offsets and lengths in a region are multiples of this, in bytes.
pub const BLOCK: usize = 4096;

/// The most bytes of one request to a device.
const REQUEST_MAX: u64 = 1 << 20;

/// Ranges of a [`Device`], one after the other as one. Its size never changes; a region that has grown is another one.
pub struct Region {
    device: Rc<dyn Device>,
    /// First byte on the device, and bytes.
    ranges: Vec<(u64, u64)>,
}

impl Region {
    /// The `size` bytes from `start` on of `device`. Both are rounded to whole blocks of [`BLOCK`] bytes, inwards.
    ///
    /// # Errors
    /// [`IoErrorKind::Invalid`] when the range reaches beyond the device, or the device's logical blocks are larger than
    /// [`BLOCK`] or no divisor of it.
    pub fn new(device: Rc<dyn Device>, start: u64, size: u64) -> Result<Region, IoError> {
        Region::of_ranges(device, &[(start, size)])
    }

    /// The same of several ranges, each a first byte and a number of bytes: one follows the other in the region.
    ///
    /// # Errors
    /// As [`new`](Region::new).
    pub fn of_ranges(device: Rc<dyn Device>, ranges: &[(u64, u64)]) -> Result<Region, IoError> {
        let invalid = IoError::new(IoErrorKind::Invalid);
        let info = device.info();
        let block = BLOCK as u64;
        let mut rounded = Vec::with_capacity(ranges.len());
        for (start, size) in ranges {
            let end = start.checked_add(*size).ok_or(invalid)?;
            let start = start.checked_next_multiple_of(block).ok_or(invalid)?;
            let end = end - end % block;
            if end > info.size || start > end {
                return Err(invalid);
            }
            rounded.push((start, end - start));
        }
        if !block.is_multiple_of(info.logical_block.max(1).into()) {
            return Err(invalid);
        }
        Ok(Region { device, ranges: rounded })
    }

    /// The name of its device, for messages.
    pub fn name(&self) -> &str {
        &self.device.info().name
    }

    /// Its size in bytes, a multiple of [`BLOCK`].
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).sum()
    }

    /// The device that it lies on.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The requests for `len` bytes from `offset` of the region on: first byte on the device, and bytes.
    ///
    /// # Errors
    /// [`IoErrorKind::Invalid`] when they reach beyond the end.
    pub(crate) fn cut(&self, mut offset: u64, len: usize) -> Result<Vec<(u64, usize)>, IoError> {
        let (mut left, mut pieces) = (len as u64, Vec::new());
        for (start, bytes) in &self.ranges {
            while offset < *bytes && left > 0 {
                let piece = left.min(bytes - offset).min(REQUEST_MAX);
                pieces.push((start + offset, piece as usize));
                left -= piece;
                offset += piece;
            }
            offset -= (*bytes).min(offset);
        }
        if left > 0 { Err(IoError::new(IoErrorKind::Invalid)) } else { Ok(pieces) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::ram::Ram;

    #[test]
    fn a_range_of_a_region_is_cut_where_its_areas_end_and_into_requests() {
        let device = Ram::new("r", 8 << 20).device();
        let areas = [(4096, 8192), (1 << 20, 4096), (2 << 20, 3 << 20)];
        let region = Region::of_ranges(Rc::clone(&device), &areas).unwrap();
        assert_eq!(region.size(), (3 << 20) + 12288);
        assert_eq!(region.cut(0, 4096), Ok(vec![(4096, 4096)]));
        assert_eq!(
            region.cut(4096, 12288),
            Ok(vec![(8192, 4096), (1 << 20, 4096), (2 << 20, 4096)])
        );
        assert_eq!(region.cut(8192, 4096), Ok(vec![(1 << 20, 4096)]));
        let large = region.cut(12288 + 4096, (1 << 20) + 4096).unwrap();
        assert_eq!(large, [((2 << 20) + 4096, 1 << 20), ((3 << 20) + 4096, 4096)]);
        assert!(region.cut(3 << 20, 16384).is_err());
        assert!(region.cut(u64::MAX - 4095, 4096).is_err());
        assert!(Region::new(Rc::clone(&device), 0, 9 << 20).is_err());
        let inner = Region::new(device, 512, 8192).unwrap();
        assert_eq!((inner.cut(0, 4096), inner.size()), (Ok(vec![(4096, 4096)]), 4096));
    }
}
