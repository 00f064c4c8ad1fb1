//! Transactions over a model of the store, with nothing of a volume around them.

#![allow(clippy::unwrap_used)]

use super::Transactions;
use braid_filesystem::Errno;
use braid_kv::Store;
use braid_kv::model::ModelStore;
use braid_shard::Shard;
use std::rc::Rc;
use uuid::Uuid;

fn new() -> (Shard, ModelStore, Rc<Transactions>) {
    let shard = Shard::with_ring(0).unwrap();
    let store = ModelStore::new(&shard);
    let transactions = Transactions::new(&shard, Rc::new(store.clone()), Uuid::nil(), false);
    (shard, store, transactions)
}

fn value(of: &[u8]) -> Option<Vec<u8>> {
    Some(of.to_vec())
}

#[test]
fn readers_see_what_is_open_then_what_is_closed_then_the_store() {
    let (shard, store, transactions) = new();
    shard.block_on(async move {
        transactions.set(b"a".to_vec(), value(b"1"));
        assert_eq!(transactions.get(b"a").await.unwrap(), value(b"1"));
        let number = transactions.close();
        let batch = transactions.freeze(vec![(b"b".to_vec(), value(b"2"))]);
        transactions.set(b"a".to_vec(), value(b"3"));
        assert_eq!(transactions.get(b"a").await.unwrap(), value(b"3"));
        assert_eq!(transactions.get(b"b").await.unwrap(), value(b"2"));
        assert_eq!(store.get(b"b").await.unwrap(), None, "nothing was committed yet");
        store.commit(batch).await.unwrap();
        transactions.committed(number);
        assert_eq!(store.get(b"a").await.unwrap(), value(b"1"), "what came later is not in it");
        let (pairs, next) = transactions.scan(b"a", b"c", 10).await.unwrap();
        assert_eq!(pairs, [(b"a".to_vec(), b"3".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
        assert_eq!((next, transactions.durable()), (None, number));
    });
}

#[test]
fn a_refused_transaction_is_a_part_of_the_next_and_later_changes_win() {
    let (shard, _, transactions) = new();
    shard.block_on(async move {
        transactions.set(b"a".to_vec(), value(b"old"));
        transactions.set(b"b".to_vec(), value(b"old"));
        transactions.close();
        transactions.freeze(Vec::new());
        transactions.set(b"a".to_vec(), value(b"new"));
        transactions.refused();
        transactions.close();
        let batch = transactions.freeze(Vec::new());
        let wanted = [(b"a".to_vec(), value(b"new")), (b"b".to_vec(), value(b"old"))];
        assert_eq!(batch, wanted);
    });
}

#[test]
fn objects_of_parts_count_until_the_transaction_is_closed() {
    let (_shard, store, transactions) = new();
    assert!(transactions.is_clean());
    transactions.object_changed(1000);
    transactions.object_changed(1000);
    transactions.object_dropped(1000);
    assert_eq!((transactions.is_clean(), transactions.pending_bytes()), (false, 1000));
    store.set_capacity(store.space().used + 2000);
    assert_eq!(transactions.has_room_for(0), Err(Errno::NoSpace), "a commit may take three times");
    transactions.close();
    assert_eq!((transactions.is_clean(), transactions.pending_bytes()), (true, 1000));
    transactions.committed(1);
    assert_eq!(transactions.pending_bytes(), 0);
}

#[test]
fn nothing_is_changed_after_a_commit_that_failed() {
    let (_shard, _, transactions) = new();
    assert_eq!(transactions.writable(), Ok(()));
    transactions.fail("the disk is gone");
    assert_eq!(transactions.writable(), Err(Errno::ReadOnly));
    assert_eq!(transactions.failure().as_deref(), Some("the disk is gone"));
}
