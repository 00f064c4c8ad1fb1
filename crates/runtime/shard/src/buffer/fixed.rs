//! A buffer at a fixed address, whose writable handle is handed out again and again.

use super::block::{Block, add_handle, address, release};
use super::handle::BufMut;
use super::pool::Pool;
use std::ptr::NonNull;

/// Memory of a pool whose address never changes, to be registered with somebody outside (a driver of the kernel). It is
/// handed out as a whole, to one user at a time.
pub struct FixedBuffer {
    block: NonNull<Block>,
    len: u32,
}

impl Pool {
    /// A fixed buffer of `len` bytes, aligned as all buffers are. The memory is freed when the result and the last handle
    /// on it are gone.
    ///
    /// # Panics
    /// As [`Pool::get`].
    pub fn fixed(&self, len: usize) -> FixedBuffer {
        let buf = self.get(len);
        let fixed = FixedBuffer { block: buf.block, len: buf.len };
        // The result keeps the handle, so it must not be dropped here.
        std::mem::forget(buf);
        fixed
    }
}

impl FixedBuffer {
    /// A handle on all of it; `None` while any part is in use.
    pub fn take(&self) -> Option<BufMut> {
        // SAFETY: `self` counts as a handle, so the block is alive.
        if unsafe { self.block.as_ref() }.handles.get() != 1 {
            return None;
        }
        add_handle(self.block);
        Some(BufMut { block: self.block, start: 0, len: self.len })
    }

    /// The offset of `bytes` in the buffer; `None` when they are not within it.
    pub fn position(&self, bytes: &[u8]) -> Option<usize> {
        let at = (bytes.as_ptr() as usize).checked_sub(address(self.block, 0) as usize)?;
        (at.checked_add(bytes.len())? <= self.len as usize).then_some(at)
    }
}

impl Drop for FixedBuffer {
    fn drop(&mut self) {
        release(self.block);
    }
}
