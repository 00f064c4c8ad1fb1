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

/// Prints what requests cost on a file: `cargo test -p braid-kv --release -- --ignored --nocapture what_requests_cost`.
#[test]
#[ignore = "measures"]
fn what_requests_cost() {
    use braid_device::file::{FileMember, Mode, create_sparse};
    use std::time::Instant;
    let shard = shard();
    let folder = tempfile::tempdir().unwrap();
    for copies in 1..3 {
        let regions = (0..copies).map(|copy| {
            let path = folder.path().join(format!("{copies}-{copy}"));
            create_sparse(&path, 256 << 20).unwrap();
            let device = FileMember::open(&path, Mode::ReadWrite).unwrap().open(&shard).unwrap();
            let size = device.info().size;
            Box::new(DeviceRegion::new(&shard, device, 0, size).unwrap()) as Box<dyn Region>
        });
        let regions = regions.collect();
        let store = shard.block_on(KvStore::open(&shard, regions, Open::Create, 64 << 20)).unwrap();
        let key = |n: u64| (n * 7919).to_be_bytes().to_vec();
        for (count, times) in [(1, 200u64), (100, 50), (10_000, 5)] {
            let mut next = 0;
            let start = Instant::now();
            for _ in 0..times {
                let changes = (next..next + count).map(|n| (key(n), Some(vec![n as u8; 64])));
                assert_eq!(shard.block_on(store.commit(changes.collect())), Ok(()));
                next += count;
            }
            println!("{copies} copies, commit of {count}: {:?}", start.elapsed() / times as u32);
        }
        let start = Instant::now();
        for n in 0..20_000 {
            assert!(shard.block_on(store.get(&key(n % 1000))).unwrap().is_some());
        }
        println!("{copies} copies, get, one at a time: {:?}", start.elapsed() / 20_000);
        let start = Instant::now();
        for n in 0..300 {
            let answers: Vec<_> = (0..64).map(|k| store.get(&key((n + k) % 1000))).collect();
            shard.block_on(async move {
                for answer in answers {
                    assert!(answer.await.unwrap().is_some());
                }
            });
        }
        println!("{copies} copies, get, 64 at a time: {:?}", start.elapsed() / (300 * 64));
        assert_eq!(shard.block_on(store.stop()), Ok(()));
    }
}
