use super::*;
use crate::testing::{put, shard};

#[test]
fn a_request_sees_what_was_asked_before_it() {
    let shard = shard();
    let store = ModelStore::new(&shard);
    store.set_commit_time(1000);
    let before = store.get(b"k");
    let first = store.commit(vec![put("k", "1")]);
    let between = store.get(b"k");
    let second = store.commit(vec![put("k", "2"), put("l", "3")]);
    let after = store.scan(b"", b"z", 10);
    let started = shard.now();
    shard.block_on(async move {
        assert_eq!(before.await, Ok(None));
        assert_eq!(
            after.await,
            Ok(vec![(b"k".to_vec(), b"2".to_vec()), (b"l".to_vec(), b"3".to_vec())])
        );
        assert_eq!(between.await, Ok(Some(b"1".to_vec())));
        assert_eq!((first.await, second.await), (Ok(()), Ok(())));
    });
    assert_eq!(shard.now() - started, 2000);
}

#[test]
fn a_crash_leaves_whole_commits() {
    let shard = shard();
    let store = ModelStore::new(&shard);
    store.set_commit_time(1000);
    let first = store.commit(vec![put("a", "1")]);
    assert_eq!(shard.block_on(first), Ok(()));
    let second = store.commit(vec![put("a", "2"), put("b", "2")]);
    let third = store.commit(vec![put("c", "3")]);
    assert!(store.is_committing());
    let held = |snapshot: Snapshot| {
        snapshot.pairs().iter().map(|(k, v)| [&k[..], &v[..]].concat()).collect::<Vec<_>>()
    };
    assert_eq!(held(store.crash(UnderWay::Lost)), [b"a1"]);
    assert_eq!(held(store.crash(UnderWay::Kept)), [b"a2", b"b2"]);
    assert_eq!(held(store.snapshot()), [b"a1"]);
    assert_eq!(shard.block_on(async move { (second.await, third.await) }), (Ok(()), Ok(())));
    assert_eq!(held(store.snapshot()), [b"a2", b"b2", b"c3"]);
    let again = ModelStore::from_snapshot(&shard, store.snapshot());
    assert_eq!(shard.block_on(again.get(b"c")), Ok(Some(b"3".to_vec())));
    assert_eq!(again.space().used, 3 * 18);
}

#[test]
fn a_commit_that_nobody_waits_for_becomes_durable() {
    let shard = shard();
    let store = ModelStore::new(&shard);
    store.set_commit_time(50);
    drop(store.commit(vec![put("a", "1")]));
    assert!(store.snapshot().pairs().is_empty());
    let later = shard.sleep(100);
    shard.block_on(later);
    assert_eq!(store.snapshot().pairs().len(), 1);
}

#[test]
fn a_full_store_takes_what_makes_it_smaller() {
    let shard = shard();
    let store = ModelStore::new(&shard);
    store.set_capacity(40);
    let ask = |changes| shard.block_on(store.commit(changes));
    assert_eq!(ask(vec![put("a", "1"), put("b", "1")]), Ok(()));
    assert_eq!(ask(vec![put("c", "1")]), Err(StoreError::NoSpace));
    assert_eq!(ask(vec![put("c", "1"), (b"a".to_vec(), None)]), Ok(()));
    assert_eq!(store.space(), StoreSpace { capacity: 40, used: 36, changes: u64::MAX });
    store.set_capacity(10);
    assert_eq!(ask(vec![(b"b".to_vec(), None)]), Ok(()));
    assert_eq!(store.space().used, 18);
}

#[test]
fn a_failed_store_fails_everything() {
    let shard = shard();
    let store = ModelStore::new(&shard);
    store.fail("both bricks are gone");
    let failed = || StoreError::Failed("both bricks are gone".to_string());
    assert_eq!(shard.block_on(store.get(b"a")), Err(failed()));
    assert_eq!(shard.block_on(store.scan(b"a", b"b", 1)), Err(failed()));
    assert_eq!(shard.block_on(store.commit(vec![put("a", "1")])), Err(failed()));
    assert!(store.snapshot().pairs().is_empty());
}
