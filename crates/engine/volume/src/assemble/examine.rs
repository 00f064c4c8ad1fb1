//! The two superblocks of one device: read, written and erased.
//!
//! This module does not know other bricks.

use super::error::AssembleError;
use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Request};
use braid_format::brick::{
    BLOCK, BrickError, BrickSuperblock, Copy, SUPERBLOCK_LEN, choose, second_copy_at, usable_size,
};
use braid_shard::{Buf, BufMut, Shard};
use std::fmt;
use std::rc::Rc;

/// A device that holds a brick.
#[derive(Clone)]
pub struct FoundBrick {
    /// The device.
    pub device: Rc<dyn Device>,
    /// Its superblock.
    pub superblock: BrickSuperblock,
    /// Notes on it for the user: one sentence each, none in the ordinary case.
    pub notes: Vec<String>,
    /// The copy to be written first: the older or damaged one, so that the other stays whole meanwhile.
    pub(super) begin_with: Half,
}

impl FoundBrick {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.device.info().name
    }
}

impl fmt::Debug for FoundBrick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundBrick")
            .field("device", &self.name())
            .field("superblock", &self.superblock)
            .finish_non_exhaustive()
    }
}

/// Reads which brick a device holds; writes nothing.
///
/// # Errors
/// [`AssembleError::NotABrick`] where it holds none; else why what it holds cannot be used.
pub async fn examine(shard: &Shard, device: Rc<dyn Device>) -> Result<FoundBrick, AssembleError> {
    look_at(shard, device, false).await
}

/// The same of a brick from which files are only to be saved: also of one whose first block holds something else by now, which is
/// refused otherwise because it may be somebody's.
///
/// # Errors
/// As [`examine`].
pub async fn examine_to_save(
    shard: &Shard,
    device: Rc<dyn Device>,
) -> Result<FoundBrick, AssembleError> {
    look_at(shard, device, true).await
}

async fn look_at(
    shard: &Shard,
    device: Rc<dyn Device>,
    to_save: bool,
) -> Result<FoundBrick, AssembleError> {
    let info = device.info().clone();
    let name = || info.name.clone();
    fits(&info.name, info.logical_block)?;
    if second_copy_at(info.size).is_none() {
        return Err(AssembleError::NotABrick { device: name() });
    }
    let first = read(shard, &*device, 0).await;
    // On a device that grew, the second copy is where the first says.
    let parsed = first.as_ref().ok().map(|bytes| BrickSuperblock::parse(bytes, 0, info.size));
    let size = match parsed {
        Some(Ok(superblock)) => superblock.brick_size,
        _ => usable_size(info.size),
    };
    // The size is that of two blocks at least.
    let second_at = second_copy_at(size).unwrap_or_default();
    let second = read(shard, &*device, second_at).await;
    if let (Err(error), Err(_)) = (&first, &second) {
        return Err(AssembleError::Io { device: name(), doing: "reading", error: *error });
    }
    let bytes = |read: &'_ Result<BufMut, IoError>| read.as_ref().ok().map(|buf| buf.to_vec());
    let (first, second) = (bytes(&first), bytes(&second));
    let second = second.as_deref().map(|bytes| (second_at, bytes));
    let mut chosen = choose(first.as_deref(), second, info.size);
    let is_overwritten = matches!(chosen, Err(BrickError::Overwritten { .. }));
    if is_overwritten && to_save {
        chosen = choose(None, second, info.size);
    }
    match chosen {
        Ok(chosen) => {
            let note = |error: &BrickError| {
                let (name, is) = (&info.name, "one of its two superblocks is damaged");
                match (is_overwritten, to_save) {
                    (true, _) => format!(
                        "{name}: its first 4096 bytes hold something else than its superblock; the one at its end was taken"
                    ),
                    (false, true) => format!("{name}: {is}; the other one was taken ({error})"),
                    (false, false) => {
                        format!("{name}: {is} and is written again at the mount ({error})")
                    }
                }
            };
            let notes = chosen.other.iter().map(note).collect();
            let begin_with = match (chosen.from, chosen.other_is_stale) {
                (Copy::First, true) => Half::Second,
                _ => Half::First,
            };
            Ok(FoundBrick { device, superblock: chosen.superblock, notes, begin_with })
        }
        Err(BrickError::NotABrick { .. } | BrickError::TooShort { .. }) => {
            Err(AssembleError::NotABrick { device: name() })
        }
        Err(error) => Err(AssembleError::Superblock { device: name(), error }),
    }
}

/// Success if superblocks can be written to a device with such blocks.
pub(crate) fn fits(device: &str, logical_block: u32) -> Result<(), AssembleError> {
    if logical_block > 0 && BLOCK.is_multiple_of(logical_block.into()) {
        return Ok(());
    }
    Err(AssembleError::LogicalBlock { device: device.to_string(), logical_block })
}

async fn read(shard: &Shard, device: &dyn Device, at: u64) -> Result<BufMut, IoError> {
    let request = Request::read(at, shard.pool().get(SUPERBLOCK_LEN));
    request.check(device.info())?;
    let outcome = IoSets::new(shard).one(device, request).await;
    outcome.result?;
    match outcome.op {
        Op::Read(mut bufs) => bufs.pop().ok_or(IoError::new(IoErrorKind::Invalid)),
        _ => Err(IoError::new(IoErrorKind::Invalid)),
    }
}

/// One of a brick's two superblocks.
#[derive(Clone, Copy)]
pub(crate) enum Half {
    First,
    Second,
}

impl Half {
    /// The other one.
    pub(super) fn other(self) -> Half {
        match self {
            Half::First => Half::Second,
            Half::Second => Half::First,
        }
    }
}

/// The request that writes a superblock durably.
pub(crate) fn write_request(shard: &Shard, superblock: &BrickSuperblock, half: Half) -> Request {
    let bytes = shard.pool().copy_of(&superblock.to_bytes()).freeze();
    copy_request(superblock, half, bytes)
}

fn copy_request(superblock: &BrickSuperblock, half: Half, bytes: Buf) -> Request {
    let at = match half {
        Half::First => 0,
        Half::Second => second_copy_at(superblock.brick_size).unwrap_or_default(),
    };
    Request::write(at, bytes, true)
}

/// Overwrites both superblocks with zeros, the first before the second: as long as one is left, it is a brick.
pub(crate) async fn erase(
    shard: &Shard,
    device: &dyn Device,
    superblock: &BrickSuperblock,
) -> Result<(), AssembleError> {
    for half in [Half::First, Half::Second] {
        let zeros = shard.pool().zeroed(SUPERBLOCK_LEN).freeze();
        let request = copy_request(superblock, half, zeros);
        let outcome = IoSets::new(shard).one(device, request).await;
        outcome.result.map_err(|error| AssembleError::Io {
            device: device.info().name.clone(),
            doing: "erasing",
            error,
        })?;
    }
    Ok(())
}
