//! Bricks that keep requests waiting, and fail, while files are written and stripes move.

use super::*;
use crate::{BrickToAdd, NewJob};
use braid_device::{Completion, Device, DeviceInfo, IoError, IoErrorKind, Request};
use braid_filesystem::{Allocate, SetAttr};
use braid_format::volume::brick_record::BrickState;
use braid_kv::StoreError;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

const STRIPE: u64 = 128 << 10;

/// The faults of a brick.
#[derive(Default)]
pub(super) struct Moods {
    /// Requests wait for [`release`](Frail::release).
    holds: Cell<bool>,
    /// Requests fail so.
    error: Cell<Option<IoErrorKind>>,
    held: RefCell<VecDeque<(Request, Completion)>>,
}

/// A brick with moods.
#[derive(Clone)]
pub(super) struct Frail {
    info: DeviceInfo,
    inner: Rc<dyn Device>,
    moods: Rc<Moods>,
}

impl Frail {
    pub(super) fn new(ram: &Ram, volatile_cache: bool) -> Frail {
        let inner = ram.device();
        let info = DeviceInfo { volatile_cache, ..inner.info().clone() };
        Frail { info, inner, moods: Rc::default() }
    }

    pub(super) fn hold(&self) {
        self.moods.holds.set(true);
    }

    pub(super) fn hold_no_more(&self) {
        self.moods.holds.set(false);
    }

    pub(super) fn fail(&self, kind: IoErrorKind) {
        self.moods.error.set(Some(kind));
    }

    pub(super) fn waiting(&self) -> usize {
        self.moods.held.borrow().len()
    }

    /// The oldest request that waits goes on.
    pub(super) fn release(&self) {
        let (request, done) = self.moods.held.borrow_mut().pop_front().expect("nothing waits");
        self.go_on(request, done);
    }

    /// The youngest request that waits goes on.
    pub(super) fn release_last(&self) {
        let (request, done) = self.moods.held.borrow_mut().pop_back().expect("nothing waits");
        self.go_on(request, done);
    }

    fn go_on(&self, request: Request, done: Completion) {
        match self.moods.error.get() {
            Some(kind) => done.finish(Err(IoError::new(kind)), request.op),
            None => self.inner.submit(request, done),
        }
    }
}

impl Device for Frail {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        match self.moods.holds.get() {
            true => self.moods.held.borrow_mut().push_back((request, done)),
            false => self.go_on(request, done),
        }
    }
}

/// Mounts the volume over bricks with moods.
pub(super) fn mount(world: &World, store: &ModelStore, caches: bool) -> (Rc<Volume>, Vec<Frail>) {
    let bricks: Vec<Frail> = world.bricks.iter().map(|ram| Frail::new(ram, caches)).collect();
    let mut from = world.mount_of(store);
    for (brick, frail) in from.devices.iter_mut().zip(&bricks) {
        brick.device = Rc::new(frail.clone());
    }
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    (volume, bricks)
}

/// Lets everything else run until `is_so`.
pub(super) async fn until(volume: &Volume, is_so: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        volume.shard.yield_now().await;
    }
    panic!("it never comes to that");
}

type Results<T> = Rc<RefCell<Vec<T>>>;

/// Begins a write of bytes that are all `byte`.
fn begin(
    volume: &Rc<Volume>,
    results: &Results<Result<(), Errno>>,
    (ino, offset, len, byte): (Ino, u64, usize, u8),
) {
    let (own, results) = (Rc::clone(volume), Rc::clone(results));
    volume.shard.spawn(async move {
        let result = write(&own, ino, offset, &vec![byte; len]).await;
        results.borrow_mut().push(result);
    });
}

async fn is_clean(volume: &Rc<Volume>) {
    let report = volume.check(false).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn two_writes_of_a_stripe_whose_brick_dies_both_land_elsewhere() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let reserve = Allocate::Reserve { keep_size: false };
        volume.allocate(ino, reserve, 0, STRIPE).await.unwrap();
        let inode = volume.inodes.get(ino).await.unwrap();
        let on = usize::from(volume.extents.get(&inode.extents, 0).await.unwrap().1.brick);
        let (dying, other) = (&bricks[on], &bricks[1 - on]);
        bricks.iter().for_each(Frail::hold);
        let results = Results::default();
        begin(&volume, &results, (ino, 0, 4096, 1));
        begin(&volume, &results, (ino, 4096, 4096, 2));
        until(&volume, || dying.waiting() == 2).await;
        dying.fail(IoErrorKind::Gone);
        dying.release();
        // The first is on its way to the other brick when the second hears of it.
        until(&volume, || other.waiting() == 1).await;
        dying.release();
        for _ in 0..1000 {
            volume.shard.yield_now().await;
        }
        other.moods.holds.set(false);
        while other.waiting() > 0 {
            other.release();
        }
        until(&volume, || results.borrow().len() == 2).await;
        assert_eq!(*results.borrow(), [Ok(()), Ok(())]);
        let read = volume.read(ino, 0, 8192).await.unwrap();
        assert!(
            read[..4096].iter().all(|byte| *byte == 1)
                && read[4096..].iter().all(|byte| *byte == 2)
        );
        is_clean(&volume).await;
    });
}

