//! Members in memory: `ram:256M`. Completes at submit.

use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::request::{Op, Request};
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

    /// Like [`new`](Ram::new), for a size that comes from the user.
    ///
    /// # Errors
    /// When there is not that much memory, or it is less than a block.
    pub fn try_new(name: impl Into<String>, size: u64) -> Result<Ram, OpenError> {
        let name = name.into();
        let memory = memory_for(&name, size)?;
        let info = DeviceInfo::plain(name, memory.len() as u64);
        Ok(Ram { info, memory: Arc::new(memory) })
    }

    /// The memory behind all its devices, for access that bypasses them.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
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

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut request: Request, mut done: Completion) {
        let is_within = carry_out(&self.memory, request.offset, &mut request.op);
        let result = if is_within { Ok(()) } else { Err(IoError::new(IoErrorKind::Invalid)) };
        // As `Completion::complete`, with the outcome made where the sink gets it.
        if let Some((sink, token)) = done.take() {
            sink.complete(token, Outcome { result, op: request.op });
        }
    }

    fn may_hang(&self) -> bool {
        false
    }
}

/// Memory of `size` bytes, rounded down to whole 4096-byte blocks.
pub(crate) fn memory_for(name: &str, size: u64) -> Result<SharedMemory, OpenError> {
    let bytes = usize::try_from(size / 4096 * 4096).ok().filter(|bytes| *bytes > 0);
    bytes.and_then(SharedMemory::try_new).ok_or_else(|| OpenError {
        name: name.to_string(),
        why: format!("{size} bytes of memory could not be allocated; give a size of at least 4K, and less than the memory of the machine"),
    })
}

/// Executes `op` on `memory`. False when it reaches beyond the end.
#[inline(always)]
pub(crate) fn carry_out(memory: &SharedMemory, offset: u64, op: &mut Op) -> bool {
    // Nearly all requests have one buffer.
    match op {
        Op::Read(bufs) => {
            if let [buf] = bufs.as_mut_slice() {
                return memory.read(offset as usize, buf);
            }
        }
        Op::Write { bufs, .. } => {
            if let [buf] = bufs.as_slice() {
                return memory.write(offset as usize, buf);
            }
        }
        _ => {}
    }
    carry_out_any(memory, offset, op)
}

#[inline(never)]
fn carry_out_any(memory: &SharedMemory, offset: u64, op: &mut Op) -> bool {
    let mut at = offset as usize;
    match op {
        Op::Read(bufs) => bufs.iter_mut().all(|buf| {
            let ok = memory.read(at, buf);
            at += buf.len();
            ok
        }),
        Op::Write { bufs, .. } => bufs.iter().all(|buf| {
            let ok = memory.write(at, buf);
            at += buf.len();
            ok
        }),
        Op::Flush | Op::Discard { .. } => true,
        Op::WriteZeroes { len, .. } => memory.zero(at, *len as usize),
    }
}
