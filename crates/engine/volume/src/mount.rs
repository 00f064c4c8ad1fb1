//! A volume is brought up on a shard: its parts are made and joined.

use crate::check::Checks;
use crate::error::VolumeError;
use crate::extents::{Brick, NoteLost, Space};
use crate::files::Files;
use crate::membership::Membership;
use crate::mover::{Mover, Room};
use crate::namespace::Clock;
use crate::parts::Parts;
use crate::projects::Projects;
use crate::snapshots::Recorded;
use crate::transactions::Transactions;
use crate::volume::Volume;
use braid_device::Device;
use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{BLOCK, RecordError, keys};
use braid_kv::Store;
use braid_layout::buckets::{Buckets, ROWS_MAX};
use braid_shard::Shard;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// The longest that a change waits for its commit, unless somebody asks before: what Linux's file systems do.
const INTERVAL_NANOS: u64 = 5_000_000_000;
/// Bricks that are looked for at a time.
const AT_ONCE: usize = 1024;
/// Blocks that a brick that is not there may have: 1 PiB. One that is there has no more than its device.
const BLOCKS_MAX: u64 = 1 << 38;

/// A device that holds a brick.
pub struct BrickDevice {
    /// Which brick it says that it is.
    pub uuid: Uuid,
    /// The device, with whatever plugs and meters its user wants.
    pub device: Rc<dyn Device>,
    /// First byte of its data area.
    pub data_offset: u64,
}

/// For a volume that is not mounted again, or not by way of superblocks: nothing is noted.
pub fn noted_nowhere() -> NoteLost {
    Rc::new(|_| Box::pin(std::future::ready(Ok(()))))
}

/// The parts that a volume is mounted from.
pub struct MountOf {
    /// The devices that are there. Bricks of the volume that are not among them are missing: what lies there cannot
    /// be read.
    pub devices: Vec<BrickDevice>,
    /// The metadata.
    pub store: Rc<dyn Store>,
    /// Called when a brick has failed, before a commit that may name data which it has not taken.
    pub note_lost: NoteLost,
    /// The time of day.
    pub clock: Clock,
    /// Nothing is changed, nor what an earlier life left finished.
    pub read_only: bool,
}

impl Volume {
    /// Brings the volume up on `shard`.
    ///
    /// # Errors
    /// When the metadata cannot be read, or is damaged.
    pub async fn mount(shard: &Shard, from: MountOf) -> Result<Rc<Volume>, VolumeError> {
        let bytes = from.store.get(keys::VOLUME).await?.ok_or(VolumeError::Empty)?;
        let record = VolumeRecord::parse(&bytes)?;
        let (store, read_only) = (Rc::clone(&from.store), from.read_only);
        let transactions = Transactions::new(shard, store, record.uuid, read_only);
        let bytes = transactions.get(keys::BUCKETS).await?.ok_or(VolumeError::Empty)?;
        let mut buckets = Buckets::from_bytes(&bytes)?;
        for row in 1..ROWS_MAX {
            let Some(bytes) = transactions.get(&keys::buckets_row(row)).await? else { break };
            buckets.read_row(&bytes)?;
        }
        let bricks = find_bricks(shard, &transactions, &from.devices).await?;
        let (note_lost, clock) = (from.note_lost, from.clock);
        let projects = Projects::load(&transactions).await?;
        let records = (record, projects, Recorded::load(&transactions).await?);
        let parts = Parts::new(shard, transactions, records, buckets, bricks, note_lost, clock);
        let sums = Rc::clone(&parts.sums);
        let volume = Rc::new(wire(parts));
        let doing = "looking for checksums that are in doubt";
        let found = sums.find_doubtful().await;
        found.map_err(|errno| VolumeError::File { doing, errno })?;
        if !read_only {
            start_commits(&volume);
            if let Err(error) = volume.take_up().await {
                // The tasks that commit would keep the bricks open.
                volume.transactions.end();
                return Err(error);
            }
            volume.resume_projects();
            volume.resume_snapshots();
        }
        Ok(volume)
    }