#[test]
fn a_write_whose_place_is_taken_away_before_it_is_sent_writes_nowhere_else() {
    let (mut world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    let proxy = Ram::new("proxy", 32 << 20);
    let new = BrickToAdd {
        uuid: Uuid::from_u128(3),
        device: proxy.device(),
        data_offset: 0,
        weight: 32,
        blocks: (32 << 20) / BLOCK,
        proxy: true,
        domain: String::new(),
        in_place_of: None,
    };
    world.bricks.push(proxy);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let reserve = Allocate::Reserve { keep_size: false };
        volume.allocate(ino, reserve, 0, 16 * STRIPE).await.unwrap();
        let inode = volume.inodes.get(ino).await.unwrap();
        let placed = volume.extents.group(&inode.extents, 0).await.unwrap().placed();
        let brick = |stripe: u64| usize::from(placed[stripe as usize].1.brick);
        let stripe = (1..16).find(|stripe| brick(*stripe) == 1 && brick(*stripe - 1) == 0).unwrap();
        for at in (0..16).filter(|at| *at != stripe) {
            write(&volume, ino, at * STRIPE, &vec![at as u8; STRIPE as usize]).await.unwrap();
        }
        // New extents are there, where the free space has not been looked at yet.
        volume.add_brick(new).await.unwrap();
        bricks.iter().for_each(Frail::hold);
        let results = Results::default();
        // This one has to read a block of the stripe before.
        begin(&volume, &results, (ino, stripe * STRIPE - 100, 8292, 101));
        begin(&volume, &results, (ino, stripe * STRIPE + 20480, 4096, 102));
        until(&volume, || bricks[0].waiting() == 1 && bricks[1].waiting() == 1).await;
        store.set_commit_time(20_000_000);
        file(&volume, "b").await;
        let syncing = Rc::clone(&volume);
        volume.shard.spawn(async move { syncing.sync_all().await.unwrap() });
        until(&volume, || store.is_committing()).await;
        bricks[1].fail(IoErrorKind::Gone);
        bricks[1].release();
        until(&volume, || volume.brick(1).is_some_and(|brick| !brick.is_there())).await;
        bricks[0].moods.holds.set(false);
        bricks[0].release();
        while results.borrow().len() < 2 {
            volume.shard.sleep(1_000_000).await;
        }
        assert_eq!(*results.borrow(), [Ok(()), Ok(())]);
        for at in (0..16).filter(|at| brick(*at) == 0) {
            let end = if at + 1 == stripe { STRIPE as usize - 100 } else { STRIPE as usize };
            let read = volume.read(ino, at * STRIPE, STRIPE as usize).await.unwrap();
            assert!(read[..end].iter().all(|byte| *byte == at as u8), "stripe {at}");
        }
        let read = volume.read(ino, stripe * STRIPE - 100, 8292).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 101));
        let read = volume.read(ino, stripe * STRIPE + 20480, 4096).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 102));
        is_clean(&volume).await;
    });
}

#[test]
fn a_lost_stripe_that_is_written_anew_stays_as_it_is_where_there_is_no_room() {
    let (world, store) = World::new(STRIPE, &[4, 4]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let mut at = 0;
        while write(&volume, ino, at * STRIPE, &vec![7; STRIPE as usize]).await.is_ok() {
            at += 1;
        }
        let inode = volume.inodes.get(ino).await.unwrap();
        let placed = volume.extents.group(&inode.extents, 0).await.unwrap().placed();
        let stripe = placed.iter().find(|(_, extent)| extent.brick == 1).unwrap().0;
        bricks[1].fail(IoErrorKind::Gone);
        assert_eq!(volume.read(ino, stripe * STRIPE, 10).await.err(), Some(Errno::Io));
        let full = write(&volume, ino, stripe * STRIPE, &vec![8; STRIPE as usize]).await;
        assert_eq!(full, Err(Errno::NoSpace));
        assert_eq!(volume.read(ino, stripe * STRIPE, 10).await.err(), Some(Errno::Io));
    });
}

