//! A row of which data alone was logged, made whole: what it holds besides, and its parity.

use crate::metadata::holder::Holder;
use crate::redundancy::blocks::Blocks;
use braid_device::{IoError, IoErrorKind};
use braid_format::journal::BLOCK;
use braid_layout::{Parity, Slot};
use braid_shard::{Buf, Shard};
use std::ops::Range;

/// The blocks of a row.
pub(super) struct Row {
    /// Those that were logged: array sector, slot and content.
    pub(super) data: Vec<(u64, Slot, Buf)>,
    pub(super) p: Buf,
    pub(super) q: Option<Buf>,
    /// Some block was recovered from parity that does not match any more when one of the others has been written.
    pub(super) from_parity: bool,
}

/// Makes a row whole, of component bytes `bytes`, in which `logged` is new: array sectors and content. `None`: too much
/// of the rest of it is missing.
pub(super) async fn whole(
    shard: &Shard,
    parity: &Parity,
    holders: &[Holder],
    bytes: &Range<u64>,
    logged: Vec<(u64, Buf)>,
) -> Result<Option<Row>, (String, IoError)> {
    let stripe = bytes.start / parity.chunk_size();
    let map = parity.map_stripe(stripe);
    let width = parity.q_width();
    let chunk_of = |sector: u64| parity.locate(sector * 512).1;
    let data: Vec<(u64, Slot, Buf)> = logged
        .into_iter()
        .map(|(sector, block)| (sector, map.data_slot(chunk_of(sector)), block))
        .collect();
    let is_new = |slot: Slot| data.iter().any(|(_, new, _)| *new == slot);
    let mut old = Blocks::new(map, width);
    let others = (0..map.data_chunks()).map(|k| map.data_slot(k)).filter(|slot| !is_new(*slot));
    let mut lacks = false;
    for slot in others {
        lacks |= !read(shard, holders, slot, bytes, &mut old).await?;
    }
    if lacks {
        let rest = (0..parity.slots()).filter(|slot| old.get(*slot).is_none());
        for slot in rest.collect::<Vec<_>>() {
            read(shard, holders, slot, bytes, &mut old).await?;
        }
        if old.complete_data(shard.pool(), BLOCK).is_err() {
            return Ok(None);
        }
    }
    let mut new = Blocks::new(map, width);
    for k in 0..map.data_chunks() {
        let slot = map.data_slot(k);
        let logged = data.iter().find(|(_, own, _)| *own == slot).map(|(_, _, block)| block);
        if let Some(block) = logged.or(old.get(slot)) {
            new.set(slot, block.slice(0..BLOCK));
        }
    }
    let mut p = shard.pool().get(BLOCK);
    let mut q = map.q_slot().map(|_| shard.pool().get(BLOCK));
    if new.parity(Some(&mut p), q.as_deref_mut()).is_err() {
        return Ok(None);
    }
    Ok(Some(Row { data, p: p.freeze(), q: q.map(|q| q.freeze()), from_parity: lacks }))
}

/// Reads the block of a slot. False: nobody has it.
async fn read(
    shard: &Shard,
    holders: &[Holder],
    slot: Slot,
    bytes: &Range<u64>,
    blocks: &mut Blocks,
) -> Result<bool, (String, IoError)> {
    let holder = holders.iter().find(|holder| holder.slot == slot);
    let Some(holder) = holder.filter(|holder| holder.holds(bytes)) else { return Ok(false) };
    match holder.read(shard, bytes).await {
        Ok(block) => {
            blocks.set(slot, block.freeze());
            Ok(true)
        }
        Err(error) if error.kind == IoErrorKind::Medium => Ok(false),
        Err(error) => Err((holder.name.clone(), error)),
    }
}
