//! The records of a volume, and the bytes of its files, as far as they can be read.
//!
//! Invariant: bytes that it gives are those that the metadata names; what it cannot read, and what may be old, it says.

use crate::error::VolumeError;
use crate::stripes::Geometry;
use braid_device::{Device, IoErrorKind, IoSets, Op, Request};
use braid_format::brick::BrickSuperblock;
use braid_format::volume::entry::ByName;
use braid_format::volume::extent::{self, Extent, PER_GROUP};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::{BLOCK, keys};
use braid_kv::{KvStore, Pair, Store, StoreError};
use braid_shard::Shard;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Pairs that are asked for at a time.
const AT_ONCE: usize = 512;

/// A brick that data can be read from.
pub(super) struct Source {
    pub device: Rc<dyn Device>,
    pub superblock: BrickSuperblock,
    /// Why what it holds may be old, if it may.
    pub doubt: Option<String>,
}

/// A volume that is only read.
pub struct Salvage {
    pub(super) shard: Shard,
    pub(super) geometry: Geometry,
    pub(super) bricks: BTreeMap<u16, Source>,
    pub(super) store: KvStore,
    /// Why the metadata may be old, and what it names another file's, if it may.
    pub(super) doubt: Option<String>,
    /// The volume's name.
    pub name: String,
    /// Faults of bricks and metadata as a whole: one sentence each.
    pub notes: Vec<String>,
}

/// Records that were found, and whether others lay in damaged parts of the metadata.
#[derive(Debug)]
pub struct Records<T> {
    /// Those that could be read.
    pub found: Vec<T>,
    /// Why there may be more, one sentence for each reason.
    pub damaged: Vec<String>,
}

/// A part of a file that is lost, or that may be old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Bytes of the file.
    pub bytes: Range<u64>,
    /// Why.
    pub why: String,
}

impl Salvage {
    /// The attributes of a file; `None` when there is no such file.
    ///
    /// # Errors
    /// The record is damaged or cannot be read.
    pub async fn inode(&self, ino: u64) -> Result<Option<InodeRecord>, VolumeError> {
        let bytes = self.store.get(&keys::inode(ino)).await?;
        Ok(bytes.map(|bytes| InodeRecord::parse(ino, &bytes)).transpose()?)
    }

    /// The entries of a directory.
    pub async fn entries(&self, directory: u64) -> Records<(Vec<u8>, ByName)> {
        self.records(&keys::name(directory, b""), |key, value| {
            let name = keys::name_of(key).unwrap_or_default().to_vec();
            Ok((name, ByName::parse(value)?))
        })
        .await
    }

    /// The numbers of all files that have attributes, with or without a name.
    pub async fn inodes(&self) -> Records<u64> {
        self.records(b"I", |key, _| keys::ino_of(key).ok_or(VolumeError::Empty)).await
    }

    /// The extended attributes of a file.
    pub async fn attributes(&self, ino: u64) -> Records<(Vec<u8>, Vec<u8>)> {
        self.records(&keys::xattr(ino, b""), |key, value| {
            Ok((keys::name_of(key).unwrap_or_default().to_vec(), value.to_vec()))
        })
        .await
    }

    async fn records<T>(
        &self,
        prefix: &[u8],
        parse: impl Fn(&[u8], &[u8]) -> Result<T, VolumeError>,
    ) -> Records<T> {
        let (pairs, error) = all_of(&self.store, prefix).await;
        let mut damaged: Vec<String> = error.iter().map(StoreError::to_string).collect();
        let mut found = Vec::new();
        for (key, value) in pairs {
            match parse(&key, &value) {
                Ok(record) => found.push(record),
                Err(error) => damaged.push(error.to_string()),
            }
        }
        Records { found, damaged }
    }

    /// Gives the bytes of a file of `size` bytes to `take`, with where they lie, in order; holes are left out, and so is what
    /// is lost. The result is that, and what may be old. `take` is false when nothing further is wanted.
    pub async fn read(
        &self,
        ino: u64,
        size: u64,
        mut take: impl FnMut(u64, &[u8]) -> bool,
    ) -> Vec<LostRange> {
        let mut lost: Vec<LostRange> = Vec::new();
        let of_group = self.geometry.stripe.saturating_mul(PER_GROUP);
        // By what is recorded, not by the size: a damaged one may be any number.
        let (groups, error) = all_of(&self.store, &extents_of(ino)).await;
        if let Some(error) = error {
            let why = format!("where some of these bytes lie is lost: {error}");
            lost.push(LostRange { bytes: 0..size, why });
        }
        for (key, value) in groups {
            let Some(group) = keys::second_of(&key) else { continue };
            let start = group.saturating_mul(of_group);
            let bytes = start..start.saturating_add(of_group).min(size);
            if bytes.is_empty() {
                // Cut off the file.
                continue;
            }
            let extents = match extent::parse(ino, group, self.geometry.stripe, &value) {
                Ok(extents) => extents,
                Err(error) => {
                    add(&mut lost, LostRange { bytes, why: error.to_string() });
                    continue;
                }
            };
            for (number, extent) in extents.iter().enumerate().filter(|(_, one)| !one.is_hole()) {
                let at = start + number as u64 * self.geometry.stripe;
                if !self.read_stripe(*extent, at, size, &mut take, &mut lost).await {
                    return lost;
                }
            }
        }
        lost
    }

