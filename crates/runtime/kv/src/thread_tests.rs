use super::*;
use crate::region::DeviceRegion;
use crate::testing::put;
use braid_device::Opener;
use braid_device::ram::Ram;

/// A real shard: the store's thread wakes it.
fn shard() -> Shard {
    Shard::with_ring(0).unwrap()
}

fn region(shard: &Shard, ram: &Ram) -> Box<dyn Region> {
    let device = ram.open(shard).unwrap();
    let size = device.info().size;
    Box::new(DeviceRegion::new(shard, device, 4096, size - 8192).unwrap())
}

#[test]
fn a_store_on_devices_is_there_again_after_a_stop() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20)];
    let regions = || rams.iter().map(|ram| region(&shard, ram)).collect();
    let store = shard.block_on(KvStore::open(&shard, regions(), Open::Create, 1 << 20)).unwrap();
    assert!(store.space().capacity > 6 << 20);
    let before = store.get(b"k");
    let commit = store.commit(vec![put("k", "v"), put("l", "w")]);
    let after = store.scan(b"a", b"z", 10);
    shard.block_on(async move {
        assert_eq!(before.await, Ok(None));
        assert_eq!(commit.await, Ok(()));
        assert_eq!(after.await.unwrap().len(), 2);
    });
    assert!(store.space().used > 0);
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    assert_eq!(shard.block_on(store.get(b"k")), Err(ended()));
    let store = shard.block_on(KvStore::open(&shard, regions(), Open::AfterStop, 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.get(b"l")), Ok(Some(b"w".to_vec())));
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    // Each of the two has everything.
    let alone = vec![region(&shard, &rams[1])];
    let store = shard.block_on(KvStore::open(&shard, alone, Open::AfterCrash, 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.get(b"k")), Ok(Some(b"v".to_vec())));
}

#[test]
fn a_half_that_is_asked_to_go_is_reported_before_the_answer_and_another_takes_its_place() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20), Ram::new("c", 8 << 20)];
    let regions = vec![region(&shard, &rams[0]), region(&shard, &rams[1])];
    let store = shard.block_on(KvStore::open(&shard, regions, Open::Create, 1 << 20)).unwrap();
    let seen: Rc<RefCell<Vec<Dropped>>> = Rc::default();
    let told = Rc::clone(&seen);
    store.on_dropped(move |dropped| told.borrow_mut().push(dropped.clone()));
    assert_eq!(shard.block_on(store.commit(vec![put("k", "v")])), Ok(()));
    assert!(seen.borrow().is_empty());
    assert!(matches!(
        shard.block_on(store.add_half(region(&shard, &rams[2]))),
        Err(StoreError::Failed(_))
    ));
    assert_eq!(shard.block_on(store.drop_half(0)), Ok(()));
    assert_eq!(seen.borrow().iter().map(|dropped| dropped.half).collect::<Vec<_>>(), [0]);
    assert!(matches!(shard.block_on(store.drop_half(1)), Err(StoreError::Failed(_))));
    let joined = store.add_half(region(&shard, &rams[2]));
    let commit = store.commit(vec![put("l", "w")]);
    assert_eq!(shard.block_on(async move { (joined.await, commit.await) }), (Ok(()), Ok(())));
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    let alone = vec![region(&shard, &rams[2])];
    let store = shard.block_on(KvStore::open(&shard, alone, Open::AfterStop, 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.scan(b"a", b"z", 9)).unwrap().len(), 2);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let shard = shard();
    let open = |size: u64, how| {
        let ram = Ram::new("a", size);
        shard.block_on(KvStore::open(&shard, vec![region(&shard, &ram)], how, 1 << 20)).err()
    };
    let text = |error: Option<StoreError>| error.unwrap().to_string();
    assert!(text(open(1 << 20, Open::Create)).contains("give it 4 MiB or more"));
    assert!(text(open(8 << 20, Open::AfterStop)).contains("holds no store"));
    let none = shard.block_on(KvStore::open(&shard, Vec::new(), Open::AfterStop, 1 << 20));
    assert!(matches!(none.err(), Some(StoreError::Failed(_))));
}

#[test]
fn a_half_that_does_not_take_the_end_is_reported_before_the_stop_is_answered() {
    use crate::disk_tests::{Disk, Fuse};
    let shard = shard();
    let disks = ["a", "b"].map(|name| Disk::new(name, 8 << 20, &Fuse::default()));
    let regions = disks.iter().map(Disk::region).collect();
    let store = shard.block_on(KvStore::open(&shard, regions, Open::Create, 1 << 20)).unwrap();
    let seen: Rc<RefCell<Vec<Dropped>>> = Rc::default();
    let told = Rc::clone(&seen);
    store.on_dropped(move |dropped| told.borrow_mut().push(dropped.clone()));
    assert_eq!(shard.block_on(store.commit(vec![put("k", "v")])), Ok(()));
    disks[1].fail();
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    assert_eq!(seen.borrow().iter().map(|dropped| dropped.half).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_half_joins_also_where_requests_leave_no_pause() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20)];
    let regions = vec![region(&shard, &rams[0])];
    let store = shard.block_on(KvStore::open(&shard, regions, Open::Create, 1 << 20)).unwrap();
    let pairs = (0..1000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![7; 50])));
    assert_eq!(shard.block_on(store.commit(pairs.collect())), Ok(()));
    let joined = Rc::new(Cell::new(false));
    let joins = store.add_half(region(&shard, &rams[1]));
    let done = Rc::clone(&joined);
    shard.spawn(async move {
        assert_eq!(joins.await, Ok(()));
        done.set(true);
    });
    // They are asked faster than they are answered.
    let scans: Vec<_> = (0..2000).map(|_| store.scan(b"", &[0xff; 5], 1000)).collect();
    shard.block_on(async move {
        for scan in scans {
            assert_eq!(scan.await.unwrap().len(), 1000);
        }
    });
    assert!(joined.get());
}

#[test]
fn a_commit_that_was_begun_is_written_when_it_is_told_to_go_on() {
    let shard = shard();
    let ram = Ram::new("a", 8 << 20);
    let store =
        shard.block_on(KvStore::open(&shard, vec![region(&shard, &ram)], Open::Create, 1 << 20));
    let store = store.unwrap();
    let bytes = || {
        let mut all = vec![0; 8 << 20];
        assert!(ram.memory().read(0, &mut all));
        all
    };
    let before = bytes();
    let begun = store.begin_commit(vec![put("k", "v")]).ok().unwrap();
    // Asked afterwards, it waits.
    let after = store.get(b"k");
    let pause = shard.clone();
    shard.block_on(async move { pause.sleep(20_000_000).await });
    assert!(bytes() == before);
    (begun.go)();
    assert_eq!(shard.block_on(begun.done), Ok(()));
    assert!(bytes() != before);
    assert_eq!(shard.block_on(after), Ok(Some(b"v".to_vec())));
    // One that is given up ends the store.
    let Begun { go, done } = store.begin_commit(vec![put("k", "w")]).ok().unwrap();
    drop(go);
    assert!(matches!(shard.block_on(done), Err(StoreError::Failed(_))));
    assert!(matches!(shard.block_on(store.get(b"k")), Err(StoreError::Failed(_))));
}
