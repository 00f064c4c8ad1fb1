//! What an fsync says when a brick could not be flushed.

use super::*;
use braid_device::{Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Outcome, Request};
use std::cell::Cell;

/// A brick with a cache, whose flushes can be made to fail.
struct Cached {
    info: DeviceInfo,
    below: Rc<dyn Device>,
    flushes_fail: Rc<Cell<bool>>,
}

impl Device for Cached {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if matches!(request.op, Op::Flush) && self.flushes_fail.get() {
            let error = IoError::new(IoErrorKind::Medium);
            return done.complete(Outcome::failed(error, request.op));
        }
        self.below.submit(request, done);
    }
}

#[test]
fn an_fsync_tells_of_a_flush_that_failed_before_it_came() {
    let (world, store) = World::new(128 << 10, &[8]);
    let flushes_fail = Rc::new(Cell::new(false));
    let mut from = world.mount_of(&store);
    let below = Rc::clone(&from.devices[0].device);
    let info = DeviceInfo { volatile_cache: true, ..below.info().clone() };
    from.devices[0].device =
        Rc::new(Cached { info, below, flushes_fail: Rc::clone(&flushes_fail) });
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        let volume = Volume::mount(&shard, from).await.unwrap();
        let (a, b) = (file(&volume, "a").await, file(&volume, "b").await);
        write(&volume, a, 0, &[1; 5000]).await.unwrap();
        flushes_fail.set(true);
        // Somebody else's, or the commit that comes by itself.
        assert_eq!(volume.fsync(b, false).await, Err(Errno::Io));
        flushes_fail.set(false);
        assert_eq!(volume.fsync(a, false).await, Err(Errno::Io), "its data may be lost");
        assert_eq!(volume.fsync(a, false).await, Ok(()), "it was told");
        assert_eq!(volume.fsync(b, false).await, Ok(()), "it was told");
    });
}
