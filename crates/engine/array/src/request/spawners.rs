//! The kinds of tasks that engines start for requests, with one slab each per shard.

use crate::engine::Engine;
use crate::metadata::bitmap::intent::Entered;
use crate::request::route::PieceDone;
use crate::state::extent::Extent;
use braid_device::{Completion, IoError};
use braid_shard::{Buf, BufMut, Shard, Spawner};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// The arguments of a write of one unit.
pub(crate) struct WriteArgs {
    pub(crate) engine: Rc<Engine>,
    pub(crate) unit: u64,
    /// Bytes of the unit's data.
    pub(crate) extent: Extent,
    pub(crate) payload: WritePayload,
    pub(crate) fua: bool,
    pub(crate) done: PieceDone,
    /// Its bits in the bitmap, none where the array has none; held until it ends.
    pub(crate) intent: Option<Entered>,
}

impl WriteArgs {
    /// Tells whoever sent the write how it has ended. Its bits in the bitmap are given up before.
    pub(crate) fn finish(self, result: Result<(), IoError>) {
        let WriteArgs { engine, payload, done, intent, .. } = self;
        drop(intent);
        let payload = match payload {
            WritePayload::Data(buf) => Some(buf),
            WritePayload::Zeroes { .. } => None,
        };
        done.finish(&engine, result, None, payload);
    }
}

/// The arguments of the leader of a stripe's writes.
pub(crate) struct LeadArgs {
    pub(crate) engine: Rc<Engine>,
    pub(crate) unit: u64,
    /// A write of all of the stripe, which needs not wait for others.
    pub(crate) whole: Option<WriteArgs>,
}

/// The payload.
pub(crate) enum WritePayload {
    /// These bytes, as many as the extent has.
    Data(Buf),
    /// Zeroes; with `unmap` members may release the space.
    Zeroes { unmap: bool },
}

/// The arguments of the recovery of one part of a read.
pub(crate) struct RecoverArgs {
    pub(crate) engine: Rc<Engine>,
    /// Array byte of the part; it lies within one chunk or region.
    pub(crate) offset: u64,
    pub(crate) buf: BufMut,
    pub(crate) done: PieceDone,
    /// The error of the member that should have given the part; `None` when the slot has no usable member.
    pub(crate) error: Option<IoError>,
}

/// See the module's documentation.
pub(crate) struct Spawners {
    pub(crate) record: Spawner<WriteArgs>,
    pub(crate) parity_write: Spawner<LeadArgs>,
    pub(crate) parity_recover: Spawner<RecoverArgs>,
    pub(crate) mirror_write: Spawner<WriteArgs>,
    pub(crate) mirror_recover: Spawner<RecoverArgs>,
    pub(crate) flush: Spawner<(Rc<Engine>, Rc<Cell<u64>>, Completion)>,
}

#[derive(Default)]
struct PerShard(OnceCell<Rc<Spawners>>);

impl Spawners {
    /// The spawners of `shard`, shared by all arrays on it.
    pub(crate) fn of(shard: &Shard) -> Rc<Spawners> {
        let per_shard = shard.local::<PerShard>();
        Rc::clone(per_shard.0.get_or_init(|| {
            Rc::new(Spawners {
                record: shard.spawner(crate::metadata::bitmap::intent::record_then_write),
                parity_write: shard.spawner(crate::write::waiting::lead),
                parity_recover: shard.spawner(crate::read::from_parity::recover),
                mirror_write: shard.spawner(crate::write::copies::write),
                mirror_recover: shard.spawner(crate::read::from_copies::recover),
                flush: shard.spawner(|(engine, told, done)| {
                    crate::request::flush::flush(engine, told, done)
                }),
            })
        }))
    }
}
