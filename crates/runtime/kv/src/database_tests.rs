use super::*;
use crate::testing::{Opened, put};
use braid_device::volatile::{Fuse, VolatileDisk};
use braid_mirror::Open;

const CACHE: usize = 1 << 20;

fn ram(size: usize) -> Opened {
    Opened::new(&[VolatileDisk::new("ram", size, &Fuse::default())], Open::Create, CACHE).unwrap()
}

#[test]
fn what_was_committed_is_read() {
    let mut database = ram(8 << 20);
    assert_eq!(database.get(b"k"), Ok(None));
    database.commit(&[put("k", "v"), put("l", "w")]).unwrap();
    database.commit(&[put("k", "x"), (b"l".to_vec(), None)]).unwrap();
    assert_eq!(database.get(b"k"), Ok(Some(b"x".to_vec())));
    assert_eq!(database.get(b"l"), Ok(None));
    assert_eq!(database.scan(b"", b"z", 5), Ok(vec![(b"k".to_vec(), b"x".to_vec())]));
    database.close().unwrap();
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Commits `count` new pairs at a time until there is no room. Gives how many there are.
fn fill(database: &mut Database, first: u64, count: u64, len: usize) -> u64 {
    let mut next = first;
    loop {
        let changes: Vec<Change> =
            (next..next + count).map(|n| (key(n), Some(vec![n as u8; len]))).collect();
        match database.commit(&changes) {
            Ok(()) => next += count,
            Err(StoreError::NoSpace) => return next - first,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_region_says_so_and_what_removes_is_committed() {
    for (count, len) in [(50, 500), (15, 6000)] {
        let mut database = ram(5 << 20);
        let held = fill(&mut database, 0, count, len);
        assert!(held * len as u64 > 1 << 20, "{held} of {len}");
        assert_eq!(database.scan(b"", &[0xff; 9], usize::MAX).unwrap().len() as u64, held);
        // As it goes: one at a time, then many; what makes it no larger, too.
        for n in 0..40 {
            database.commit(&[(key(n), None)]).unwrap();
            database.commit(&[(key(held - 1), Some(vec![n as u8; len]))]).unwrap();
        }
        let many: Vec<Change> = (40..held / 4 * 3).map(|n| (key(n), None)).collect();
        many.chunks(200).for_each(|some| database.commit(some).unwrap());
        let again = fill(&mut database, held, count, len);
        assert!(again > held / 2, "{again} of {held} fit again");
        database.commit(&[(key(held), None)]).unwrap();
        assert_eq!(database.get(&key(held - 1)).unwrap(), Some(vec![39; len]));
        database.close().unwrap();
    }
}

#[test]
fn a_commit_larger_than_the_region_changes_nothing() {
    let mut database = ram(5 << 20);
    database.commit(&[put("k", "v")]).unwrap();
    let changes: Vec<Change> = (0..4000).map(|n| (key(n), Some(vec![1; 3000]))).collect();
    for _ in 0..3 {
        assert_eq!(database.commit(&changes), Err(StoreError::NoSpace));
        assert_eq!(database.scan(b"", &[0xff; 9], usize::MAX).unwrap().len(), 1);
    }
    database.commit(&changes[..100]).unwrap();
}

mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Commit(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
        Scan(Vec<u8>, Vec<u8>, usize),
        Reopen,
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..4u8, 0..4)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
        let step = prop_oneof![
            6 => prop::collection::btree_map(keys(), value, 0..12).prop_map(Step::Commit),
            4 => (keys(), keys(), 0..20usize).prop_map(|(from, to, n)| Step::Scan(from, to, n)),
            1 => Just(Step::Reopen),
        ];
        prop::collection::vec(step, 1..25)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn reads_give_what_a_map_would(steps in steps()) {
            let disk = [VolatileDisk::new("a", 4 << 20, &Fuse::default())];
            let mut database = Opened::new(&disk, Open::Create, CACHE).unwrap();
            let mut map = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Commit(changes) => {
                        let changes: Vec<Change> = changes.into_iter().collect();
                        prop_assert_eq!(database.commit(&changes), Ok(()));
                        for (key, value) in changes {
                            prop_assert_eq!(database.get(&key).unwrap(), value.clone());
                            match value {
                                Some(value) => map.insert(key, value),
                                None => map.remove(&key),
                            };
                        }
                    }
                    Step::Scan(from, to, limit) => {
                        let found = database.scan(&from, &to, limit).unwrap();
                        let within = |key: &&Vec<u8>| **key >= from && **key < to;
                        let expected: Vec<Pair> = map
                            .keys()
                            .filter(within)
                            .take(limit)
                            .map(|key| (key.clone(), map[key].clone()))
                            .collect();
                        prop_assert_eq!(found, expected);
                    }
                    Step::Reopen => {
                        database.close().unwrap();
                        database = Opened::new(&disk, Open::AfterStop, CACHE).unwrap();
                    }
                }
            }
        }
    }
}
