//! An image grows, with its regions.
//!
//! In two steps, between which the owner makes sure that whoever opens the halves next knows of one that was detached: up to
//! there nothing is behind the old end, so a half that has grown and one that has not are the same image.

use super::error::failed;
use super::header::State;
use super::layout::{PARTS_MAX, blocks_in};
use super::{Image, RUN_MAX};
use crate::region::{Region, Write};
use crate::store::StoreError;

impl Image {
    /// Takes larger regions in the place of the halves with these numbers, which hold what those held, and lays out what
    /// they have more. The image is as large as before until [`take_growth`](Image::take_growth). False: the halves have
    /// no room for more blocks.
    ///
    /// # Errors
    /// When it has grown too often already, or no half can be written.
    pub(crate) fn prepare_growth(
        &mut self,
        regions: Vec<(usize, Box<dyn Region>)>,
    ) -> Result<bool, StoreError> {
        for (half, region) in regions {
            self.mirror.replace(half, region);
        }
        let (more, parts) = (blocks_in(self.mirror.size()), self.layout.ends().len());
        if more > self.layout.blocks() && parts == PARTS_MAX {
            return Err(StoreError::Failed(format!(
                "the metadata region has grown {} times, and cannot grow once more",
                PARTS_MAX - 1
            )));
        }
        let Some(grown) = self.layout.grown_to(self.mirror.size()) else { return Ok(false) };
        let before = self.sums.grow(grown.blocks());
        let fresh: Vec<u64> = (before..grown.tables()).collect();
        for numbers in fresh.chunks(RUN_MAX) {
            let write = |number: &u64| {
                let data = self.sums.table_block(*number);
                Write { offset: grown.table_at(*number), data }
            };
            let writes = numbers.iter().map(write).collect();
            self.put(writes)?;
        }
        self.flush_region()?;
        self.put(vec![super::header::write(&grown, State::Whole)])?;
        self.flush_region()?;
        self.grown = Some(grown);
        Ok(true)
    }

    /// From now on the image has what was laid out; the database that is opened next takes it over. False: nothing was.
    pub(crate) fn take_growth(&mut self) -> bool {
        let grown = self.grown.take();
        let has_grown = grown.is_some();
        self.layout = grown.unwrap_or_else(|| self.layout.clone());
        has_grown
    }

    /// Where only some halves had grown when that was interrupted, they have what all have: nothing is behind that.
    pub(super) fn undo_growth(&mut self) -> Result<(), StoreError> {
        let header = self.header();
        let halves: Vec<usize> = self.mirror.held().collect();
        for half in halves {
            let (offset, data) = (header.offset, header.data.clone());
            self.rewrite(half, offset, data)?;
        }
        self.mirror.sync().map_err(|error| failed("flushing", &error))
    }
}
