//! A volume over bricks in memory and a model of the store: what its files hold, before and after a remount.

mod asked;
mod checking;
mod common;
mod copies;
mod cut;
mod durability;
mod failing;
mod files;
mod jobs;
mod kept;
mod leases;
mod mounting;
mod names;
mod quota;
mod returning;
pub mod rig;
mod snapshot_copies;
mod snapshots;
mod space;
mod sums;
mod trim;
mod unnamed;

use crate::{BrickDevice, Format, MountOf, NewBrick, Volume, first_records, noted_nowhere};
use braid_device::ram::Ram;
use braid_filesystem::{Caller, Entry, Errno, FileSystem, Ino, Kind, NewNode, ROOT, Time, Writing};
use braid_format::volume::BLOCK;
use braid_kv::Store;
use braid_kv::model::{ModelStore, Snapshot};
use braid_shard::Shard;
use std::rc::Rc;
use uuid::Uuid;

/// The user who makes everything.
pub const ME: Caller = Caller { uid: 7, gid: 8 };

/// Bricks and metadata that outlive mounts.
pub struct World {
    pub shard: Shard,
    pub bricks: Vec<Ram>,
}

impl Drop for World {
    fn drop(&mut self) {
        // Tasks hold their shards and shards their tasks: what a test leaves running would stay, with all its memory.
        self.shard.abandon();
    }
}

impl World {
    /// Bricks of so many MiB each, and the store of a new volume on them.
    pub fn new(stripe: u64, sizes: &[u64]) -> (World, ModelStore) {
        World::with_copies(stripe, sizes, 1)
    }

    /// The same of a volume whose files have so many copies.
    pub fn with_copies(stripe: u64, sizes: &[u64], copies: u8) -> (World, ModelStore) {
        let shard = Shard::with_ring(0).unwrap();
        let bricks: Vec<Ram> = sizes.iter().map(|size| Ram::new("ram", size << 20)).collect();
        let store = ModelStore::new(&shard);
        let world = World { shard, bricks };
        let new: Vec<NewBrick> = sizes
            .iter()
            .zip(1..)
            .map(|(size, id)| NewBrick {
                uuid: Uuid::from_u128(id),
                weight: *size,
                blocks: (size << 20) / BLOCK,
                domain: String::new(),
            })
            .collect();
        let format = Format { stripe, checksums: true, copies };
        let records =
            first_records(Uuid::from_u128(99), format, &new, ME, Time::default()).unwrap();
        let commit = store.commit(records);
        world.shard.block_on(commit).unwrap();
        (world, store)
    }

    /// All bricks, with such metadata.
    pub fn mount_of(&self, store: &ModelStore) -> MountOf {
        let devices = self.bricks.iter().zip(1..).map(|(ram, id)| BrickDevice {
            uuid: Uuid::from_u128(id),
            device: ram.device(),
            data_offset: 0,
        });
        MountOf {
            devices: devices.collect(),
            store: Rc::new(store.clone()),
            note_lost: noted_nowhere(),
            clock: Rc::new(|| Time { seconds: 5, nanos: 6 }),
            read_only: false,
        }
    }

    /// Mounts the volume over all bricks.
    pub fn mount(&self, store: &ModelStore) -> Rc<Volume> {
        let from = self.mount_of(store);
        let shard = self.shard.clone();
        self.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap()
    }

    /// The durable state at this moment, as after a crash: a store for the next mount.
    pub fn crash(&self, store: &ModelStore) -> ModelStore {
        let left: Snapshot = store.snapshot();
        ModelStore::from_snapshot(&self.shard, left)
    }
}

/// Makes a file.
pub async fn make(volume: &Volume, parent: Ino, name: &str, kind: Kind) -> Result<Entry, Errno> {
    let node = NewNode { kind, perm: 0o644, umask: 0, rdev: 0, target: b"" };
    volume.make(ME, parent, name.as_bytes(), node).await
}

/// Writes bytes.
pub async fn write(volume: &Volume, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let buf = volume.shard.pool().copy_of(bytes).freeze();
    volume.write(ino, offset, buf, Writing::default()).await
}

/// All of a file.
pub async fn read_all(volume: &Volume, ino: Ino) -> Vec<u8> {
    let size = volume.attr(ino).await.unwrap().size;
    volume.read(ino, 0, size as usize).await.unwrap().to_vec()
}

/// A file in the root.
pub async fn file(volume: &Volume, name: &str) -> Ino {
    make(volume, ROOT, name, Kind::File).await.unwrap().attr.ino
}
