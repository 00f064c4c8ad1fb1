//! Reading and writing the superblock of one member, before and outside of any running array.
//!
//! Knows the places where a superblock may stand and how its bytes go to the device; what it means
//! is for `create` and `assemble`.

use crate::error::ExamineError;
use braid_device::{Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, Opener, Request};
use braid_format::SECTOR;
use braid_format::heartbeat::{self, Found, Heartbeat};
use braid_format::superblock::{
    READ_LEN, Superblock, SuperblockError, Version, candidates, choose,
};
use braid_shard::plant::planted;
use braid_shard::{Buf, BufMut, Shard};
use std::rc::Rc;

/// The array metadata found on a device.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The device's name, as it was opened.
    pub name: String,
    /// The device.
    pub device: DeviceInfo,
    /// Its superblock, when it is a member of an array.
    pub superblock: Option<Superblock>,
}

/// Opens a device on this shard and reads its superblock; writes nothing.
///
/// # Errors
/// When it does not open, cannot be read, or has a superblock that cannot be used.
pub async fn examine(shard: &Shard, opener: &dyn Opener) -> Result<Examined, ExamineError> {
    let device = opener.open(shard)?;
    let name = opener.name().to_string();
    let superblock = read_superblock(shard, &device, &name).await?;
    Ok(Examined { name, device: device.info().clone(), superblock })
}

/// Sectors of a device.
pub(crate) fn sectors(info: &DeviceInfo) -> u64 {
    info.size / SECTOR as u64
}

pub(crate) async fn read_superblock(
    shard: &Shard,
    device: &Rc<dyn Device>,
    name: &str,
) -> Result<Option<Superblock>, ExamineError> {
    Ok(read_with_beat(shard, device, name).await?.0)
}

/// Also the heartbeat that stands where a superblock of version 1.1 would.
pub(crate) async fn read_with_beat(
    shard: &Shard,
    device: &Rc<dyn Device>,
    name: &str,
) -> Result<(Option<Superblock>, Option<Heartbeat>), ExamineError> {
    let dev_sectors = sectors(device.info());
    let mut parsed = Vec::new();
    let mut beat = None;
    let mut unreadable = None;
    for (version, at) in candidates(dev_sectors) {
        let offset = at * SECTOR as u64;
        match read(shard, device, offset, READ_LEN).await {
            Ok(bytes) => {
                if at == heartbeat::SECTOR
                    && let Found::Beat(found) = Found::parse(&bytes)
                {
                    beat = Some(found);
                }
                parsed.push(Superblock::parse(&bytes, version, at, dev_sectors));
            }
            // A place of another version may lie within the data, which can do without a block.
            Err(error) if error.kind == IoErrorKind::Medium => {
                let bytes = read_what_can_be(shard, device, offset, READ_LEN).await;
                match Superblock::parse(&bytes, version, at, dev_sectors) {
                    Ok(found) => parsed.push(Ok(found)),
                    Err(_) => {
                        unreadable.get_or_insert((offset, error));
                    }
                }
            }
            Err(error) => return Err(ExamineError::Read { name: name.to_string(), offset, error }),
        }
    }
    match (choose(parsed), unreadable) {
        (Ok(None), Some((offset, error))) if !planted("unread-as-free") => {
            Err(ExamineError::Read { name: name.to_string(), offset, error })
        }
        (chosen, _) => {
            let chosen =
                chosen.map_err(|error| ExamineError::Superblock { name: name.to_string(), error });
            Ok((chosen?, beat))
        }
    }
}

/// Bytes `offset..offset + len` of a device.
pub(crate) async fn read(
    shard: &Shard,
    device: &Rc<dyn Device>,
    offset: u64,
    len: usize,
) -> Result<BufMut, IoError> {
    let request = Request::read(offset, shard.pool().get(len));
    request.check(device.info())?;
    let outcome = IoSets::new(shard).one(&**device, request).await;
    outcome.result?;
    match outcome.op {
        Op::Read(mut bufs) => bufs.pop().ok_or(IoError::new(IoErrorKind::Invalid)),
        _ => Err(IoError::new(IoErrorKind::Invalid)),
    }
}

/// The same block by block, with zeroes for those that cannot be read: a superblock seldom needs all that is read
/// for it, and its checksum says whether it has what it needs.
async fn read_what_can_be(
    shard: &Shard,
    device: &Rc<dyn Device>,
    offset: u64,
    len: usize,
) -> Vec<u8> {
    let block = device.info().logical_block.max(SECTOR as u32) as usize;
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        let part = block.min(len - all.len());
        match read(shard, device, offset + all.len() as u64, part).await {
            Ok(bytes) => all.extend_from_slice(&bytes),
            Err(_) => all.resize(all.len() + part, 0),
        }
    }
    all
}

/// Writes `bytes` at `offset`, durably.
pub(crate) async fn write(
    shard: &Shard,
    device: &Rc<dyn Device>,
    offset: u64,
    bytes: Buf,
) -> Result<(), IoError> {
    let request = Request::write(offset, bytes, true);
    request.check(device.info())?;
    IoSets::new(shard).one(&**device, request).await.result
}

/// A superblock as it goes to a device with blocks of `block` bytes.
pub(crate) fn superblock_bytes(shard: &Shard, superblock: &Superblock, block: u32) -> Buf {
    let bytes = superblock.to_bytes();
    let padded = bytes.len().next_multiple_of(block.max(SECTOR as u32) as usize);
    let mut buf = shard.pool().zeroed(padded);
    // `padded` is at least the length of `bytes`.
    if let Some(head) = buf.get_mut(..bytes.len()) {
        head.copy_from_slice(&bytes);
    }
    buf.freeze()
}

/// Zeroes what looks like a superblock at every place but that of `keep`, so that no earlier array
/// is found on the device later. Where a place cannot be read nothing is found either; it may lie within the data.
pub(crate) async fn remove_other_superblocks(
    shard: &Shard,
    device: &Rc<dyn Device>,
    keep: Version,
) -> Result<(), IoError> {
    let dev_sectors = sectors(device.info());
    for (version, at) in candidates(dev_sectors) {
        if version == keep {
            continue;
        }
        let offset = at * SECTOR as u64;
        let old = match read(shard, device, offset, READ_LEN).await {
            Err(error) if error.kind == IoErrorKind::Medium => continue,
            old => old?,
        };
        let parsed = Superblock::parse(&old, version, at, dev_sectors);
        if !matches!(parsed, Err(SuperblockError::NoMagic { .. })) {
            write(shard, device, offset, shard.pool().zeroed(READ_LEN).freeze()).await?;
        }
    }
    Ok(())
}
