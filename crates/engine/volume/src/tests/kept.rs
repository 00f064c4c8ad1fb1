//! Small writes that nobody waits to see on the bricks.

use super::*;
use braid_device::{Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Outcome, Request};
use braid_filesystem::{RenameFlags, SetAttr, SetTime, Time, Writing};
use std::cell::{Cell, RefCell};

/// A brick that keeps writes while it is told to, and fails them if it is told to.
struct Slow {
    info: DeviceInfo,
    below: Rc<dyn Device>,
    how: Rc<How>,
}

#[derive(Default)]
struct How {
    keeps: Cell<bool>,
    fails: Cell<bool>,
    kept: RefCell<Vec<(Request, Completion)>>,
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if !matches!(request.op, Op::Write { .. }) {
            return self.below.submit(request, done);
        }
        if self.how.keeps.get() {
            return self.how.kept.borrow_mut().push((request, done));
        }
        match self.how.fails.get() {
            true => {
                let error = IoError::new(IoErrorKind::Medium);
                done.complete(Outcome::failed(error, request.op));
            }
            false => self.below.submit(request, done),
        }
    }
}

impl Slow {
    /// What was kept goes on.
    fn release(self: &Rc<Self>) {
        self.how.keeps.set(false);
        for (request, done) in self.how.kept.take() {
            self.submit(request, done);
        }
    }
}

/// Plays with a volume of one such brick.
fn on_slow_brick<W: Future<Output = ()> + 'static>(
    play: impl FnOnce(Rc<Volume>, Rc<Slow>) -> W + 'static,
) {
    let (world, store) = World::new(128 << 10, &[8]);
    let mut from = world.mount_of(&store);
    let below = Rc::clone(&from.devices[0].device);
    let slow = Rc::new(Slow { info: below.info().clone(), below, how: Rc::default() });
    from.devices[0].device = Rc::clone(&slow) as Rc<dyn Device>;
    let shard = world.shard.clone();
    world.shard.block_on(async move {
        play(Volume::mount(&shard, from).await.unwrap(), slow).await;
    });
}

const BEHIND: Writing = Writing { clear_setid: false, behind: true, times_told: false };

async fn write_behind(volume: &Volume, ino: Ino, offset: u64, bytes: &[u8]) {
    let buf = volume.shard.pool().copy_of(bytes).freeze();
    volume.write(ino, offset, buf, BEHIND).await.unwrap();
}

/// Lets everything run that can.
async fn some_turns(volume: &Volume) {
    for _ in 0..50 {
        volume.shard.next_turn().await;
    }
}

/// Starts something; the cell says when it has ended.
fn begin<W: Future + 'static>(volume: &Volume, work: W) -> Rc<Cell<bool>> {
    let ended = Rc::new(Cell::new(false));
    let own = Rc::clone(&ended);
    volume.shard.spawn(async move {
        work.await;
        own.set(true);
    });
    ended
}

#[test]
fn a_small_cached_write_is_answered_and_read_before_the_brick_has_it() {
    on_slow_brick(async move |volume, slow| {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[1; 5000]).await.unwrap();
        slow.how.keeps.set(true);
        write_behind(&volume, ino, 4000, &[2; 6000]).await;
        write_behind(&volume, ino, 12_288, &[3; 2000]).await;
        let wanted = [vec![1; 4000], vec![2; 6000], vec![0; 2288], vec![3; 2000]].concat();
        assert_eq!(read_all(&volume, ino).await, wanted);
        let cut = SetAttr { size: Some(13_000), ..SetAttr::default() };
        let own = Rc::clone(&volume);
        // What is beyond the end becomes zeroes on the brick.
        let cut = begin(&volume, async move { assert!(own.set_attr(ME, ino, cut).await.is_ok()) });
        some_turns(&volume).await;
        slow.release();
        some_turns(&volume).await;
        assert!(cut.get());
        let grown = SetAttr { size: Some(14_288), ..SetAttr::default() };
        volume.set_attr(ME, ino, grown).await.unwrap();
        let wanted = [&wanted[..13_000], &[0; 1288]].concat();
        assert_eq!(read_all(&volume, ino).await, wanted);
    });
}