/// A file of one block on brick 0 that cannot grow where it is, and the other that lies behind it. Brick 1 is the proxy.
async fn hemmed_in(volume: &Volume) -> (Ino, Ino) {
    volume.set_proxy(Some(1)).await.unwrap();
    volume.set_proxy(None).await.unwrap();
    let (one, other) = (file(volume, "a").await, file(volume, "b").await);
    write(volume, one, 0, &[1; 4096]).await.unwrap();
    write(volume, other, 0, &[2; 4096]).await.unwrap();
    volume.set_proxy(Some(1)).await.unwrap();
    (one, other)
}

#[test]
fn a_place_that_is_to_grow_on_a_brick_that_is_gone_grows_elsewhere() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let (one, _) = hemmed_in(&volume).await;
        bricks[1].fail(IoErrorKind::Gone);
        write(&volume, one, 4096, &[3; 20_000]).await.unwrap();
        let read = read_all(&volume, one).await;
        assert!(read[..4096].iter().all(|byte| *byte == 1));
        assert!(read[4096..].iter().all(|byte| *byte == 3));
        is_clean(&volume).await;
    });
}

#[test]
fn space_that_was_set_aside_on_a_brick_that_is_gone_can_be_made_more() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let (ino, other) = (file(&volume, "a").await, file(&volume, "b").await);
        let reserve = Allocate::Reserve { keep_size: false };
        volume.allocate(ino, reserve, 0, 4096).await.unwrap();
        let inode = volume.inodes.get(ino).await.unwrap();
        let extent = volume.extents.get(&inode.extents, 0).await.unwrap().1;
        let dying = usize::from(extent.brick);
        bricks[dying].fail(IoErrorKind::Gone);
        // Writes here and there, until one finds that the brick is gone.
        for stripe in 0..16 {
            write(&volume, other, stripe * STRIPE, &[1; 4096]).await.unwrap();
        }
        assert!(!volume.brick(extent.brick).unwrap().is_there());
        volume.allocate(ino, reserve, 0, STRIPE).await.unwrap();
        let now = volume.extents.get(&inode.extents, 0).await.unwrap().1;
        assert_ne!(now.brick, extent.brick);
        write(&volume, ino, 0, &vec![2; STRIPE as usize]).await.unwrap();
        assert!(read_all(&volume, ino).await.iter().all(|byte| *byte == 2));
        is_clean(&volume).await;
    });
}

#[test]
fn a_file_that_is_removed_while_its_migration_is_refused_stays_removed() {
    let (world, store) = World::new(STRIPE, &[32, 4]);
    let (volume, bricks) = mount(&world, &store, true);
    world.shard.block_on(async move {
        let (large, removed) = (file(&volume, "a").await, file(&volume, "b").await);
        // More than brick 1 has room for.
        write(&volume, large, 0, &vec![1; 8 << 20]).await.unwrap();
        write(&volume, removed, 0, &[2; 4096]).await.unwrap();
        volume.sync().await.unwrap();
        write(&volume, large, 0, &[3; 4096]).await.unwrap();
        bricks.iter().for_each(Frail::hold);
        let (own, refused) = (Rc::clone(&volume), Results::default());
        let results = Rc::clone(&refused);
        volume.shard.spawn(async move {
            let started = own.migrate_files(&[large, removed], 1).await;
            results.borrow_mut().push(started.is_err());
        });
        until(&volume, || bricks.iter().any(|brick| brick.waiting() > 0)).await;
        volume.unlink(ROOT, b"b").await.unwrap();
        volume.forget(removed, u64::MAX);
        until(&volume, || volume.inodes.known(removed).is_none()).await;
        for brick in &bricks {
            brick.moods.holds.set(false);
            while brick.waiting() > 0 {
                brick.release();
            }
        }
        until(&volume, || !refused.borrow().is_empty()).await;
        assert_eq!(*refused.borrow(), [true]);
        volume.sync().await.unwrap();
        is_clean(&volume).await;
    });
}

