//! The areas of a brick: data, and the metadata region with the areas by which it has grown.

use super::raw::RawArea;
use super::{Area, BLOCK, BrickError, BrickSuperblock};

/// The most areas by which a metadata region grows.
pub const MAX_GROWN: usize = 15;

pub(super) fn grown_to_raw(grown: &[Area]) -> ([RawArea; MAX_GROWN], u16) {
    let mut raw = [RawArea::default(); MAX_GROWN];
    for (place, area) in raw.iter_mut().zip(grown) {
        *place = RawArea { offset: area.offset.into(), len: area.len.into() };
    }
    (raw, grown.len().min(MAX_GROWN) as u16)
}

/// `None` where there are more than fit, an area has no bytes, or there are bytes that must be zeros.
pub(super) fn grown_of_raw(raw: &[RawArea; MAX_GROWN], len: u16) -> Option<Vec<Area>> {
    let (used, rest) = raw.split_at_checked(len.into())?;
    let of = |raw: &RawArea| Area { offset: raw.offset.get(), len: raw.len.get() };
    let zeros = rest.iter().all(|area| *area == RawArea::default());
    let full = used.iter().all(|area| area.len.get() > 0);
    (zeros && full).then(|| used.iter().map(of).collect())
}

impl BrickSuperblock {
    /// Bytes of the metadata region in all.
    pub fn metadata_size(&self) -> u64 {
        self.metadata_areas().fold(0, |sum, area| sum.saturating_add(area.len))
    }

    /// The areas that are the metadata region, in its order: none where there is none.
    pub fn metadata_areas(&self) -> impl Iterator<Item = Area> + '_ {
        let first = Some(self.metadata).filter(|area| area.len > 0);
        first.into_iter().chain(self.metadata_grown.iter().copied())
    }

    /// All areas are inside the brick, and no two share a byte.
    pub(super) fn check_areas(&self, at: u64) -> Result<(), BrickError> {
        let wrong = |field, found, must| Err(BrickError::Field { at, field, found, must });
        self.check_area(at, "metadata", self.metadata)?;
        self.check_area(at, "data", self.data)?;
        let grown = self.metadata_grown.len();
        if grown > MAX_GROWN {
            return wrong("the number of areas that the metadata grew by", grown as u64, "0 to 15");
        }
        if self.metadata.len == 0 && grown > 0 {
            return wrong(
                "the number of areas that the metadata grew by",
                grown as u64,
                "0, since there is no region",
            );
        }
        for area in &self.metadata_grown {
            self.check_area(at, "metadata", *area)?;
        }
        let mut areas: Vec<Area> = self.metadata_areas().chain([self.data]).collect();
        areas.retain(|area| area.len > 0);
        areas.sort_by_key(|area| area.offset);
        for pair in areas.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            // Both are inside the brick, so the sum is.
            if low.offset + low.len > high.offset {
                let one = if low == self.data { high } else { low };
                let other = if low == self.data { low } else { high };
                return Err(BrickError::Overlap { at, metadata: one, data: other });
            }
        }
        Ok(())
    }

    /// An area is empty, or between the two copies.
    fn check_area(
        &self,
        at: u64,
        area: &'static str,
        Area { offset, len }: Area,
    ) -> Result<(), BrickError> {
        let aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let end = offset.checked_add(len);
        let inside = offset >= BLOCK && end.is_some_and(|end| end <= self.brick_size - BLOCK);
        if aligned && (inside && len > 0 || offset == 0 && len == 0) {
            return Ok(());
        }
        Err(BrickError::Outside { at, area, offset, len, brick_size: self.brick_size })
    }
}
