//! Blocks that are read before they are asked for.

use super::Mirror;
use crate::region::BLOCK;
use crate::sums::UNKNOWN;
use braid_device::{IoError, IoErrorKind};

impl Mirror {
    /// The bytes from `offset` of the device on, at most `len` of them, up to the first block that is not known to be what was
    /// written: for a user that will probably ask for them. They are had from the leg that is read first, and nothing is
    /// mended, detached or noted by this; what is missing here is read as anything else.
    ///
    /// # Errors
    /// The leg's; [`IoErrorKind::Gone`] where there is none.
    pub async fn read_ahead(&self, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
        let first = 1 + offset / BLOCK as u64;
        let (place, count) = {
            let layout = &self.state.borrow().layout;
            let left = layout.blocks().saturating_sub(first).min((len / BLOCK) as u64);
            if left == 0 {
                return Ok(Vec::new());
            }
            (layout.block_at(first), layout.in_a_row(first, left))
        };
        let leg = self.legs.held().next().ok_or(IoError::new(IoErrorKind::Gone))?;
        let mut bytes = self.legs.buffer(count as usize * BLOCK);
        self.legs.read_leg(leg, place, &mut bytes).await?;
        let is_sure = |(block, bytes): &(u64, &[u8])| {
            let known = self.state.borrow().sums.get(*block);
            known != UNKNOWN && self.agrees(*block, bytes)
        };
        let sure = (first..).zip(bytes.chunks_exact(BLOCK)).take_while(is_sure).count();
        Ok(bytes[..sure * BLOCK].to_vec())
    }
}
