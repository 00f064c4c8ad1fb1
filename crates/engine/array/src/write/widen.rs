//! Writes of less than whole blocks of a journal, widened to those: what they leave alone of the blocks is read, with their
//! rows locked.

use crate::engine::Engine;
use crate::engine::mesh::PieceDone;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::read::from_parity::recover_rows;
use crate::state::extent::Extent;
use braid_device::IoError;
use braid_layout::Parity;
use std::rc::Rc;

/// `extent`, widened to whole blocks of `block` bytes.
fn whole_blocks(extent: Extent, block: u64) -> Extent {
    Extent { start: extent.start / block * block, end: extent.end.next_multiple_of(block) }
}

/// The write consists of whole blocks.
pub(super) fn is_whole(piece: &WriteArgs, block: u64) -> bool {
    whole_blocks(piece.extent, block) == piece.extent
}

/// The write `piece` of stripe `stripe` in whole blocks.
///
/// # Errors
/// What it leaves alone of them is nowhere to be had.
pub(super) async fn widen(
    engine: &Rc<Engine>,
    parity: &Parity,
    stripe: u64,
    piece: &WriteArgs,
    block: u64,
) -> Result<WriteArgs, IoError> {
    let (old, new) = (piece.extent, whole_blocks(piece.extent, block));
    // At most a stripe.
    let mut buf = engine.shard.pool().get((new.end - new.start) as usize);
    let at = |byte: u64| (byte - new.start) as usize;
    let (first, last) = (new.start, new.end - block);
    let partly = [
        (first, old.start > first || old.end < first + block),
        (last, last > first && old.end < new.end),
    ];
    for (start, partly) in partly {
        if partly {
            let mut kept = engine.shard.pool().get(block as usize);
            let offset = stripe * parity.stripe_size() + start;
            recover_rows(engine, parity, offset, &mut kept, None).await?;
            if let Some(place) = buf.get_mut(at(start)..at(start + block)) {
                place.copy_from_slice(&kept);
            }
        }
    }
    if let Some(place) = buf.get_mut(at(old.start)..at(old.end)) {
        match &piece.payload {
            WritePayload::Data(bytes) => place.copy_from_slice(bytes),
            WritePayload::Zeroes { .. } => place.fill(0),
        }
    }
    let payload = WritePayload::Data(buf.freeze());
    let (unit, fua) = (piece.unit, piece.fua);
    Ok(WriteArgs { unit, extent: new, payload, fua, done: PieceDone::Nobody, entered: None })
}
