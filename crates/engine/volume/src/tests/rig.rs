//! The parts of a volume without the volume: made from the lowest up, over bricks in memory and a model of the store.

use crate::extents::{Brick, Space};
use crate::files::Files;
use crate::parts::Parts;
use crate::projects::Projects;
use crate::snapshots::Recorded;
use crate::transactions::Transactions;
use crate::{Format, NewBrick, first_records, noted_nowhere};
use braid_device::Device;
use braid_device::ram::Ram;
use braid_filesystem::{Caller, Ino, Kind, NewNode, ROOT, Time, Writing};
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::{BrickRecord, BrickState};
use braid_format::volume::keys;
use braid_format::volume::volume_record::VolumeRecord;
use braid_kv::Store;
use braid_kv::model::ModelStore;
use braid_layout::buckets::Buckets;
use braid_shard::Shard;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Bytes of a stripe.
pub const STRIPE: u64 = 128 << 10;
/// The user who makes everything.
pub const ME: Caller = Caller { uid: 7, gid: 8 };

/// The parts, as far up as the bytes of files.
pub struct Rig {
    pub store: ModelStore,
    pub parts: Parts,
    pub files: Rc<Files>,
}

impl std::ops::Deref for Rig {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shard.abandon();
    }
}

impl Rig {
    /// Over new bricks of so many MiB each.
    pub fn new(sizes: &[u64]) -> Rig {
        let shard = Shard::with_ring(0).unwrap();
        let store = ModelStore::new(&shard);
        let new = sizes.iter().zip(1..).map(|(size, id)| NewBrick {
            uuid: Uuid::from_u128(id),
            weight: *size,
            blocks: (size << 20) / BLOCK,
            domain: String::new(),
        });
        let new: Vec<NewBrick> = new.collect();
        let format = Format { stripe: STRIPE, checksums: true, copies: 1 };
        let records = first_records(Uuid::from_u128(99), format, &new, ME, Time::default());
        shard.block_on(store.commit(records.unwrap())).unwrap();
        let devices = sizes.iter().map(|size| Ram::new("ram", size << 20).device());
        let devices: Vec<Rc<dyn Device>> = devices.map(|device| device as Rc<dyn Device>).collect();
        Rig::over(shard, store, &new, devices)
    }

    /// Over these devices, with what the store holds.
    pub fn over(
        shard: Shard,
        store: ModelStore,
        new: &[NewBrick],
        devices: Vec<Rc<dyn Device>>,
    ) -> Rig {
        let transactions =
            Transactions::new(&shard, Rc::new(store.clone()), Uuid::from_u128(99), false);
        let get = |key: &'static [u8]| shard.block_on(store.get(key)).unwrap().unwrap();
        let record = VolumeRecord::parse(&get(keys::VOLUME)).unwrap();
        let buckets = Buckets::from_bytes(&get(keys::BUCKETS)).unwrap();
        let mut table = BTreeMap::new();
        for ((id, new), device) in (0u16..).zip(new).zip(devices) {
            let own = Rc::clone(&transactions);
            let blocks = new.blocks;
            let space = shard.block_on(async move { Space::load(&own, id, blocks).await });
            let (uuid, weight, state) = (new.uuid, new.weight, BrickState::Data);
            let record = BrickRecord { uuid, state, weight, blocks, domain: new.domain.clone() };
            table.insert(
                id,
                Rc::new(Brick::new(&shard, id, &record, Some(device), 0, Rc::new(space.unwrap()))),
            );
        }
        let clock = Rc::new(|| Time { seconds: 5, nanos: 6 });
        let lost = noted_nowhere();
        let own = Rc::clone(&transactions);
        let projects = shard.block_on(async move { Projects::load(&own).await });
        let records = (record, projects.unwrap(), Recorded::default());
        let parts = Parts::new(&shard, transactions, records, buckets, table, lost, clock);
        let commits = Rc::clone(&parts.commits);
        shard.spawn(async move { while commits.next().await {} });
        let files = Rc::new(Files::new(&parts));
        Rig { store, parts, files }
    }

    /// A new file in the root.
    pub async fn file(&self, name: &[u8]) -> Ino {
        let node = NewNode { kind: Kind::File, perm: 0o644, umask: 0, rdev: 0, target: b"" };
        self.namespace.make_node(ME, ROOT, name, node).await.unwrap().attr.ino
    }

    /// Writes bytes to a file.
    pub async fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) {
        let buf = self.shard.pool().copy_of(bytes).freeze();
        let inode = self.inodes.file(ino).await.unwrap();
        self.files.write_file(&inode, offset, buf, Writing::default()).await.unwrap();
    }

    /// Reads bytes of a file.
    pub async fn read(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        self.files.read_file(ino, offset, len, None).await.unwrap().to_vec()
    }
}
