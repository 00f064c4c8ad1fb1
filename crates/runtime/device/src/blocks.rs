//! A filter that gives a device larger logical blocks, like those of a disk with sectors of 4096 bytes, and is as
//! strict as such a disk. It makes arrays of mixed disks possible when only one kind is at hand.
//!
//! Invariant: a request that such a disk would refuse does not reach the device below.

use crate::completion::Completion;
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
use crate::target::{OpenError, Opener};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// See the module's documentation.
pub struct Blocks {
    inner: Arc<dyn Opener>,
    logical_block: u32,
}

impl Blocks {
    /// `inner` with logical blocks of `logical_block` bytes (a power of two, 512 to 4096), or its own if
    /// those are larger. A last, incomplete block cannot be accessed.
    pub fn new(inner: Arc<dyn Opener>, logical_block: u32) -> Blocks {
        Blocks { inner, logical_block }
    }
}

impl Opener for Blocks {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let inner = self.inner.open(shard)?;
        let mut info = inner.info().clone();
        info.logical_block = info.logical_block.max(self.logical_block).max(1);
        info.physical_block = info.physical_block.max(info.logical_block);
        info.size -= info.size % u64::from(info.logical_block);
        Ok(Rc::new(BlocksDevice { inner, info }))
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }
}

struct BlocksDevice {
    inner: Rc<dyn Device>,
    info: DeviceInfo,
}

impl BlocksDevice {
    /// True when the request and each of its buffers are aligned to blocks.
    fn fits(&self, request: &Request) -> bool {
        let block = self.info.logical_block as usize;
        let whole = |buf: &[u8]| {
            buf.len().is_multiple_of(block) && (buf.as_ptr() as usize).is_multiple_of(block)
        };
        let buffers = match &request.op {
            Op::Read(bufs) => bufs.iter().all(|buf| whole(buf)),
            Op::Write { bufs, .. } => bufs.iter().all(|buf| whole(buf)),
            Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. } => true,
        };
        buffers && request.check(&self.info).is_ok()
    }
}

impl Device for BlocksDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if self.fits(&request) {
            self.inner.submit(request, done);
        } else {
            done.finish(Err(IoError::new(IoErrorKind::Invalid)), request.op);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::Ram;
    use crate::testing::{ask, bytes, fill, shard};

    #[test]
    fn what_is_not_whole_blocks_is_refused_and_the_rest_passes() {
        let shard = shard();
        let ram: Arc<dyn Opener> = Arc::new(Ram::new("r", 1 << 20));
        let device = Blocks::new(ram, 4096).open(&shard).unwrap();
        assert_eq!((device.info().logical_block, device.info().size), (4096, 1 << 20));
        assert!(ask(&shard, &device, fill(&shard, 8192, 4096, 7)).result.is_ok());
        let read = Request::read(8192, shard.pool().get(4096));
        assert_eq!(bytes(ask(&shard, &device, read)), vec![7; 4096]);
        for request in [
            fill(&shard, 512, 4096, 7),
            fill(&shard, 4096, 512, 7),
            Request::read(0, shard.pool().get(4096 + 512)),
            Request::write(0, shard.pool().get(8192).freeze().slice(512..4608), false),
        ] {
            assert_eq!(
                ask(&shard, &device, request).result.unwrap_err().kind,
                IoErrorKind::Invalid
            );
        }
    }
}