    /// The bytes of the stripe at `at`. False when nothing further is wanted.
    async fn read_stripe(
        &self,
        extent: Extent,
        at: u64,
        size: u64,
        take: &mut impl FnMut(u64, &[u8]) -> bool,
        lost: &mut Vec<LostRange>,
    ) -> bool {
        let held = self.geometry.stripe.min(u64::from(extent.blocks) * BLOCK);
        for (run, written) in self.geometry.runs(extent, 0, held) {
            let end = (at + run.end).min(size);
            if !written || at + run.start >= end {
                continue;
            }
            let mut pieces = vec![run];
            while let Some(piece) = pieces.pop() {
                let bytes = at + piece.start..(at + piece.end).min(size);
                if bytes.is_empty() {
                    continue;
                }
                match self.read_blocks(extent, piece.clone()).await {
                    Ok(found) => {
                        let count = (bytes.end - bytes.start) as usize;
                        if !take(bytes.start, found.get(..count).unwrap_or(&found)) {
                            return false;
                        }
                        let brick = self.bricks.get(&extent.brick);
                        let doubt = brick.and_then(|brick| brick.doubt.as_ref());
                        if let Some(why) = doubt.or(self.doubt.as_ref()) {
                            add(lost, LostRange { bytes, why: why.clone() });
                        }
                    }
                    // Some of it may be readable yet: halves, the first of them next.
                    Err((_, true)) if piece.end - piece.start > BLOCK => {
                        let half = (piece.end - piece.start) / BLOCK / 2 * BLOCK;
                        let middle = piece.start + half;
                        pieces.extend([middle..piece.end, piece.start..middle]);
                    }
                    Err((why, _)) => add(lost, LostRange { bytes, why }),
                }
            }
        }
        true
    }

    /// Bytes `range` of an extent, whole blocks; else why not, and true if a shorter read may succeed.
    async fn read_blocks(
        &self,
        extent: Extent,
        range: Range<u64>,
    ) -> Result<braid_shard::BufMut, (String, bool)> {
        let Source { device, superblock, .. } =
            self.bricks.get(&extent.brick).ok_or_else(|| {
                (format!("brick {} is not there, or cannot be used", extent.brick), false)
            })?;
        let name = &device.info().name;
        let end = extent.start.checked_add(extent.blocks.into());
        if end.is_none_or(|end| end > superblock.data.len / BLOCK) {
            let why = format!("the metadata names blocks that brick {} has not", extent.brick);
            return Err((why, false));
        }
        let offset = superblock.data.offset + extent.start * BLOCK + range.start;
        let room = self.shard.pool().get((range.end - range.start) as usize);
        let outcome = IoSets::new(&self.shard).one(&**device, Request::read(offset, room)).await;
        let failed = |error: braid_device::IoError| {
            (format!("reading {name} failed: {error}"), !error.means_gone())
        };
        outcome.result.map_err(failed)?;
        match outcome.op {
            Op::Read(mut bufs) => {
                bufs.pop().ok_or_else(|| failed(braid_device::IoError::new(IoErrorKind::Invalid)))
            }
            _ => Err(failed(braid_device::IoError::new(IoErrorKind::Invalid))),
        }
    }

    /// Ends the store.
    pub async fn close(self) {
        // Its writes stand in memory.
        let _ = self.store.stop().await;
    }
}

/// All pairs whose keys begin with `prefix`, up to the first that cannot be read, and why it cannot. The store ends with a
/// damaged page, so what comes after it is lost with it.
async fn all_of(store: &impl Store, prefix: &[u8]) -> (Vec<Pair>, Option<StoreError>) {
    let (mut found, mut from, to) = (Vec::new(), prefix.to_vec(), keys::after(prefix));
    loop {
        match store.scan(&from, &to, AT_ONCE).await {
            Ok(pairs) => {
                let ended = pairs.len() < AT_ONCE;
                if let Some((last, _)) = pairs.last() {
                    from = last.clone();
                    // The first key after it.
                    from.push(0);
                }
                found.extend(pairs);
                if ended {
                    return (found, None);
                }
            }
            Err(error) => return (found, Some(error)),
        }
    }
}

/// The beginning of the keys of all extents of a file.
fn extents_of(ino: u64) -> Vec<u8> {
    let mut prefix = keys::extents(ino, 0);
    // A tag and the file; the group follows.
    prefix.truncate(9);
    prefix
}

/// Adds a range, to the one before it where it goes on with it for the same reason.
fn add(lost: &mut Vec<LostRange>, more: LostRange) {
    match lost.last_mut() {
        Some(last) if last.bytes.end == more.bytes.start && last.why == more.why => {
            last.bytes.end = more.bytes.end;
        }
        _ => lost.push(more),
    }
}
