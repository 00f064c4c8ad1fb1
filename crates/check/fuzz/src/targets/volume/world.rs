//! The sample volume: bricks in memory, a model of the store.
//!
//! Invariant: what never ends is found: the store counts what it is asked for, as the clock counts waits.

use super::doing::{doing, done_last};
use super::uses::{self, ME};
use braid_device::ram::Ram;
use braid_filesystem::{FileSystem, Kind, NewNode, Opening, ROOT, Time, XattrMode};
use braid_format::access_list::DEFAULT;
use braid_format::volume::BLOCK;
use braid_kv::model::{ModelStore, Snapshot};
use braid_kv::{Answer, Change, Pair, Store, StoreSpace};
use braid_shard::Shard;
use braid_volume::{BrickDevice, Format, MountOf, NewBrick, Volume, first_records, noted_nowhere};
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use uuid::Uuid;

/// MiB of the bricks.
const BRICKS: [u64; 3] = [8, 16, 8];
/// Bytes of a stripe.
const STRIPE: u64 = 16 << 10;
/// More requests of the store than any use of the sample makes.
const REQUESTS_MAX: u64 = 1_000_000;

/// A store that is asked for so much only.
struct Counted {
    store: ModelStore,
    requests: Cell<u64>,
}

impl Counted {
    fn count(&self) {
        self.requests.set(self.requests.get() + 1);
        assert!(self.requests.get() < REQUESTS_MAX, "it asks the store for ever");
    }
}

impl Store for Counted {
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.count();
        self.store.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>> {
        self.count();
        self.store.scan(from, to, limit)
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<()> {
        self.count();
        self.store.commit(changes)
    }

    fn space(&self) -> StoreSpace {
        self.store.space()
    }
}

struct World {
    shard: Shard,
    bricks: Vec<Ram>,
    store: ModelStore,
}

impl Drop for World {
    fn drop(&mut self) {
        // Tasks hold their shard and the shard its tasks: what an input leaves running would stay, with all its memory.
        self.shard.abandon();
    }
}

impl World {
    fn new(snapshot: Snapshot) -> World {
        let shard = super::super::clock::shard();
        let bricks = BRICKS.iter().map(|size| Ram::new("ram", size << 20)).collect();
        let store = ModelStore::from_snapshot(&shard, snapshot);
        World { shard, bricks, store }
    }

    fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.shard.block_on(work)
    }

    fn mount_of(&self) -> MountOf {
        let devices = self.bricks.iter().zip(1..).map(|(ram, id)| BrickDevice {
            uuid: Uuid::from_u128(id),
            device: ram.device(),
            data_offset: 0,
        });
        MountOf {
            devices: devices.collect(),
            store: Rc::new(Counted { store: self.store.clone(), requests: Cell::new(0) }),
            note_lost: noted_nowhere(),
            clock: Rc::new(|| Time { seconds: 5, nanos: 6 }),
            read_only: false,
        }
    }
}

/// The records of a volume with some of everything.
pub fn sample() -> Snapshot {
    let world = World::new(Snapshot::default());
    let new: Vec<NewBrick> = BRICKS
        .iter()
        .zip(1..)
        .map(|(size, id)| NewBrick {
            uuid: Uuid::from_u128(id),
            weight: *size,
            blocks: (size << 20) / BLOCK,
            domain: String::new(),
        })
        .collect();
    let (shard, from, store) = (world.shard.clone(), world.mount_of(), world.store.clone());
    // What does not work here is found by the tests of the volume.
    world.run(async move {
        let format = Format { stripe: STRIPE, checksums: true, copies: 1 };
        let records = first_records(Uuid::from_u128(99), format, &new, ME, Time::default());
        store.commit(records.expect("bricks can be")).await.expect("the model takes it");
        let volume = Volume::mount(&shard, from).await.expect("it is a volume");
        fill(&shard, &volume).await.expect("it has room");
    });
    world.store.snapshot()
}

/// Lets user 7 in beside the three that each list has: see `braid_format::access_list`.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 7, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255,
    255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
];

async fn fill(shard: &Shard, volume: &Volume) -> Result<(), braid_filesystem::Errno> {
    let node = |kind| NewNode { kind, perm: 0o755, umask: 0, rdev: 0, target: b"" };
    let dir = volume.make(ME, ROOT, b"dir", node(Kind::Directory)).await?.attr.ino;
    volume.set_xattr(dir, DEFAULT, &LIST, XattrMode::Any).await?;
    let inner = volume.make(ME, dir, b"inner", node(Kind::Directory)).await?.attr.ino;
    for (name, parent) in [("a", ROOT), ("b", dir), ("c", inner)] {
        let ino = volume.make(ME, parent, name.as_bytes(), node(Kind::File)).await?.attr.ino;
        uses::write(shard, volume, ino, 5000, 100_000).await?;
        uses::write(shard, volume, ino, 3 << 20, 5000).await?;
        volume.set_xattr(ino, b"user.a", b"value", XattrMode::Any).await?;
        volume.link(ino, inner, format!("{name} too").as_bytes()).await?;
    }
    let link = NewNode { kind: Kind::Symlink, perm: 0o777, umask: 0, rdev: 0, target: b"dir/b" };
    volume.make(ME, ROOT, b"link", link).await?;
    let unnamed = volume.make_unnamed(ME, dir, node(Kind::File)).await?.attr.ino;
    uses::write(shard, volume, unnamed, 0, 5000).await?;
    // One that has no name any more and is still open.
    let gone = volume.make(ME, ROOT, b"gone", node(Kind::File)).await?.attr.ino;
    uses::write(shard, volume, gone, 0, 50_000).await?;
    volume.open(gone, Opening::WRITE).await?;
    volume.unlink(ROOT, b"gone").await?;
    volume.sync().await
}

/// Mounts the sample after these changes and does all that can be done. False: it could not be mounted.
///
/// # Errors
/// A panic, with what was being done; or what does not hold.
pub fn use_damaged(sample: &Snapshot, changes: Vec<Change>) -> Result<bool, String> {
    let world = World::new(sample.clone());
    let (shard, from, store) = (world.shard.clone(), world.mount_of(), world.store.clone());
    let ended = catch_unwind(AssertUnwindSafe(|| {
        world.run(async move {
            store.commit(changes).await.expect("the model takes it");
            doing("mounting");
            let Ok(volume) = Volume::mount(&shard, from).await else { return Ok(false) };
            uses::all(&shard, &volume).await.map(|()| true)
        })
    }));
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked while {}: {}", done_last(), text.unwrap_or("(no message)")))
    })
}
