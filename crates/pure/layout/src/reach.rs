//! The reach of a part of an array into its members, and the part of an array that fits a part of them: a reshape needs both
//! so as to write over nothing that is still needed.
//!
//! Component bytes are the same on every member. Layouts in which later bytes of the array do not lie behind earlier
//! ones give answers that are true, and of no use: all of the component is needed for any byte.

use crate::{Layout, LayoutError};

impl Layout {
    /// The first component byte that is in use.
    pub fn start(&self) -> u64 {
        match self {
            Layout::Parity(parity) => parity.start(),
            Layout::Raid10(raid10) => raid10.start(),
            Layout::Striped(_) | Layout::Linear(_) | Layout::Mirror(_) => 0,
        }
    }

    /// The same, beginning at component byte `start`, which is whole sectors: while an array is reshaped the data of one of its
    /// two shapes starts behind that of the other. Only levels 4, 5, 6 and 10 can begin elsewhere than at 0.
    ///
    /// # Errors
    /// A place within a sector, or behind which the component does not fit.
    pub fn starting_at(self, start: u64) -> Result<Layout, LayoutError> {
        Ok(match self {
            Layout::Parity(parity) => Layout::Parity(parity.starting_at(start)?),
            Layout::Raid10(raid10) => Layout::Raid10(raid10.starting_at(start)?),
            other => other,
        })
    }

    /// The same, with its stripes (levels 4, 5, 6) or chunks (level 10) numbered from `first` on.
    pub fn numbered_from(self, first: u64) -> Layout {
        match self {
            Layout::Parity(parity) => Layout::Parity(parity.numbered_from(first)),
            Layout::Raid10(raid10) => Layout::Raid10(raid10.numbered_from(first)),
            other => other,
        }
    }

    /// Array bytes from `at` on have nothing before this component byte.
    pub fn needed_from(&self, at: u64) -> u64 {
        match self {
            Layout::Parity(parity) => {
                parity.start() + at / parity.stripe_size() * parity.chunk_size()
            }
            Layout::Raid10(raid10) => match raid10.rows_at(at / raid10.chunk_size()) {
                Some((row, _)) => raid10.start() + row * raid10.chunk_size(),
                None => raid10.start(),
            },
            other => other.start(),
        }
    }

    /// Array bytes below `at` have nothing at this component byte, nor behind it.
    pub fn needed_until(&self, at: u64) -> u64 {
        match self {
            Layout::Parity(parity) => {
                parity.start() + at.div_ceil(parity.stripe_size()) * parity.chunk_size()
            }
            Layout::Raid10(raid10) => match raid10.rows_at(at.div_ceil(raid10.chunk_size())) {
                Some((_, rows)) => raid10.start() + rows * raid10.chunk_size(),
                None => raid10.start() + raid10.used_component_size(),
            },
            other => (0..other.slots()).map(|slot| other.used_size(slot)).max().unwrap_or(0),
        }
    }

    /// The array bytes, counted from the first, all of whose blocks, parity and copies too, lie before component byte `at`.
    pub fn fits_below(&self, at: u64) -> u64 {
        let within = at.saturating_sub(self.start());
        match self {
            Layout::Parity(parity) => {
                (within / parity.chunk_size()).min(parity.stripes()) * parity.stripe_size()
            }
            Layout::Raid10(raid10) => {
                let chunks = raid10.chunks_at(within / raid10.chunk_size());
                chunks.map_or(0, |(below, _)| below) * raid10.chunk_size()
            }
            _ => 0,
        }
    }

    /// The array byte from which on all blocks lie at component byte `at` or behind it.
    pub fn fits_from(&self, at: u64) -> u64 {
        let within = at.saturating_sub(self.start());
        match self {
            Layout::Parity(parity) => {
                within.div_ceil(parity.chunk_size()).min(parity.stripes()) * parity.stripe_size()
            }
            Layout::Raid10(raid10) => {
                let chunks = raid10.chunks_at(within.div_ceil(raid10.chunk_size()));
                let from = chunks.map_or(raid10.chunks(), |(_, from)| from);
                if within == 0 { 0 } else { from * raid10.chunk_size() }
            }
            other => {
                if within == 0 {
                    0
                } else {
                    other.array_size()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Level, Spec};
    use proptest::prelude::*;

    const CHUNK: u64 = 4096;

    fn layout(level: Level, number: u32, slots: usize, rows: u64, start: u64) -> Layout {
        let spec = Spec {
            level,
            layout: number,
            chunk_size: CHUNK,
            raid_disks: slots,
            component_size: rows * CHUNK,
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).unwrap().numbered_from(1000).starting_at(start * CHUNK).unwrap()
    }

    /// The first component byte, and the one behind the last, of all blocks of the chunk at array byte `at`.
    fn rows(layout: &Layout, at: u64) -> (u64, u64) {
        match layout {
            Layout::Parity(parity) => {
                let at = parity.member_offset(parity.locate(at).0);
                (at, at + CHUNK)
            }
            Layout::Raid10(raid10) => {
                let copies = raid10.copies(raid10.locate(at).0);
                let offsets = || copies.iter().map(|place| place.offset);
                (offsets().min().unwrap(), offsets().max().unwrap() + CHUNK)
            }
            _ => unreachable!(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn nothing_lies_beyond_what_is_said_and_nothing_less_would_do(
            shape in prop::sample::select(vec![
                (Level::Raid5, 2), (Level::Raid6, 8), (Level::Raid10, 0x102), (Level::Raid10, 0x103),
                (Level::Raid10, 0x1_0201), (Level::Raid10, 0x1_0301),
            ]),
            slots in 4usize..8, height in 4u64..14, start in 0u64..3,
        ) {
            let layout = layout(shape.0, shape.1, slots, height, start);
            let chunks = layout.array_size() / CHUNK;
            let of: Vec<(u64, u64)> = (0..chunks).map(|nr| rows(&layout, nr * CHUNK)).collect();
            for nr in 0..=chunks {
                let (below, from) = of.split_at(nr as usize);
                if let Some(first) = from.iter().map(|rows| rows.0).min() {
                    prop_assert_eq!(layout.needed_from(nr * CHUNK), first);
                }
                if let Some(end) = below.iter().map(|rows| rows.1).max() {
                    prop_assert_eq!(layout.needed_until(nr * CHUNK), end);
                }
            }
            for row in 0..height + start + 2 {
                let at = row * CHUNK;
                let below = of.iter().take_while(|rows| rows.1 <= at).count() as u64;
                prop_assert_eq!(layout.fits_below(at), below * CHUNK);
                let behind = of.iter().rev().take_while(|rows| rows.0 >= at).count() as u64;
                prop_assert_eq!(layout.fits_from(at), (chunks - behind) * CHUNK);
            }
        }
    }

    #[test]
    fn far_copies_are_in_the_way_of_everything() {
        let far = layout(Level::Raid10, 0x201, 4, 8, 1);
        let (start, end) = (CHUNK, CHUNK + 8 * CHUNK);
        assert_eq!((far.needed_from(3 * CHUNK), far.needed_until(CHUNK)), (start, end));
        assert_eq!((far.fits_below(end - 1), far.fits_from(start + 1)), (0, far.array_size()));
    }
}
