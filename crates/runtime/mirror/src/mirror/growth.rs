//! A mirror grows, with its regions.
//!
//! In two steps, between which the owner makes sure that whoever opens the legs next knows of one that was detached: up to
//! there nothing is behind the old end, so a leg that has grown and one that has not are the same mirror.

use super::Mirror;
use crate::error::{MirrorError, failed};
use crate::header::{self, State};
use crate::layout::{PARTS_MAX, blocks_in};
use crate::region::Region;
use braid_device::IoError;
use braid_shard::range_locks::WHOLE;

/// Blocks of the table that are written at once.
const TABLES: usize = 256;

impl Mirror {
    /// Replaces legs, by their numbers, by larger regions with the same content, and lays out the additional space. The
    /// mirror is as large as before until [`take_growth`](Mirror::take_growth). No leg may join in between. False: the
    /// legs have no room for more blocks.
    ///
    /// # Errors
    /// When it has grown too often already, or no leg can be written.
    pub async fn prepare_growth(&self, regions: Vec<(usize, Region)>) -> Result<bool, MirrorError> {
        let _held = self.locks.exclusive(WHOLE).await;
        let _turn = self.turn.take(1).await;
        for (leg, region) in regions {
            self.legs.replace(leg, region);
        }
        let size = self.legs.size();
        let grown = {
            let state = self.state.borrow();
            if blocks_in(size) > state.layout.blocks() && state.layout.ends().len() == PARTS_MAX {
                return Err(MirrorError::Failed(format!(
                    "the region has grown {} times, and cannot grow once more",
                    PARTS_MAX - 1
                )));
            }
            state.layout.grown_to(size)
        };
        let Some(grown) = grown else { return Ok(false) };
        let before = self.state.borrow_mut().sums.grow(grown.blocks());
        let fresh: Vec<u64> = (before..grown.tables()).collect();
        let writing = |error: IoError| failed("writing", &error);
        for numbers in fresh.chunks(TABLES) {
            let piece = |number: &u64| {
                let bytes = self.state.borrow().sums.table_block(*number);
                (grown.table_at(*number), self.legs.copy_of(&bytes))
            };
            let pieces: Vec<_> = numbers.iter().map(piece).collect();
            self.put(&pieces).await.map_err(writing)?;
        }
        self.legs.sync().await.map_err(writing)?;
        let header = self.legs.copy_of(&header::bytes_of(&grown, State::Whole));
        self.put(&[(0, header)]).await.map_err(writing)?;
        self.legs.sync().await.map_err(writing)?;
        self.state.borrow_mut().grown = Some(grown);
        Ok(true)
    }

    /// From now on the mirror has what was laid out. False: nothing was.
    pub fn take_growth(&self) -> bool {
        let grown = self.state.borrow_mut().grown.take();
        let Some(grown) = grown else { return false };
        self.state.borrow_mut().layout = grown;
        self.describe();
        true
    }

    /// Where only some legs had grown when that was interrupted, they have what all have: nothing is behind that.
    pub(super) async fn undo_growth(&self) -> Result<(), IoError> {
        for leg in self.legs.held() {
            self.rewrite(leg, self.header_piece()).await?;
        }
        self.legs.sync().await
    }
}
