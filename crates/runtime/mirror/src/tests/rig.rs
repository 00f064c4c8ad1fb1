//! Shared by the tests of a mirror: a clock that jumps, disks that answer late and out of order, and requests to their end.

use crate::{Mirror, MirrorError, Open, Region};
use braid_device::volatile::{Fuse, VolatileDisk};
use braid_device::{Completion, Device, DeviceInfo, IoError, IoSets, Op, Request};
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::{Cell, RefCell};
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
pub(super) fn shard() -> Shard {
    Shard::with_reactor(0, Rc::new(VirtualClock(Cell::new(1_000_000_000))))
}

/// A device whose requests take different times, so that they overtake each other.
struct Late {
    shard: Shard,
    below: Rc<dyn Device>,
    chance: Rc<RefCell<fastrand::Rng>>,
}

impl Device for Late {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        let (shard, below) = (self.shard.clone(), Rc::clone(&self.below));
        let nanos = self.chance.borrow_mut().u64(1..100_000);
        self.shard.spawn(async move {
            shard.sleep(nanos).await;
            below.submit(request, done);
        });
    }
}

/// The disk as a device whose requests overtake each other.
pub(super) fn late(shard: &Shard, disk: &VolatileDisk, seed: u64) -> Rc<dyn Device> {
    let chance = Rc::new(RefCell::new(fastrand::Rng::with_seed(seed)));
    Rc::new(Late { shard: shard.clone(), below: disk.device(), chance })
}

pub(super) fn disk(name: &str, size: usize) -> VolatileDisk {
    VolatileDisk::new(name, size, &Fuse::default())
}

/// All of a device, as a region.
pub(super) fn all_of(device: Rc<dyn Device>) -> Region {
    let size = device.info().size;
    Region::new(device, 0, size).unwrap()
}

pub(super) fn open(
    shard: &Shard,
    regions: Vec<Region>,
    how: Open,
) -> Result<Rc<Mirror>, MirrorError> {
    let home = shard.clone();
    shard.block_on(async move { Mirror::open(&home, regions, how).await })
}

/// The mirror over disks.
pub(super) fn over(shard: &Shard, disks: &[VolatileDisk], how: Open) -> Rc<Mirror> {
    open(shard, disks.iter().map(|disk| all_of(disk.device())).collect(), how).unwrap()
}

/// A request, to its end; the bytes of a read.
pub(super) fn ask(
    shard: &Shard,
    device: &Rc<Mirror>,
    request: Request,
) -> Result<Vec<u8>, IoError> {
    let (sets, device) = (IoSets::new(shard), Rc::clone(device));
    let outcome = shard.block_on(async move { sets.one(&*device, request).await });
    outcome.result?;
    Ok(match outcome.op {
        Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.iter().copied()).collect(),
        _ => Vec::new(),
    })
}

pub(super) fn read(
    shard: &Shard,
    mirror: &Rc<Mirror>,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, IoError> {
    ask(shard, mirror, Request::read(offset, shard.pool().get(len)))
}

pub(super) fn write(
    shard: &Shard,
    mirror: &Rc<Mirror>,
    offset: u64,
    bytes: &[u8],
) -> Result<(), IoError> {
    let buf = shard.pool().copy_of(bytes).freeze();
    ask(shard, mirror, Request::write(offset, buf, false)).map(drop)
}

pub(super) fn flush(shard: &Shard, mirror: &Rc<Mirror>) -> Result<(), IoError> {
    ask(shard, mirror, Request::flush()).map(drop)
}

/// Blocks and a root, durable.
pub(super) fn commit(
    shard: &Shard,
    mirror: &Rc<Mirror>,
    writes: Vec<(u64, Vec<u8>)>,
    root: Option<Vec<u8>>,
) -> Result<(), IoError> {
    let copy = |(offset, bytes): (u64, Vec<u8>)| (offset, shard.pool().copy_of(&bytes).freeze());
    let (writes, mirror) = (writes.into_iter().map(copy).collect(), Rc::clone(mirror));
    shard.block_on(async move { mirror.commit(writes, root.as_deref()).await })
}