#[test]
fn what_a_write_that_failed_left_beyond_the_end_does_not_show_when_the_file_grows() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        let reserve = Allocate::Reserve { keep_size: true };
        volume.allocate(ino, reserve, 0, 8 * STRIPE).await.unwrap();
        write(&volume, ino, 0, &[1; 100]).await.unwrap();
        bricks[1].fail(IoErrorKind::Medium);
        let all = vec![2; 8 * STRIPE as usize];
        assert_eq!(write(&volume, ino, 100, &all[100..]).await, Err(Errno::Io));
        bricks[1].moods.error.set(None);
        assert_eq!(volume.attr(ino).await.unwrap().size, 100);
        let size = Some(8 * STRIPE);
        volume.set_attr(ME, ino, SetAttr { size, ..SetAttr::default() }).await.unwrap();
        let read = read_all(&volume, ino).await;
        assert!(read[100..].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn an_fsync_tells_of_a_brick_that_was_gone_before_it_came() {
    let (world, store) = World::new(STRIPE, &[32]);
    let (volume, bricks) = mount(&world, &store, true);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        volume.sync().await.unwrap();
        write(&volume, ino, 0, &[7; 4096]).await.unwrap();
        bricks[0].fail(IoErrorKind::Gone);
        assert_eq!(volume.read(ino, 0, 10).await.err(), Some(Errno::Io));
        assert_eq!(volume.fsync(ino, false).await, Err(Errno::Io));
        assert_eq!(volume.fsync(ino, false).await, Ok(()));
    });
}

#[test]
fn a_brick_that_fails_a_flush_is_let_go() {
    let (world, store) = World::new(STRIPE, &[32]);
    let (volume, bricks) = mount(&world, &store, true);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &[7; 4096]).await.unwrap();
        bricks[0].fail(IoErrorKind::Medium);
        assert_eq!(volume.fsync(ino, false).await, Err(Errno::Io));
        bricks[0].moods.error.set(None);
        assert!(!volume.brick(0).unwrap().is_there());
        assert_eq!(volume.read(ino, 0, 10).await.err(), Some(Errno::Io));
    });
}

#[test]
fn a_brick_is_let_go_when_what_was_on_its_way_there_has_come_and_left() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let (one, other) = hemmed_in(&volume).await;
        // The extent cannot grow where it is, so it is to be copied to the proxy.
        bricks[0].hold();
        let results = Results::default();
        begin(&volume, &results, (one, 4096, 20_000, 3));
        until(&volume, || bricks[0].waiting() == 1).await;
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        for _ in 0..1000 {
            volume.shard.yield_now().await;
        }
        bricks[0].moods.holds.set(false);
        bricks[0].release();
        until(&volume, || results.borrow().len() == 1).await;
        assert_eq!(*results.borrow(), [Ok(())]);
        volume.wait_job().await.unwrap();
        assert!(volume.brick(1).is_none());
        let read = read_all(&volume, one).await;
        assert!(
            read[..4096].iter().all(|byte| *byte == 1)
                && read[4096..].iter().all(|byte| *byte == 3)
        );
        assert_eq!(read_all(&volume, other).await, [2; 4096]);
        is_clean(&volume).await;
    });
}

#[test]
fn a_removal_that_failed_gives_its_brick_back_when_another_job_takes_its_place() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &vec![7; 32 * STRIPE as usize]).await.unwrap();
        bricks[1].fail(IoErrorKind::Medium);
        volume.start_job(NewJob::Remove { brick: 1 }).await.unwrap();
        volume.wait_job().await.unwrap_err();
        assert_eq!(volume.brick(1).unwrap().state(), BrickState::Removing);
        bricks[1].moods.error.set(None);
        volume.start_job(NewJob::Balance).await.unwrap();
        assert_eq!(volume.brick(1).unwrap().state(), BrickState::Data);
        volume.wait_job().await.unwrap();
        assert!(volume.status().bricks[1].fair_share > 0.4);
        let read = read_all(&volume, ino).await;
        assert!(read.iter().all(|byte| *byte == 7));
        is_clean(&volume).await;
    });
}

