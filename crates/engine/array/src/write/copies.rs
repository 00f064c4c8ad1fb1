//! Writes of part of one unit to all its copies.

use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::engine::Engine;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::redundancy::copies::places;
use crate::state::extent::Extent;
use crate::state::view::View;
use crate::write::members::write_members;
use crate::write::write_errors::handle_write_errors;
use braid_device::{IoError, IoErrorKind};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Carries out one write and tells `done`.
pub(crate) async fn write(engine: Rc<Engine>, args: WriteArgs) {
    let result = write_copies(&engine, &args).await;
    args.finish(&engine.mesh, result);
}

async fn write_copies(engine: &Rc<Engine>, args: &WriteArgs) -> Result<(), IoError> {
    let WriteArgs { unit, extent, payload, .. } = args;
    // Overlapping writes must reach all copies in the same order.
    let end = if planted("copies-unlocked") { extent.start } else { extent.end };
    let _held = match engine.locks.try_lock(*unit, extent.start, end) {
        Some(held) => held,
        None => engine.locks.lock(*unit, extent.start, end).await,
    };
    let writing = match engine.try_begin_write() {
        Some(writing) => writing,
        None => engine.begin_write().await?,
    };
    let view = engine.view();
    let by_member = matches!(payload, WritePayload::Zeroes { .. })
        && view.devices().all(|(_, device)| device.info().writes_zeroes);
    let copies = Copies { engine, view: &view, args, by_member };
    let set = engine.sets.start();
    let outcomes = write_members(engine, &view, &writing, set, &copies).await?;
    if outcomes.len() == 0 {
        return Err(IoError::new(IoErrorKind::Lost));
    }
    if !view.any_bad() && !outcomes.any_error(|_| true) {
        return Ok(());
    }
    handle_write_errors(engine, &view, *unit, outcomes).await
}

/// The copies of what is written.
struct Copies<'a> {
    engine: &'a Rc<Engine>,
    view: &'a Rc<View>,
    args: &'a WriteArgs,
    /// Members make zeroes by themselves.
    by_member: bool,
}

impl Outgoing for Copies<'_> {
    fn unit(&self) -> u64 {
        self.args.unit
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        std::iter::once(self.args.extent)
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let WriteArgs { unit, extent, payload, .. } = self.args;
        let len = extent.end - extent.start;
        let places = places(self.view, *unit, extent.start).into_iter().filter(|place| {
            !planted("target-left-out")
                || self.view.readable(place.slot, &(place.offset..place.offset))
        });
        places.map(move |place| {
            let content = match payload {
                WritePayload::Data(buf) => Content::Bytes(buf.clone()),
                WritePayload::Zeroes { unmap } if self.by_member => {
                    Content::Zeroes { len, unmap: *unmap }
                }
                WritePayload::Zeroes { .. } => {
                    Content::Bytes(self.engine.scratch.zeroes(len as usize))
                }
            };
            Block { slot: place.slot, at: place.offset, role: Role::Data, content }
        })
    }

    fn fua(&self) -> bool {
        self.args.fua
    }
}
