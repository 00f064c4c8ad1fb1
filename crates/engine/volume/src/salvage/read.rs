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
use braid_format::volume::snapshot::{INO_END, file_of, in_snapshot, snapshot_of};
use braid_format::volume::{RecordError, keys};
use braid_kv::{KvStore, StoreError};
use braid_shard::Shard;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

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

/// Files have the numbers that they have in the engine: those of a snapshot say it.
impl Salvage {
    /// The attributes of a file; `None` when there is no such file.
    ///
    /// # Errors
    /// The record is damaged or cannot be read.
    pub async fn inode(&self, ino: u64) -> Result<Option<InodeRecord>, VolumeError> {
        let bytes = self.value(&keys::inode(ino)).await?;
        Ok(bytes.map(|bytes| InodeRecord::parse(file_of(ino), &bytes)).transpose()?)
    }

    /// The entries of a directory.
    pub async fn entries(&self, directory: u64) -> Records<(Vec<u8>, ByName)> {
        self.records(&keys::name(directory, b""), |key, value| {
            let name = keys::name_of(key).unwrap_or_default().to_vec();
            let entry = ByName::parse(value)?;
            Ok((name, ByName { ino: seen_from(directory, entry.ino)?, ..entry }))
        })
        .await
    }

    /// The numbers of all files that have attributes, with or without a name; not those that only snapshots have.
    pub async fn inodes(&self) -> Records<u64> {
        self.records(b"I", |key, _| seen_from(0, keys::ino_of(key).unwrap_or(0))).await
    }

    /// The extended attributes of a file.
    pub async fn attributes(&self, ino: u64) -> Records<(Vec<u8>, Vec<u8>)> {
        self.records(&keys::xattr(ino, b""), |key, value| {
            Ok((keys::name_of(key).unwrap_or_default().to_vec(), value.to_vec()))
        })
        .await
    }

    pub(super) async fn records<T>(
        &self,
        prefix: &[u8],
        parse: impl Fn(&[u8], &[u8]) -> Result<T, VolumeError>,
    ) -> Records<T> {
        let (pairs, error) = self.all_of(prefix).await;
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
        let (groups, error) = self.all_of(&extents_of(ino)).await;
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
            let extents = match extent::parse(file_of(ino), group, self.geometry.stripe, &value) {
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

/// The number of a file that a record names, in the snapshot that the record was read in.
///
/// # Errors
/// There can be no such file.
fn seen_from(within: u64, ino: u64) -> Result<u64, VolumeError> {
    if ino == 0 || ino >= INO_END {
        return Err(strange("the number of a file"));
    }
    Ok(in_snapshot(ino, snapshot_of(within)))
}

/// A record that cannot be.
pub(super) fn strange(what: &str) -> VolumeError {
    RecordError { what: what.to_string(), why: "there can be no such" }.into()
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