#[test]
fn a_place_does_not_grow_onto_a_brick_that_fails_a_flush_while_it_is_copied() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, true);
    world.shard.block_on(async move {
        let (one, _) = hemmed_in(&volume).await;
        let other = file(&volume, "on the proxy").await;
        write(&volume, other, 0, &[4; 4096]).await.unwrap();
        bricks[1].hold();
        let results = Results::default();
        begin(&volume, &results, (one, 4096, 20_000, 3));
        until(&volume, || bricks[1].waiting() == 1).await;
        let syncing = Rc::clone(&volume);
        volume.shard.spawn(async move { _ = syncing.sync().await });
        until(&volume, || bricks[1].waiting() == 2).await;
        bricks[1].fail(IoErrorKind::Medium);
        bricks[1].release_last();
        until(&volume, || volume.brick(1).is_some_and(|brick| !brick.is_there())).await;
        // The copy arrives all the same, but nobody makes it durable.
        bricks[1].moods.error.set(None);
        bricks[1].release();
        until(&volume, || results.borrow().len() == 1).await;
        assert_eq!(*results.borrow(), [Ok(())]);
        let inode = volume.inodes.get(one).await.unwrap();
        assert_eq!(volume.extents.get(&inode.extents, 0).await.unwrap().1.brick, 0);
        let read = read_all(&volume, one).await;
        assert!(read[..4096].iter().all(|byte| *byte == 1));
    });
}

#[test]
fn a_lost_stripe_that_is_written_anew_is_lost_or_new_after_a_crash() {
    let (mut world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, false);
    let (store_now, own) = (store.clone(), Rc::clone(&volume));
    let (ino, crashed) = world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        write(&volume, ino, 0, &vec![7; 8 * STRIPE as usize]).await.unwrap();
        volume.sync().await.unwrap();
        let inode = volume.inodes.get(ino).await.unwrap();
        let placed = volume.extents.group(&inode.extents, 0).await.unwrap().placed();
        let stripe = placed.iter().find(|(_, extent)| extent.brick == 1).unwrap().0;
        bricks[1].fail(IoErrorKind::Gone);
        assert!(volume.read(ino, stripe * STRIPE, 10).await.is_err());
        bricks[0].hold();
        let results = Results::default();
        begin(&volume, &results, (ino, stripe * STRIPE, STRIPE as usize, 8));
        until(&volume, || bricks[0].waiting() == 1).await;
        volume.sync().await.unwrap();
        let crashed = store_now.snapshot();
        bricks[0].moods.holds.set(false);
        bricks[0].release();
        until(&volume, || results.borrow().len() == 1).await;
        assert_eq!(*results.borrow(), [Ok(())]);
        let read = volume.read(ino, stripe * STRIPE, STRIPE as usize).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 8));
        is_clean(&volume).await;
        ((ino, stripe), crashed)
    });
    drop(own);
    let (ino, stripe) = ino;
    // With the brick back it is as it was; without it, still lost.
    for back in [true, false] {
        let store = ModelStore::from_snapshot(&world.shard, crashed.clone());
        if !back {
            world.bricks.pop();
        }
        let volume = world.mount(&store);
        world.shard.block_on(async move {
            let read = volume.read(ino, stripe * STRIPE, STRIPE as usize).await;
            match back {
                true => assert!(read.unwrap().iter().all(|byte| *byte == 7)),
                false => assert_eq!(read.err(), Some(Errno::Io)),
            }
        });
    }
}

/// Mounts the volume over bricks with caches and moods; what is to be noted as lost goes to `noted`.
fn mount_noting(
    world: &World,
    store: &ModelStore,
    noted: impl Fn(u16) -> Result<(), StoreError> + 'static,
) -> (Rc<Volume>, Vec<Frail>) {
    let bricks: Vec<Frail> = world.bricks.iter().map(|ram| Frail::new(ram, true)).collect();
    let mut from = world.mount_of(store);
    for (brick, frail) in from.devices.iter_mut().zip(&bricks) {
        brick.device = Rc::new(frail.clone());
    }
    let shard = world.shard.clone();
    let noted = Rc::new(noted);
    from.note_lost = Rc::new(move |id| {
        let (shard, noted) = (shard.clone(), Rc::clone(&noted));
        Box::pin(async move {
            shard.sleep(1_000_000).await;
            noted(id)
        })
    });
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    (volume, bricks)
}

#[test]
fn a_brick_that_may_have_lost_writes_is_noted_once_before_the_commit_that_names_them() {
    for dies in [IoErrorKind::Medium, IoErrorKind::Gone] {
        let (world, store) = World::new(STRIPE, &[32, 32]);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (own, records) = (Rc::clone(&seen), store.clone());
        let (volume, bricks) = mount_noting(&world, &store, move |id| {
            own.borrow_mut().push((id, records.snapshot().pairs().len()));
            Ok(())
        });
        world.shard.block_on(async move {
            let ino = file(&volume, "a").await;
            volume.sync().await.unwrap();
            let before = store.snapshot().pairs().len();
            write(&volume, ino, 0, &vec![7; 8 * STRIPE as usize]).await.unwrap();
            bricks[1].fail(dies);
            assert_eq!(volume.fsync(ino, false).await, Err(Errno::Io));
            assert_eq!(*seen.borrow(), [(1, before)], "noted, and nothing was committed yet");
            assert!(store.snapshot().pairs().len() > before);
            write(&volume, ino, 9 * STRIPE, &[8; 4096]).await.unwrap();
            volume.fsync(ino, false).await.unwrap();
            assert_eq!(seen.borrow().len(), 1);
        });
    }
}