    /// Goes on with what an earlier life left unfinished.
    async fn take_up(&self) -> Result<(), VolumeError> {
        let doing = "looking for files to be removed";
        let found = self.orphans.find().await;
        found.map_err(|errno| VolumeError::File { doing, errno })?;
        let doing = "looking for extents that files had in common";
        let found = self.extents.find_left().await;
        found.map_err(|errno| VolumeError::File { doing, errno })?;
        self.files.start_settling();
        self.checks.resume_recorded().await?;
        self.mover.resume_recorded().await
    }
}

/// The bricks that the metadata names, each with its device if that is there.
async fn find_bricks(
    shard: &Shard,
    transactions: &Transactions,
    devices: &[BrickDevice],
) -> Result<BTreeMap<u16, Rc<Brick>>, VolumeError> {
    let mut bricks = BTreeMap::new();
    let (pairs, _) = transactions.scan(&keys::brick(0), &keys::after(b"b"), AT_ONCE * 64).await?;
    for (key, value) in pairs {
        let Some(id) = keys::brick_of(&key) else { continue };
        let brick = BrickRecord::parse(id, &value)?;
        let found = devices.iter().find(|device| device.uuid == brick.uuid);
        // Memory is taken for each group of blocks.
        let most = found.map_or(BLOCKS_MAX, |found| {
            found.device.info().size.saturating_sub(found.data_offset) / BLOCK
        });
        if brick.blocks > most {
            return Err(RecordError::damaged_brick(id).into());
        }
        let space = Space::load(transactions, id, brick.blocks).await?;
        let (device, offset) =
            found.map_or((None, 0), |found| (Some(Rc::clone(&found.device)), found.data_offset));
        let space = Rc::new(space);
        bricks.insert(id, Rc::new(Brick::new(shard, id, &brick, device, offset, space)));
    }
    Ok(bricks)
}

/// Makes the upper parts over `parts`, and joins those of which a lower one has to tell a higher one something.
fn wire(parts: Parts) -> Volume {
    let files = Rc::new(Files::new(&parts));
    let remover = Rc::downgrade(&files);
    parts.orphans.work_by(Rc::new(move || {
        let files = remover.upgrade();
        files.as_ref().inspect(|files| files.start_removing()).is_some()
    }));
    let membership = Rc::new(Membership::new(&parts));
    let mover = Rc::new(Mover::new(&parts, Rc::clone(&files), Rc::clone(&membership)));
    parts.extents.ask_for_room(Rc::new(Room::new(&mover, Rc::clone(&parts.orphans))));
    let checks = Rc::new(Checks::new(parts.clone(), Rc::clone(&files)));
    let Parts { shard, geometry, transactions, record, bricks, extents, sums, .. } = parts;
    let Parts { snapshots, projects, inodes, commits, orphans, namespace, gate, pace, .. } = parts;
    Volume {
        shard,
        geometry,
        record,
        transactions,
        commits,
        bricks,
        extents,
        projects,
        sums,
        snapshots,
        inodes,
        orphans,
        namespace,
        files,
        membership,
        mover,
        checks,
        gate,
        pace,
        counts: Arc::default(),
        exported: RefCell::default(),
    }
}

/// Starts the tasks that commit: when asked, and every few seconds.
fn start_commits(volume: &Rc<Volume>) {
    let own = Rc::clone(volume);
    volume.shard.spawn(async move {
        while own.commits.next().await {
            if own.extents.has_left() {
                let extents = Rc::clone(&own.extents);
                own.shard.spawn(async move {
                    if let Err(error) = extents.free_left().await {
                        tracing::warn!(
                            "freeing what files had in common: {error}; the next mount tries again"
                        );
                    }
                });
            }
        }
    });
    let weak = Rc::downgrade(volume);
    let clock = volume.shard.clone();
    volume.shard.spawn(async move {
        loop {
            clock.sleep(INTERVAL_NANOS).await;
            let Some(volume) = weak.upgrade() else { break };
            if volume.transactions.is_ended() {
                break;
            }
            volume.commits.ask_if_changed();
            volume.mover.flush_when_full().await;
            volume.mover.make_copies_when_due().await;
        }
    });
}
