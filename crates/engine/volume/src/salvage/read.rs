//! The records of a volume, and the bytes of its files, as far as they can be read.
//!
//! Invariant: bytes that it gives are those that the metadata names; what it cannot read, and what may be old, it says.

use crate::error::VolumeError;
use crate::stripes::Geometry;
use braid_device::Device;
use braid_format::brick::BrickSuperblock;
use braid_format::volume::entry::ByName;
use braid_format::volume::extent::{self, Extent, PER_GROUP, stripe_of};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use braid_kv::{KvStore, Pair, Store, StoreError};
use braid_shard::Shard;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Pairs that are asked for at a time.
const AT_ONCE: usize = 512;

/// The extents of a stripe: one for each copy.
pub(super) type Copies = SmallVec<[Extent; 2]>;

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
    /// Blocks of files have checksums.
    pub(super) has_sums: bool,
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

/// A part of a file that is lost, that may be old, or that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Bytes of the file.
    pub bytes: Range<u64>,
    /// Why.
    pub why: String,
    /// These bytes were copied, and their checksums say that they are not what was written.
    pub is_rotten: bool,
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
    /// is lost. The result is that, what may be old, and what is not as it was written. `take` is false when nothing further is
    /// wanted.
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
            lost.push(LostRange { bytes: 0..size, why, is_rotten: false });
        }
        // The copies of a stripe stand apart: here they come together.
        let mut stripes: BTreeMap<u64, Copies> = BTreeMap::new();
        for (key, value) in groups {
            let Some(group) = keys::second_of(&key) else { continue };
            let first = stripe_of(group.saturating_mul(PER_GROUP));
            let start = first.saturating_mul(self.geometry.stripe);
            let bytes = start..start.saturating_add(of_group).min(size);
            if bytes.is_empty() {
                // Cut off the file.
                continue;
            }
            let extents = match extent::parse(ino, group, self.geometry.stripe, &value) {
                Ok(extents) => extents,
                Err(error) => {
                    add(&mut lost, LostRange { bytes, why: error.to_string(), is_rotten: false });
                    continue;
                }
            };
            for (stripe, extent) in (first..).zip(extents).filter(|(_, one)| !one.is_hole()) {
                stripes.entry(stripe).or_default().push(extent);
            }
        }
        for (stripe, copies) in stripes {
            let at = stripe * self.geometry.stripe;
            if !self.read_stripe((ino, at), &copies, size, &mut take, &mut lost).await {
                break;
            }
        }
        lost
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
pub(super) fn add(lost: &mut Vec<LostRange>, more: LostRange) {
    match lost.last_mut() {
        Some(last) if last.bytes.end == more.bytes.start && last.why == more.why => {
            last.bytes.end = more.bytes.end;
        }
        _ => lost.push(more),
    }
}
