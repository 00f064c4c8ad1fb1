//! A volume is brought up on a shard.

use crate::brick::Brick;
use crate::error::VolumeError;
use crate::gate::Gate;
use crate::inode::Inodes;
use crate::known_names::KnownNames;
use crate::locks::RangeLocks;
use crate::orphans::Orphans;
use crate::space::Space;
use crate::stripes::Geometry;
use crate::transaction::Transactions;
use crate::under_way::Jobs;
use crate::volume::{Clock, NoteLost, Volume};
use braid_device::{Device, IoSets};
use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{BLOCK, RecordError, keys};
use braid_kv::Store;
use braid_layout::buckets::Buckets;
use braid_shard::Shard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

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
        let transactions = Transactions::new(shard, from.store);
        let bytes = transactions.get(keys::VOLUME).await?.ok_or(VolumeError::Empty)?;
        let record = VolumeRecord::parse(&bytes)?;
        let bytes = transactions.get(keys::BUCKETS).await?.ok_or(VolumeError::Empty)?;
        let buckets = Buckets::from_bytes(&bytes)?;
        let mut bricks = BTreeMap::new();
        let (pairs, _) =
            transactions.scan(&keys::brick(0), &keys::after(b"b"), AT_ONCE * 64).await?;
        for (key, value) in pairs {
            let Some(id) = keys::brick_of(&key) else { continue };
            let brick = BrickRecord::parse(id, &value)?;
            let found = from.devices.iter().find(|device| device.uuid == brick.uuid);
            // Memory is taken for each group of blocks.
            let most = found.map_or(BLOCKS_MAX, |found| {
                found.device.info().size.saturating_sub(found.data_offset) / BLOCK
            });
            if brick.blocks > most {
                return Err(RecordError::damaged_brick(id).into());
            }
            let space = Space::load(&transactions, id, brick.blocks).await?;
            let (device, offset) = found
                .map_or((None, 0), |found| (Some(Rc::clone(&found.device)), found.data_offset));
            bricks.insert(id, Rc::new(Brick::new(id, &brick, device, offset, space)));
        }
        let volume = Rc::new_cyclic(|own| Volume {
            shard: shard.clone(),
            io: IoSets::new(shard),
            geometry: Geometry::new(record.stripe),
            transactions,
            inodes: Inodes::default(),
            names: KnownNames::default(),
            bricks: RefCell::new(bricks),
            buckets: RefCell::new(buckets),
            record: RefCell::new(record),
            record_changed: Cell::new(false),
            placement_changed: Cell::new(false),
            kept_groups: Cell::new(0),
            orphans: Orphans::default(),
            clock: from.clock,
            read_only: Cell::new(from.read_only),
            flush_failures: Cell::new(0),
            losses: Cell::new(0),
            note_lost: from.note_lost,
            told_full: Cell::new(false),
            tree: RangeLocks::new(shard),
            gate: Gate::new(shard),
            jobs: Jobs::new(shard),
            watches: RefCell::default(),
            gone: RefCell::default(),
            exported: RefCell::default(),
            own: std::rc::Weak::clone(own),
        });
        if !from.read_only {
            crate::commit::start(shard, &volume.own);
            if let Err(error) = volume.take_up().await {
                // The tasks that commit would keep the bricks open.
                volume.transactions.end();
                return Err(error);
            }
        }
        Ok(volume)
    }

    /// Goes on with what an earlier life left unfinished.
    async fn take_up(self: &Rc<Self>) -> Result<(), VolumeError> {
        let doing = "looking for files to be removed";
        self.find_orphans().await.map_err(|errno| VolumeError::File { doing, errno })?;
        self.resume_recorded().await
    }
}
