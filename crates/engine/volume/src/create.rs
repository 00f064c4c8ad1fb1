//! The first records of a new volume.

use crate::error::VolumeError;
use crate::membership::check_domain;
use crate::namespace::{nibble_of, stamp};
use braid_filesystem::{Caller, ROOT, Time};
use braid_format::volume::brick_record::{BrickRecord, BrickState};
use braid_format::volume::extent::{COPIES_MAX, STRIPE_RANGE};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{NO_BRICK, keys};
use braid_kv::Change;
use braid_layout::buckets::Buckets;
use std::collections::BTreeSet;
use uuid::Uuid;

/// A brick of a new volume. Bricks are numbered from 0, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBrick {
    /// Which device it is.
    pub uuid: Uuid,
    /// Its part in placement; not 0.
    pub weight: u64,
    /// Blocks of its data area.
    pub blocks: u64,
    /// The label of its domain, at most 16 bytes; empty: its own.
    pub domain: String,
}

/// The sizes and features that a volume is made with, and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a stripe: a power of two, 16 KiB to 64 MiB.
    pub stripe: u64,
    /// Blocks of files have checksums, against which they are read.
    pub checksums: bool,
    /// Copies of each stripe, 1 to 4, unless a folder or a file says otherwise. More than one take checksums, which say
    /// which copy is right.
    pub copies: u8,
}

/// Refuses a number of copies that a volume of so many bricks cannot have.
pub(crate) fn check_copies(copies: u8, checksums: bool, bricks: usize) -> Result<(), VolumeError> {
    let refuse = |why: String| Err(VolumeError::Refused(why));
    if !(1..=COPIES_MAX).contains(&copies) {
        return refuse(format!("{copies} copies: choose 1 to {COPIES_MAX}"));
    }
    if copies > 1 && !checksums {
        let why = "the volume has no checksums, which say which of two copies is right: copies are for volumes with \
                   checksums, which a new volume has unless it is told otherwise";
        return refuse(why.into());
    }
    if usize::from(copies) > bricks {
        return refuse(format!(
            "{copies} copies are to lie on as many bricks, and {bricks} take data: add a brick, or ask for fewer"
        ));
    }
    Ok(())
}

/// The domains that bricks with these labels are in: one for each label, and one for each brick without.
pub fn domains_of<'a>(labels: impl IntoIterator<Item = &'a str>) -> usize {
    let (mut named, mut alone) = (BTreeSet::new(), 0);
    for label in labels {
        if label.is_empty() {
            alone += 1;
        } else {
            named.insert(label);
        }
    }
    named.len() + alone
}

/// Refuses more copies than there are domains: the bricks that take data have these labels.
pub(crate) fn check_domains<'a>(
    copies: u8,
    labels: impl IntoIterator<Item = &'a str>,
) -> Result<(), VolumeError> {
    let domains = domains_of(labels);
    if usize::from(copies) <= domains {
        return Ok(());
    }
    let are = if domains == 1 { "domain" } else { "domains" };
    Err(VolumeError::Refused(format!(
        "{copies} copies are to lie in as many domains, of bricks that may be lost together, and the bricks that take data are in \
         {domains} {are}: give or add a brick in another domain (--domain), or ask for fewer"
    )))
}

/// The content of the metadata store of a new volume: no file but an empty root directory, which belongs to `owner`.
///
/// # Errors
/// When the stripe, the bricks or their weights cannot be.
pub fn first_records(
    uuid: Uuid,
    format: Format,
    bricks: &[NewBrick],
    owner: Caller,
    now: Time,
) -> Result<Vec<Change>, VolumeError> {
    let Format { stripe, checksums, copies } = format;
    if !stripe.is_power_of_two() || !STRIPE_RANGE.contains(&stripe) {
        return Err(VolumeError::Stripe(stripe));
    }
    check_copies(copies, checksums, bricks.len())?;
    bricks.iter().try_for_each(|brick| check_domain(&brick.domain))?;
    check_domains(copies, bricks.iter().map(|brick| brick.domain.as_str()))?;
    let numbered = || (0u16..).zip(bricks);
    let weights: Vec<(u16, u64)> = numbered().map(|(id, brick)| (id, brick.weight)).collect();
    let buckets = Buckets::new(&weights)?;
    let volume = VolumeRecord {
        uuid,
        stripe,
        next_ino: ROOT + 1,
        // There are at most 4096 bricks, or the buckets would not be.
        next_brick: bricks.len() as u16,
        proxy: None,
        unbalanced: false,
        counted: false,
        checksums,
        copies: copies > 1,
        incomplete: false,
        snapshots: false,
        common: false,
        last_snapshot: 0,
        last_subvolume: 0,
        snapshot_blocks: 0,
    };
    let now = stamp(now);
    let root = InodeRecord {
        kind: nibble_of(braid_filesystem::Kind::Directory),
        perm: 0o755,
        uid: owner.uid,
        gid: owner.gid,
        nlink: 2,
        rdev: 0,
        flags: 0,
        size: 0,
        blocks: 0,
        generation: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        parent: ROOT,
        next_cookie: 1,
        entries: 0,
        brick: NO_BRICK,
        project: 0,
        copies,
        held: copies,
        subvolume: 0,
        target: Vec::new(),
    };
    let mut records = vec![
        (keys::VOLUME.to_vec(), Some(volume.encode())),
        (keys::BUCKETS.to_vec(), Some(buckets.to_bytes())),
        (keys::inode(ROOT), Some(root.encode())),
    ];
    for (id, brick) in numbered() {
        let (uuid, weight, blocks) = (brick.uuid, brick.weight, brick.blocks);
        let domain = brick.domain.clone();
        let record = BrickRecord { uuid, state: BrickState::Data, weight, blocks, domain };
        records.push((keys::brick(id), Some(record.encode())));
    }
    Ok(records)
}
