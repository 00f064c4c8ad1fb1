//! Memory that stays where it is while its one writable handle comes and goes.

use super::{Block, BufMut, Pool, add_handle, address, release};
use std::ptr::NonNull;

/// Memory of a pool, handed out as a whole, one time after the other: for whoever knows it by its address.
pub struct Lasting {
    block: NonNull<Block>,
    len: u32,
}

impl Pool {
    /// `len` bytes, aligned as all buffers are, that last as long as the result or the last handle.
    ///
    /// # Panics
    /// As [`Pool::get`].
    pub fn lasting(&self, len: usize) -> Lasting {
        let buf = self.get(len);
        let lasting = Lasting { block: buf.block, len: buf.len };
        // Its handle is ours from now on.
        std::mem::forget(buf);
        lasting
    }
}

impl Lasting {
    /// All of it; `None` while there are handles on any part.
    pub fn take(&self) -> Option<BufMut> {
        // SAFETY: ours is a handle, so the block is alive.
        if unsafe { self.block.as_ref() }.handles.get() != 1 {
            return None;
        }
        add_handle(self.block);
        Some(BufMut { block: self.block, start: 0, len: self.len })
    }

    /// Where `bytes` begin in it; `None` when they are elsewhere, or reach beyond it.
    pub fn position(&self, bytes: &[u8]) -> Option<usize> {
        let at = (bytes.as_ptr() as usize).checked_sub(address(self.block, 0) as usize)?;
        (at.checked_add(bytes.len())? <= self.len as usize).then_some(at)
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        release(self.block);
    }
}
