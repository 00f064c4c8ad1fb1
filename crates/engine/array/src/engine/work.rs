//! Parts of requests, as they are handed to the tasks that carry them out.

use crate::consistency::Entered;
use crate::engine::mesh::{Mesh, PieceDone};
use crate::state::extent::Extent;
use braid_device::IoError;
use braid_shard::{Buf, BufMut};

/// A write of part of one unit.
pub(crate) struct WriteArgs {
    pub(crate) unit: u64,
    /// Bytes of the unit's data.
    pub(crate) extent: Extent,
    pub(crate) payload: WritePayload,
    pub(crate) fua: bool,
    pub(crate) done: PieceDone,
    /// The record of it; `None` until that is durable, then held until the write ends.
    pub(crate) entered: Option<Entered>,
}

impl WriteArgs {
    /// Tells whoever sent the write how it has ended. What was recorded for it is released before.
    // Called at the end of every write, which is large: inlined, nothing of it has to be moved for that.
    #[inline(always)]
    pub(crate) fn finish(self, mesh: &Mesh, result: Result<(), IoError>) {
        let WriteArgs { payload, done, entered, .. } = self;
        drop(entered);
        let payload = match payload {
            WritePayload::Data(buf) => Some(buf),
            WritePayload::Zeroes { .. } => None,
        };
        done.finish(mesh, result, None, payload);
    }
}

/// The payload.
pub(crate) enum WritePayload {
    /// These bytes, as many as the extent has.
    Data(Buf),
    /// Zeroes; with `unmap` members may release the space.
    Zeroes { unmap: bool },
}

/// The recovery of one part of a read.
pub(crate) struct RecoverArgs {
    /// Array byte of the part; it lies within one chunk or region.
    pub(crate) offset: u64,
    pub(crate) buf: BufMut,
    pub(crate) done: PieceDone,
    /// The error of the member that should have given the part; `None` when the slot has no usable member.
    pub(crate) error: Option<IoError>,
}
