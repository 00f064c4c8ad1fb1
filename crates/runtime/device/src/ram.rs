//! Members in memory: `ram:256M`. Completes at submit.

use crate::completion::{Completion, Outcome};
use crate::device::{Device, DeviceInfo, IoError, IoErrorKind, Op, Request};
use crate::target::{OpenError, Opener};
use braid_shard::Shard;
use braid_shard::buffer::SharedMemory;
use std::rc::Rc;
use std::sync::Arc;

/// The memory behind RAM devices of the same name on all shards.
pub struct Ram {
    info: DeviceInfo,
    memory: Arc<SharedMemory>,
}

impl Ram {
    /// `size` zero bytes, rounded down to whole 4096-byte blocks.
    pub fn new(name: impl Into<String>, size: u64) -> Ram {
        let memory = Arc::new(SharedMemory::new(size as usize / 4096 * 4096));
        let size = memory.len() as u64;
        Ram { info: DeviceInfo::plain(name, size), memory }
    }

    /// The device itself, for one shard.
    pub fn device(&self) -> Rc<dyn Device> {
        Rc::new(RamDevice { info: self.info.clone(), memory: Arc::clone(&self.memory) })
    }
}

impl Opener for Ram {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self, _: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(self.device())
    }
}

struct RamDevice {
    info: DeviceInfo,
    memory: Arc<SharedMemory>,
}

impl RamDevice {
    fn carry_out(&self, offset: u64, op: &mut Op) -> bool {
        let mut at = offset as usize;
        match op {
            Op::Read(bufs) => bufs.iter_mut().all(|buf| {
                let ok = self.memory.read(at, buf);
                at += buf.len();
                ok
            }),
            Op::Write { bufs, .. } => bufs.iter().all(|buf| {
                let ok = self.memory.write(at, buf);
                at += buf.len();
                ok
            }),
            Op::Flush | Op::Discard { .. } => true,
            Op::WriteZeroes { len, .. } => self.memory.zero(at, *len as usize),
        }
    }
}

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let Request { offset, mut op } = request;
        if self.carry_out(offset, &mut op) {
            done.complete(Outcome::ok(op));
        } else {
            done.complete(Outcome::failed(IoError::new(IoErrorKind::Invalid), op));
        }
    }
}