#[test]
fn a_flush_that_succeeds_beside_one_that_failed_proves_nothing() {
    let (world, store) = World::new(STRIPE, &[32]);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&seen);
    let (volume, bricks) = mount_noting(&world, &store, move |id| {
        own.borrow_mut().push(id);
        Ok(())
    });
    world.shard.block_on(async move {
        let (one, other) = (file(&volume, "a").await, file(&volume, "b").await);
        volume.sync().await.unwrap();
        write(&volume, one, 0, &[7; 4096]).await.unwrap();
        bricks[0].hold();
        for (ino, waiting) in [(one, 1), (other, 2)] {
            let own = Rc::clone(&volume);
            volume.shard.spawn(async move {
                assert_eq!(own.fsync(ino, false).await, Err(Errno::Io));
            });
            until(&volume, || bricks[0].waiting() == waiting).await;
        }
        bricks[0].fail(IoErrorKind::Medium);
        bricks[0].release_last();
        until(&volume, || !volume.brick(0).unwrap().is_there()).await;
        bricks[0].moods.error.set(None);
        bricks[0].release();
        volume.shard.sleep(20_000_000).await;
        assert_eq!(*seen.borrow(), [0]);
    });
}

#[test]
fn where_it_cannot_be_noted_that_a_brick_has_lost_writes_nothing_is_committed_any_more() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) =
        mount_noting(&world, &store, |_| Err(StoreError::Failed("nowhere".to_string())));
    world.shard.block_on(async move {
        let ino = file(&volume, "a").await;
        volume.sync().await.unwrap();
        let before = store.snapshot();
        write(&volume, ino, 0, &vec![7; 8 * STRIPE as usize]).await.unwrap();
        bricks[1].fail(IoErrorKind::Medium);
        assert_eq!(volume.fsync(ino, false).await, Err(Errno::Io));
        assert_eq!(write(&volume, ino, 0, &[7; 10]).await, Err(Errno::ReadOnly));
        assert_eq!(store.snapshot().pairs(), before.pairs());
    });
}

#[test]
fn what_a_brick_gives_after_it_was_let_go_is_not_taken() {
    let (world, store) = World::new(STRIPE, &[32, 32]);
    let (volume, bricks) = mount(&world, &store, true);
    world.shard.block_on(async move {
        let (one, other) = hemmed_in(&volume).await;
        write(&volume, other, 0, &[4; 4096]).await.unwrap();
        bricks.iter().for_each(Frail::hold);
        // Brick 0 is asked for a file's bytes, and for those of an extent that is to grow on the proxy.
        let read = Rc::new(RefCell::new(None));
        let (own, into) = (Rc::clone(&volume), Rc::clone(&read));
        volume.shard.spawn(async move {
            let result = own.read(other, 0, 4096).await;
            into.borrow_mut().replace(result.map(|_| ()));
        });
        until(&volume, || bricks[0].waiting() == 1).await;
        let results = Results::default();
        begin(&volume, &results, (one, 4096, 8192, 3));
        until(&volume, || bricks[0].waiting() == 2).await;
        let synced = Rc::clone(&volume);
        volume.shard.spawn(async move {
            assert_eq!(synced.fsync(other, false).await, Err(Errno::Io));
        });
        until(&volume, || bricks[0].waiting() == 3).await;
        bricks[0].fail(IoErrorKind::Medium);
        bricks[0].release_last();
        until(&volume, || !volume.brick(0).unwrap().is_there()).await;
        // The flush of the other brick is on its way still.
        bricks[0].moods.error.set(None);
        for brick in &bricks {
            brick.moods.holds.set(false);
            while brick.waiting() > 0 {
                brick.release();
            }
        }
        until(&volume, || read.borrow().is_some() && results.borrow().len() == 1).await;
        assert_eq!(*read.borrow(), Some(Err(Errno::Io)));
        assert_eq!(
            volume.read(one, 0, 4096).await.err(),
            Some(Errno::Io),
            "nothing old was copied"
        );
    });
}
