//! The result of an fsync when a brick could not be flushed.

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

/// Plays with a volume of one brick, whose flushes fail while the cell says so.
fn on_failing_brick<W: Future<Output = ()> + 'static>(
    play: impl FnOnce(Rc<Volume>, Rc<Cell<bool>>) -> W + 'static,
) {
    let (world, store) = World::new(128 << 10, &[8]);
    let flushes_fail = Rc::new(Cell::new(false));
    let mut from = world.mount_of(&store);
    let below = Rc::clone(&from.devices[0].device);
    let info = DeviceInfo { volatile_cache: true, ..below.info().clone() };
    from.devices[0].device =
        Rc::new(Cached { info, below, flushes_fail: Rc::clone(&flushes_fail) });
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        play(Volume::mount(&shard, from).await.unwrap(), flushes_fail).await;
    });
}

#[test]
fn an_fsync_tells_of_a_flush_that_failed_before_it_came() {
    on_failing_brick(async move |volume, flushes_fail| {
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

#[test]
fn each_who_has_a_file_open_is_told_of_a_loss_once() {
    on_failing_brick(async move |volume, flushes_fail| {
        let (a, b) = (file(&volume, "a").await, file(&volume, "b").await);
        let c = file(&volume, "c").await;
        write(&volume, a, 0, &[1; 5000]).await.unwrap();
        write(&volume, c, 0, &[1; 5000]).await.unwrap();
        volume.fsync(c, false).await.unwrap();
        let opened = || Cell::new(volume.losses_told(a));
        let (first, second) = (opened(), opened());
        write(&volume, a, 0, &[2; 5000]).await.unwrap();
        flushes_fail.set(true);
        assert_eq!(volume.fsync(b, false).await, Err(Errno::Io));
        flushes_fail.set(false);
        // Opened after the loss, of which nobody was told yet.
        let third = opened();
        for open in [&first, &second, &third] {
            assert_eq!(volume.fsync_since(a, true, open).await, Err(Errno::Io));
            assert_eq!(volume.fsync_since(a, true, open).await, Ok(()), "it was told");
        }
        assert_eq!(volume.fsync_since(a, true, &opened()).await, Ok(()), "somebody was told");
        assert_eq!(volume.fsync(c, false).await, Ok(()), "it lost nothing");
    });
}

#[test]
fn a_loss_is_told_although_many_other_files_were_used_since() {
    on_failing_brick(async move |volume, flushes_fail| {
        let (a, b) = (file(&volume, "a").await, file(&volume, "b").await);
        write(&volume, a, 0, &[1; 5000]).await.unwrap();
        flushes_fail.set(true);
        assert_eq!(volume.fsync(b, false).await, Err(Errno::Io));
        flushes_fail.set(false);
        let record = volume.inodes.get(b).await.unwrap().with(|record| record.encode());
        for ino in (1 << 40)..(1 << 40) + (70 << 10) {
            volume.inodes.keep_stored(ino, &record).unwrap();
        }
        assert!(volume.inodes.known((1 << 40) + 1).is_none(), "unused ones were let go");
        assert_eq!(volume.fsync(a, false).await, Err(Errno::Io));
    });
}