#[test]
fn other_writes_are_answered_when_they_are_on_the_brick() {
    on_slow_brick(async move |volume, slow| {
        let ino = file(&volume, "a").await;
        slow.how.keeps.set(true);
        let (own, other) = (Rc::clone(&volume), Rc::clone(&volume));
        let direct = begin(&volume, async move { write(&own, ino, 0, &[1; 4096]).await.unwrap() });
        let long = begin(&volume, async move {
            write_behind(&other, ino, 128 << 10, &[1; 128 << 10]).await;
        });
        some_turns(&volume).await;
        assert_eq!((direct.get(), long.get()), (false, false));
        slow.release();
        some_turns(&volume).await;
        assert_eq!((direct.get(), long.get()), (true, true));
    });
}

#[test]
fn an_fsync_and_a_commit_wait_for_what_was_kept() {
    on_slow_brick(async move |volume, slow| {
        let ino = file(&volume, "a").await;
        volume.sync_all().await.unwrap();
        let durable = volume.transactions.durable();
        slow.how.keeps.set(true);
        write_behind(&volume, ino, 0, &[1; 3000]).await;
        volume.rename(ROOT, b"a", ROOT, b"b", RenameFlags::default()).await.unwrap();
        let own = Rc::clone(&volume);
        let synced = begin(&volume, async move { own.fsync(ino, true).await.unwrap() });
        let (own, other) = (Rc::clone(&volume), file(&volume, "c").await);
        let other = begin(&volume, async move { own.fsync(other, false).await.unwrap() });
        some_turns(&volume).await;
        assert_eq!((synced.get(), other.get()), (false, false));
        assert_eq!(volume.transactions.durable(), durable, "a name without its data");
        write_behind(&volume, ino, 4096, &[1; 10]).await;
        slow.release();
        some_turns(&volume).await;
        assert_eq!((synced.get(), other.get()), (true, true));
        assert_eq!(read_all(&volume, ino).await.len(), 4106);
    });
}

#[test]
fn what_the_brick_does_not_take_is_told_by_the_next_fsync() {
    on_slow_brick(async move |volume, slow| {
        let ino = file(&volume, "a").await;
        let told = Cell::new(volume.losses_told(ino));
        slow.how.fails.set(true);
        write_behind(&volume, ino, 0, &[1; 3000]).await;
        assert_eq!(read_all(&volume, ino).await, vec![1; 3000], "it is in memory");
        assert_eq!(volume.fsync_since(ino, false, &told).await, Err(Errno::Io));
        assert!(volume.bricks().iter().all(|brick| !brick.is_there()), "it is let go");
        assert_eq!(volume.read(ino, 0, 3000).await.unwrap_err(), Errno::Io);
    });
}

#[test]
fn a_full_volume_is_told_at_the_write() {
    on_slow_brick(async move |volume, _| {
        let ino = file(&volume, "a").await;
        let mut full = None;
        for at in 0..300u64 {
            let buf = volume.shard.pool().copy_of(&[1; 64 << 10]).freeze();
            if let Err(error) = volume.write(ino, at << 16, buf, BEHIND).await {
                full = Some(error);
                break;
            }
        }
        assert_eq!(full, Some(Errno::NoSpace));
        assert_eq!(volume.fsync(ino, false).await, Ok(()));
        let size = volume.attr(ino).await.unwrap().size;
        assert!(size > 7 << 20, "{size}");
    });
}

#[test]
fn a_cached_write_whose_times_are_told_leaves_them_as_they_were_told() {
    on_slow_brick(async move |volume, slow| {
        let ino = file(&volume, "a").await;
        slow.how.keeps.set(true);
        let how = Writing { times_told: true, ..Writing::default() };
        let (own, buf) = (Rc::clone(&volume), volume.shard.pool().copy_of(&[1; 3000]).freeze());
        let written = begin(&volume, async move { own.write(ino, 0, buf, how).await.unwrap() });
        some_turns(&volume).await;
        // The kernel tells the times of a write that is still on its way.
        let told = Time { seconds: 1_000_000_000, nanos: 5 };
        let set =
            SetAttr { mtime: Some(SetTime::To(told)), ctime: Some(told), ..SetAttr::default() };
        volume.set_attr(ME, ino, set).await.unwrap();
        slow.release();
        some_turns(&volume).await;
        assert!(written.get());
        let attr = volume.attr(ino).await.unwrap();
        assert_eq!((attr.size, attr.mtime, attr.ctime), (3000, told, told));
        write(&volume, ino, 0, &[2; 10]).await.unwrap();
        let (attr, now) = (volume.attr(ino).await.unwrap(), Time { seconds: 5, nanos: 6 });
        assert_eq!((attr.mtime, attr.ctime), (now, now));
    });
}
