//! Helpers that the tests of this crate share.

use crate::database::Database;
use crate::handle::Handle;
use crate::store::{Change, StoreError};
use braid_device::Device;
use braid_device::volatile::VolatileDisk;
use braid_mirror::{Joining, Mirror, MirrorError, Open, Region};
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

struct VirtualClock(Cell<Nanos>);

impl Reactor for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, _: &dyn Fn() -> bool) {
        let deadline = deadline.expect("everything waits and no timer is set: a lost wake-up");
        self.0.set(self.0.get().max(deadline));
    }
}

/// A shard whose clock jumps when everything waits.
pub(crate) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(VirtualClock(Cell::new(1_000_000_000))))
}

/// A change that sets `key` to `value`.
pub(crate) fn put(key: &str, value: &str) -> Change {
    (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
}

/// Choices from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// One of `0..sides`.
    pub(crate) fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

/// The power of a disk goes.
pub(crate) fn cut(disk: &VolatileDisk, dice: &mut Dice) {
    disk.cut(&mut |sides| dice.throw(sides));
}

/// All of a device, as a region.
pub(crate) fn region(device: Rc<dyn Device>) -> Region {
    let size = device.info().size;
    Region::new(device, 0, size).unwrap()
}

/// The mirror over the devices.
pub(crate) fn mirror(
    shard: &Shard,
    devices: Vec<Rc<dyn Device>>,
    how: Open,
) -> Result<Rc<Mirror>, MirrorError> {
    let (home, regions) = (shard.clone(), devices.into_iter().map(region).collect());
    shard.block_on(async move { Mirror::open(&home, regions, how).await })
}

/// A database on this thread, and what is below it.
pub(crate) struct Opened {
    database: Database,
    pub(crate) mirror: Rc<Mirror>,
    shard: Shard,
}

impl Opened {
    /// The database on the disks.
    pub(crate) fn new(
        disks: &[VolatileDisk],
        how: Open,
        cache_bytes: usize,
    ) -> Result<Opened, StoreError> {
        let shard = shard();
        let mirror = mirror(&shard, disks.iter().map(VolatileDisk::device).collect(), how)?;
        let handle = Handle::Near(shard.clone(), Rc::clone(&mirror));
        Ok(Opened { database: Database::open(handle, cache_bytes)?, mirror, shard })
    }

    /// Copies the next window to a leg that joins. `None` when it has joined.
    pub(crate) fn step(&self, mut joining: Joining) -> Result<Option<Joining>, MirrorError> {
        self.shard.block_on(async move { Ok(joining.step().await?.then_some(joining)) })
    }

    /// Makes the disk the second leg.
    pub(crate) fn join(&self, disk: &VolatileDisk) -> Result<(), MirrorError> {
        let joining = self.mirror.join(region(disk.device()))?;
        self.shard.block_on(joining.run())
    }

    /// Lays out what larger regions have more.
    pub(crate) fn prepare_growth(
        &self,
        disks: Vec<(usize, VolatileDisk)>,
    ) -> Result<bool, StoreError> {
        let regions = disks.iter().map(|(leg, disk)| (*leg, region(disk.device()))).collect();
        let mirror = Rc::clone(&self.mirror);
        Ok(self.shard.block_on(async move { mirror.prepare_growth(regions).await })?)
    }
}

impl Deref for Opened {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Database {
        &mut self.database
    }
}
