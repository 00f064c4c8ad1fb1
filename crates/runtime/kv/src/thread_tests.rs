use super::*;
use crate::testing::{Dice, Opened, cut, mirror, put};
use braid_device::ram::Ram;
use braid_device::volatile::{Fuse, VolatileDisk};
use braid_mirror::{Detached, Open, Region};

/// A real shard: the store's thread wakes it.
fn shard() -> Shard {
    Shard::with_ring(0).unwrap()
}

fn region(ram: &Ram) -> Region {
    let device = ram.device();
    let size = device.info().size;
    Region::new(device, 4096, size - 8192).unwrap()
}

fn mirror_of(shard: &Shard, rams: &[Ram], how: Open) -> Result<Rc<Mirror>, StoreError> {
    let (home, regions) = (shard.clone(), rams.iter().map(region).collect());
    Ok(shard.block_on(async move { Mirror::open(&home, regions, how).await })?)
}

fn open(shard: &Shard, rams: &[Ram], how: Open) -> Result<KvStore, StoreError> {
    let mirror = mirror_of(shard, rams, how)?;
    shard.block_on(KvStore::open(shard, mirror, 1 << 20))
}

#[test]
fn a_store_on_devices_is_there_again_after_a_stop() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20)];
    let store = open(&shard, &rams, Open::Create).unwrap();
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
    let store = open(&shard, &rams, Open::AfterStop).unwrap();
    assert_eq!(shard.block_on(store.get(b"l")), Ok(Some(b"w".to_vec())));
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    // Each of the two has everything.
    let store = open(&shard, &rams[1..], Open::AfterCrash).unwrap();
    assert_eq!(shard.block_on(store.get(b"k")), Ok(Some(b"v".to_vec())));
}

#[test]
fn a_leg_goes_and_another_joins_while_the_store_is_used() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20), Ram::new("c", 8 << 20)];
    let mirror = mirror_of(&shard, &rams[..2], Open::Create).unwrap();
    let store = shard.block_on(KvStore::open(&shard, Rc::clone(&mirror), 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.commit(vec![put("k", "v")])), Ok(()));
    mirror.detach(0, "it was asked for").unwrap();
    let joining = mirror.join(region(&rams[2])).unwrap();
    let commit = store.commit(vec![put("l", "w")]);
    let both = async move { (joining.run().await.is_ok(), commit.await) };
    assert_eq!(shard.block_on(both), (true, Ok(())));
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    let store = open(&shard, &rams[2..], Open::AfterStop).unwrap();
    assert_eq!(shard.block_on(store.scan(b"a", b"z", 9)).unwrap().len(), 2);
}

#[test]
fn a_store_at_rest_need_not_be_read_after_a_crash() {
    let shard = shard();
    let disk = VolatileDisk::new("a", 8 << 20, &Fuse::default());
    let mirror = mirror(&shard, vec![disk.device()], Open::Create).unwrap();
    let store = shard.block_on(KvStore::open(&shard, mirror, 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.commit(vec![put("k", "v")])), Ok(()));
    let crashed = || {
        let copy = disk.fork();
        cut(&copy, &mut Dice::new(1));
        let mut database = Opened::new(&[copy], Open::AfterCrash, 1 << 20).unwrap();
        assert_eq!(database.get(b"k"), Ok(Some(b"v".to_vec())));
        database.with_storage(|storage| storage.was_repaired).unwrap()
    };
    assert!(crashed());
    for _ in 0..200 {
        let pause = shard.clone();
        shard.block_on(async move { pause.sleep(100_000_000).await });
        if !crashed() {
            return;
        }
    }
    panic!("it was read each time");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let shard = shard();
    let text =
        |size: u64, how| open(&shard, &[Ram::new("a", size)], how).err().unwrap().to_string();
    assert!(text(1 << 20, Open::Create).contains("give it 4 MiB or more"));
    assert!(text(8 << 20, Open::AfterStop).contains("holds no store"));
    assert!(matches!(open(&shard, &[], Open::AfterStop).err(), Some(StoreError::Failed(_))));
}

#[test]
fn a_leg_that_does_not_take_the_end_is_reported_before_the_stop_is_answered() {
    let shard = shard();
    let disks = ["a", "b"].map(|name| VolatileDisk::new(name, 8 << 20, &Fuse::default()));
    let devices = disks.iter().map(VolatileDisk::device).collect();
    let mirror = mirror(&shard, devices, Open::Create).unwrap();
    let seen: Rc<RefCell<Vec<Detached>>> = Rc::default();
    let told = Rc::clone(&seen);
    mirror.on_detached(move |detached| told.borrow_mut().push(detached.clone()));
    let store = shard.block_on(KvStore::open(&shard, mirror, 1 << 20)).unwrap();
    assert_eq!(shard.block_on(store.commit(vec![put("k", "v")])), Ok(()));
    disks[1].fail();
    assert_eq!(shard.block_on(store.stop()), Ok(()));
    assert_eq!(seen.borrow().iter().map(|detached| detached.leg).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_leg_joins_also_where_requests_leave_no_pause() {
    let shard = shard();
    let rams = [Ram::new("a", 8 << 20), Ram::new("b", 8 << 20)];
    let mirror = mirror_of(&shard, &rams[..1], Open::Create).unwrap();
    let store = shard.block_on(KvStore::open(&shard, Rc::clone(&mirror), 1 << 20)).unwrap();
    let pairs = (0..1000u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![7; 50])));
    assert_eq!(shard.block_on(store.commit(pairs.collect())), Ok(()));
    let joined = Rc::new(Cell::new(false));
    let joining = mirror.join(region(&rams[1])).unwrap();
    let done = Rc::clone(&joined);
    shard.spawn(async move {
        joining.run().await.unwrap();
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
    let rams = [Ram::new("a", 8 << 20)];
    let store = open(&shard, &rams, Open::Create).unwrap();
    let bytes = || {
        let mut all = vec![0; 8 << 20];
        assert!(rams[0].memory().read(0, &mut all));
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
