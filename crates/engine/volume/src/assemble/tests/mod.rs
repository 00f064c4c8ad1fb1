//! Bricks in memory that become volumes, with the real store in their metadata regions.

mod full;
mod growing;
mod holders;
mod majority;
mod mixing;
mod mounting;
mod planning;
mod power;
mod returning;
mod salvaging;

use super::*;
use crate::Volume;
use crate::namespace::Clock;
use crate::tests::{ME, file, read_all, write};
use braid_device::Device;
use braid_device::ram::Ram;
use braid_filesystem::{Ino, ROOT, Time};
use braid_format::brick::{Area, MetadataState};
use braid_shard::Shard;
use std::future::Future;
use std::rc::Rc;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const CACHE: usize = 1 << 20;

/// The plan of a new volume on these devices.
fn new_volume(name: &str, uuid: u128) -> NewVolume {
    NewVolume {
        name: name.to_string(),
        uuid: Uuid::from_u128(uuid),
        stripe: 128 << 10,
        checksums: true,
        copies: 1,
        metadata_size: None,
        owner: ME,
        now: Time { seconds: 5, nanos: 6 },
    }
}

fn clock() -> Clock {
    Rc::new(|| Time { seconds: 7, nanos: 8 })
}

fn plan_of(devices: &[Rc<dyn Device>], uuid: u128) -> Vec<BrickPlan> {
    let bricks = devices.iter().zip(uuid * 1000..);
    bricks
        .map(|(device, brick)| BrickPlan {
            domain: String::new(),
            uuid: Uuid::from_u128(brick),
            weight: None,
            info: device.info().clone(),
        })
        .collect()
}

/// Bricks that outlive mounts.
struct Bricks {
    shard: Shard,
    rams: Vec<Ram>,
}

impl Drop for Bricks {
    fn drop(&mut self) {
        // Tasks hold their shards and shards their tasks: what a test leaves running would stay, with all its memory.
        self.shard.abandon();
    }
}

impl Bricks {
    /// Of so many MiB each, holding nothing.
    fn blank(sizes: &[u64]) -> Bricks {
        let shard = Shard::with_ring(0).unwrap();
        let named = sizes.iter().zip(0..);
        let rams = named.map(|(size, nr)| Ram::new(format!("ram{nr}"), size * MIB)).collect();
        Bricks { shard, rams }
    }

    /// Of so many MiB each, holding a new volume.
    fn new(sizes: &[u64]) -> Bricks {
        let bricks = Bricks::blank(sizes);
        bricks.create("data", 1, &bricks.devices()).unwrap();
        bricks
    }

    /// The same, where the first two hold the metadata and no other has room for it.
    fn on_two(sizes: &[u64]) -> Bricks {
        let bricks = Bricks::blank(sizes);
        let devices = bricks.devices();
        let mut plan = plan_create(&new_volume("data", 1), &plan_of(&devices, 1)).unwrap();
        for superblock in plan.superblocks.iter_mut().skip(2) {
            superblock.metadata = Area::default();
            superblock.metadata_state = MetadataState::Unused;
            superblock.metadata_generation = 0;
        }
        let shard = bricks.shard.clone();
        bricks.run(async move { create(&shard, plan, &devices, clock()).await }).unwrap();
        bricks
    }

    fn create(
        &self,
        name: &str,
        uuid: u128,
        devices: &[Rc<dyn Device>],
    ) -> Result<(), AssembleError> {
        let plan = plan_create(&new_volume(name, uuid), &plan_of(devices, uuid))?;
        let (shard, devices) = (self.shard.clone(), devices.to_vec());
        self.run(async move { create(&shard, plan, &devices, clock()).await })
    }

    fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.shard.block_on(work)
    }

    fn devices(&self) -> Vec<Rc<dyn Device>> {
        self.rams.iter().map(Ram::device).collect()
    }

    /// The bricks that are found on some devices.
    fn found(&self, devices: Vec<Rc<dyn Device>>) -> Vec<FoundBrick> {
        let shard = self.shard.clone();
        self.run(async move {
            let mut found = Vec::new();
            for device in devices {
                found.push(examine(&shard, device).await.unwrap());
            }
            found
        })
    }

    fn assemble_some(
        &self,
        which: &[usize],
        options: AssembleOptions,
    ) -> Result<Assembly, AssembleError> {
        let devices = which.iter().map(|nr| self.rams[*nr].device()).collect();
        assemble(self.found(devices), options)
    }

    fn assemble(&self) -> Result<Assembly, AssembleError> {
        assemble(self.found(self.devices()), AssembleOptions::default())
    }

    /// Opens what was put together.
    fn open(&self, assembly: Assembly) -> Opened {
        let shard = self.shard.clone();
        self.run(async move { open(&shard, assembly, clock(), CACHE).await }).unwrap()
    }

    /// Mounts what was put together.
    fn mount(&self, assembly: Assembly) -> (Rc<Opened>, Rc<Volume>) {
        let opened = Rc::new(self.open(assembly));
        let volume = self.mount_opened(&opened);
        (opened, volume)
    }

    fn mount_opened(&self, opened: &Opened) -> Rc<Volume> {
        let from = opened.mount_of();
        let shard = self.shard.clone();
        self.run(async move { Volume::mount(&shard, from).await }).unwrap()
    }

    /// Mounts everything, does `work`, and unmounts in order.
    fn with<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(Rc<Volume>) -> F + 'static,
    ) -> T {
        let (opened, volume) = self.mount(self.assemble().unwrap());
        self.run(async move {
            let done = work(Rc::clone(&volume)).await;
            volume.close().await.unwrap();
            opened.close().await.unwrap();
            done
        })
    }
}

/// Makes a file that says what it is called.
async fn put(volume: &Volume, name: &str) -> Ino {
    let ino = file(volume, name).await;
    write(volume, ino, 0, &content(name)).await.unwrap();
    ino
}

/// The content that [`put`] writes: several stripes.
fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(300_000).collect()
}

/// True if the file is as [`put`] made it.
async fn holds(volume: &Volume, name: &str) -> bool {
    use braid_filesystem::FileSystem;
    let Ok(entry) = volume.lookup(ROOT, name.as_bytes()).await else { return false };
    read_all(volume, entry.attr.ino).await == content(name)
}
