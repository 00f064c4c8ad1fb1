//! Free space told to the devices (fstrim(8)).

use super::brick::Brick;
use super::bricks::Bricks;
use super::space::SpaceError;
use super::words::Run;
use crate::gate::Gate;
use crate::transactions::Transactions;
use braid_device::{Op, Request};
use braid_filesystem::{Errno, TrimRange};
use braid_format::volume::BLOCK;
use braid_shard::plant::planted;
use std::ops::Range;
use std::rc::Rc;

/// See [`braid_filesystem::FileSystem::trim`]. Positions are those of the data areas of the bricks, one after the other by
/// number. Space that was freed in a transaction that is not durable yet is not told, and neither is that of a brick whose end is
/// being given up.
///
/// # Errors
/// [`Errno::Unsupported`] when no brick takes discards; when a brick or the store fails.
pub async fn trim(
    bricks: &Bricks,
    transactions: &Transactions,
    gate: &Rc<Gate>,
    range: TrimRange,
) -> Result<u64, Errno> {
    let end = range.start.saturating_add(range.len);
    let (mut first, mut trimmed, mut is_supported) = (0, 0, false);
    for brick in bricks.all() {
        let last = first + brick.space.blocks() * BLOCK;
        let within = range.start.max(first)..end.min(last);
        if brick.device().is_some_and(|device| device.info().discards) {
            is_supported = true;
            if !within.is_empty() {
                let blocks = (within.start - first).div_ceil(BLOCK)..(within.end - first) / BLOCK;
                trimmed +=
                    trim_brick(bricks, transactions, gate, &brick, blocks, range.min_len).await?;
            }
        }
        first = last;
    }
    if is_supported { Ok(trimmed) } else { Err(Errno::Unsupported) }
}

async fn trim_brick(
    bricks: &Bricks,
    transactions: &Transactions,
    gate: &Rc<Gate>,
    brick: &Rc<Brick>,
    blocks: Range<u64>,
    min_len: u64,
) -> Result<u64, Errno> {
    let (mut at, mut trimmed) = (blocks.start, 0);
    loop {
        let _gate = gate.enter().await;
        // It may have been detached since the last step: its device is somebody else's then.
        if !bricks.get(brick.id).is_some_and(|known| Rc::ptr_eq(&known, brick)) {
            return Ok(trimmed);
        }
        let found = brick.space.reserve_to_trim(transactions, at..blocks.end).await;
        let found = found.map_err(|error| match error {
            SpaceError::Store(_) => Errno::Io,
            SpaceError::Record(error) => transactions.damaged(&error),
        })?;
        let Some((start, len)) = found else { return Ok(trimmed) };
        if planted("trimmed-while-given") {
            brick.space.trimmed((start, len));
        }
        let discarded = match len * BLOCK >= min_len {
            true => discard(bricks, brick, (start, len)).await.map(|()| len * BLOCK),
            false => Ok(0),
        };
        if !planted("trimmed-while-given") {
            brick.space.trimmed((start, len));
        }
        trimmed += discarded?;
        at = start + len;
    }
}

async fn discard(bricks: &Bricks, brick: &Brick, run: Run) -> Result<(), Errno> {
    let request = Request { offset: brick.byte_of(run.0), op: Op::Discard { len: run.1 * BLOCK } };
    bricks.write(brick, request).await
}
