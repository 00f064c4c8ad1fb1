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
