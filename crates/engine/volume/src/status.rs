//! The status of a volume.

use crate::extents::{BrickCounts, Bricks, ExtentMap};
use crate::progress::JobStatus;
use crate::record::Record;
use crate::transactions::Transactions;
use braid_format::volume::brick_record::BrickState;
use braid_kv::StoreSpace;
use braid_layout::buckets::BUCKETS;
use uuid::Uuid;

/// A brick, as `braid volume status` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct BrickStatus {
    /// Its number.
    pub id: u16,
    /// Which device it is.
    pub uuid: Uuid,
    /// Its name in messages.
    pub name: String,
    /// Its state.
    pub state: BrickState,
    /// It is there and has not failed.
    pub is_there: bool,
    /// Why it was detached, when it failed.
    pub failure: Option<String>,
    /// Its part in placement.
    pub weight: u64,
    /// Its domain: bricks that may be lost together have the same; empty: it has none.
    pub domain: String,
    /// Blocks of 4096 bytes of its data area.
    pub blocks: u64,
    /// Blocks in use.
    pub used: u64,
    /// The part of the volume's data that belongs here, 0 to 1.
    pub fair_share: f64,
    /// The part of the volume's data that is here, 0 to 1.
    pub share: f64,
    /// Its counts since the mount.
    pub counts: BrickCounts,
}

/// A volume, as `braid volume status` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeStatus {
    /// Which volume it is.
    pub uuid: Uuid,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Its bricks, by number.
    pub bricks: Vec<BrickStatus>,
    /// The number of the proxy.
    pub proxy: Option<u16>,
    /// Stripes lie elsewhere than placement says, or may: a balance moves them.
    pub unbalanced: bool,
    /// Room for metadata.
    pub metadata: StoreSpace,
    /// Blocks of files have checksums.
    pub checksums: bool,
    /// Reads of blocks that were not what was written, since the mount.
    pub checksum_errors: u64,
    /// Of them, and of blocks that could not be read, those that were mended from another copy.
    pub checksum_mended: u64,
    /// Some files have fewer copies than they are to have, or copies that miss something.
    pub incomplete: bool,
    /// Bytes that only snapshots have.
    pub snapshot_bytes: u64,
    /// The job under way.
    pub job: Option<JobStatus>,
    /// The check under way.
    pub check: Option<JobStatus>,
    /// Why nothing can be changed any more.
    pub failure: Option<String>,
}

/// The status of a volume beside that of its job and its check.
pub(crate) fn status_of(
    record: &Record,
    transactions: &Transactions,
    bricks: &Bricks,
    extents: &ExtentMap,
) -> VolumeStatus {
    let list = bricks.all();
    let all: u64 = list.iter().map(|brick| brick.space.used()).sum();
    let placement = extents.placement();
    let list = list.iter().map(|brick| BrickStatus {
        id: brick.id,
        uuid: brick.uuid,
        name: brick.name(),
        state: brick.state(),
        is_there: brick.is_there(),
        failure: brick.failure().map(|error| error.to_string()),
        weight: brick.weight(),
        domain: brick.domain.clone(),
        blocks: brick.space.blocks(),
        used: brick.space.used(),
        fair_share: placement.share(brick.id) as f64 / BUCKETS as f64,
        share: if all == 0 { 0.0 } else { brick.space.used() as f64 / all as f64 },
        counts: brick.counts(),
    });
    VolumeStatus {
        uuid: record.uuid(),
        stripe: extents.geometry().stripe,
        bricks: list.collect(),
        proxy: record.proxy(),
        unbalanced: record.is_unbalanced(),
        metadata: transactions.store().space(),
        checksums: record.has_checksums(),
        checksum_errors: 0,
        checksum_mended: 0,
        incomplete: record.is_incomplete(),
        snapshot_bytes: 0,
        job: None,
        check: None,
        failure: transactions.failure(),
    }
}
