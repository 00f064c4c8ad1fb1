#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

fn equal(count: u16) -> Vec<(u16, u64)> {
    (0..count).map(|brick| (brick, 1000)).collect()
}

/// Most buckets of one brick in any window of `len` buckets, by the brick's share of the window; and the part of
/// all windows in which a brick has more than 1.3 times its share.
fn windows(buckets: &Buckets, len: usize) -> (f64, f64) {
    let (mut worst, mut above, mut all) = (0.0f64, 0usize, 0usize);
    for (brick, share) in buckets.bricks().filter(|(_, share)| *share > 0) {
        let own = |at: usize| usize::from(buckets.at(at) == brick);
        let mut count: usize = (0..len).map(own).sum();
        for first in 0..BUCKETS {
            let part = count as f64 * BUCKETS as f64 / (share * len) as f64;
            worst = worst.max(part);
            above += usize::from(part > 1.3);
            all += 1;
            count = count - own(first) + own(first + len);
        }
    }
    (worst, above as f64 / all as f64)
}

/// One reader from the start of a file to the end of the table, `window` stripes ahead of the first that has not
/// arrived; each brick serves its queue one stripe after the other, in turns. Stripes served, of those that all
/// bricks together could have.
fn sequential(buckets: &Buckets, ino: u64, window: u64) -> f64 {
    let stripes = BUCKETS as u64;
    let mut queues: BTreeMap<u16, VecDeque<u64>> = BTreeMap::new();
    let mut arrived = vec![false; BUCKETS];
    let (mut first, mut asked, mut turns) = (0u64, 0u64, 0u64);
    while first < stripes {
        while asked < stripes.min(first + window) {
            queues.entry(buckets.brick_of(ino, asked)).or_default().push_back(asked);
            asked += 1;
        }
        for queue in queues.values_mut() {
            if let Some(stripe) = queue.pop_front() {
                arrived[stripe as usize] = true;
            }
        }
        turns += 1;
        while first < stripes && arrived[first as usize] {
            first += 1;
        }
    }
    stripes as f64 / (turns * queues.len() as u64) as f64
}

/// The table after each of these sets of bricks in turn.
fn after(steps: &[Vec<(u16, u64)>]) -> Buckets {
    let mut buckets = Buckets::new(&steps[0]).unwrap();
    for weights in &steps[1..] {
        buckets.assign(weights).unwrap();
    }
    buckets
}

fn grown(to: u16) -> Buckets {
    after(&(1..=to).map(equal).collect::<Vec<_>>())
}

fn shrunk(from: u16, to: u16) -> Buckets {
    after(&(to..=from).rev().map(equal).collect::<Vec<_>>())
}

/// Bricks replaced by others one after the other, `count` times.
fn churned(bricks: u16, count: u16) -> Buckets {
    let set = |ids: std::ops::Range<u16>| ids.map(|brick| (brick, 7)).collect::<Vec<_>>();
    let steps = (0..count).flat_map(|nr| [set(nr..nr + bricks), set(nr..nr + bricks + 1)]);
    after(&steps.chain([set(count..count + bricks)]).collect::<Vec<_>>())
}

#[test]
fn a_new_table_of_equal_bricks_takes_them_in_turn() {
    let buckets = Buckets::new(&equal(4)).unwrap();
    assert!((0..BUCKETS).all(|at| usize::from(buckets.at(at)) == at % 4));
}

#[test]
fn a_window_of_a_new_table_holds_each_brick_to_its_share() {
    for bricks in 2..=16 {
        let (worst, _) = windows(&Buckets::new(&equal(bricks)).unwrap(), 4 * usize::from(bricks));
        assert!(worst <= 1.26, "{bricks} bricks: {worst}");
    }
}

#[test]
fn windows_and_sequential_reading_stay_even_after_changes() {
    for bricks in [2u16, 3, 4, 5, 8, 16] {
        let tables = [
            ("grown", grown(bricks)),
            ("shrunk", shrunk(bricks + 4, bricks)),
            ("churned", churned(bricks, 6)),
        ];
        for (how, buckets) in tables {
            let (worst, above) = windows(&buckets, 4 * usize::from(bricks));
            let reading = sequential(&buckets, 1, 64);
            println!(
                "{how} to {bricks}: windows {worst:.3}, {above:.4} above 1.3; sequential {reading:.4}"
            );
            assert!(worst <= 1.76, "{how} to {bricks}: {worst}");
            assert!(above <= 0.01, "{how} to {bricks}: {above}");
            assert!(reading >= 0.97, "{how} to {bricks}: {reading}");
        }
    }
}

#[test]
fn small_files_are_spread_in_proportion() {
    for weights in [equal(4), equal(7), vec![(0, 1), (1, 2), (2, 3), (3, 10)]] {
        let buckets = Buckets::new(&weights).unwrap();
        let mut counts = BTreeMap::new();
        for ino in 2..10_002 {
            *counts.entry(buckets.brick_of(ino, 0)).or_insert(0usize) += 1;
        }
        for (brick, share) in buckets.bricks() {
            let fair = 10_000.0 * share as f64 / BUCKETS as f64;
            let got = counts.get(&brick).copied().unwrap_or_default() as f64;
            assert!((got / fair - 1.0).abs() < 0.03, "{weights:?} brick {brick}: {got} of {fair}");
        }
    }
}

#[test]
fn the_stripes_of_a_full_brick_go_to_the_others_in_proportion() {
    let weights = vec![(0, 10), (1, 1), (2, 3), (3, 6)];
    let buckets = Buckets::new(&weights).unwrap();
    let mut counts = [0usize; 4];
    let mut all = 0usize;
    for ino in 0..4 {
        for stripe in (0..BUCKETS as u64).filter(|stripe| buckets.brick_of(ino, *stripe) == 0) {
            let brick = buckets.next_other(ino, stripe, |brick| brick != 0).unwrap();
            counts[usize::from(brick)] += 1;
            all += 1;
        }
    }
    assert_eq!(counts[0], 0);
    for (count, part) in counts.iter().zip([0.0, 0.1, 0.3, 0.6]) {
        assert!((*count as f64 / all as f64 - part).abs() < 0.02, "{counts:?}");
    }
}

#[test]
fn the_last_usable_brick_is_found_and_none_is_none() {
    let mut weights = equal(300);
    weights.push((999, 1));
    weights[0].1 = 1 << 40;
    let buckets = Buckets::new(&weights).unwrap();
    assert_eq!(buckets.share(999), 0);
    for stripe in 0..50 {
        assert_eq!(buckets.next_other(7, stripe, |brick| brick == 999), Some(999));
        assert_eq!(buckets.next_other(7, stripe, |_| false), None);
    }
}

#[test]
fn weights_that_cannot_be_are_refused_and_change_nothing() {
    let mut buckets = Buckets::new(&equal(3)).unwrap();
    let before = buckets.clone();
    let many: Vec<(u16, u64)> = (0..4097).map(|brick| (brick, 1)).collect();
    let cases: [(&[(u16, u64)], BucketsError); 4] = [
        (&[], BucketsError::NoBricks),
        (&[(1, 5), (2, 5), (1, 6)], BucketsError::Twice { brick: 1 }),
        (&[(1, 5), (2, 0)], BucketsError::NoWeight { brick: 2 }),
        (&many, BucketsError::TooManyBricks { bricks: 4097 }),
    ];
    for (weights, error) in cases {
        assert_eq!(Buckets::new(weights), Err(error.clone()));
        assert_eq!(buckets.assign(weights), Err(error));
        assert_eq!(buckets, before);
    }
}

#[test]
fn as_many_bricks_as_can_be_and_weights_at_the_limits() {
    let most: Vec<(u16, u64)> = (0..4096).map(|brick| (brick * 15, u64::MAX)).collect();
    let mut buckets = Buckets::new(&most).unwrap();
    assert!(buckets.bricks().all(|(_, share)| share == 4));
    assert_eq!(buckets.assign(&most[..4095]), Ok(4));
    let ratio = [(3, 1 << 19), (5, 1)];
    assert_eq!(Buckets::new(&ratio).unwrap().bricks().collect::<Vec<_>>(), [(3, 16384), (5, 0)]);
    let ratio = [(3, 1 << 13), (5, 1)];
    assert_eq!(Buckets::new(&ratio).unwrap().bricks().collect::<Vec<_>>(), [(3, 16382), (5, 2)]);
}

#[test]
fn bytes_that_are_no_table_are_refused() {
    let good = Buckets::new(&equal(300)).unwrap().to_bytes();
    assert_eq!(Buckets::from_bytes(&good).unwrap().to_bytes(), good);
    for len in [0, 1, 3, 4, 100, good.len() - 1] {
        assert!(Buckets::from_bytes(&good[..len]).is_err());
    }
    for (at, value) in [(0, 2), (2, 0), (3, 0x11), (4, 1), (6, 0), (good.len() - 1, 2)] {
        let mut bad = good.clone();
        bad[at] = value;
        let error = Buckets::from_bytes(&bad).unwrap_err();
        assert!(error.to_string().contains("check the volume"), "{at}: {error}");
    }
}

fn weight() -> impl Strategy<Value = u64> {
    prop_oneof![
        1u64..20,
        (0u32..20).prop_map(|shift| 1u64 << shift),
        any::<u64>().prop_map(|w| w.max(1))
    ]
}

fn bricks() -> impl Strategy<Value = Vec<(u16, u64)>> {
    proptest::collection::btree_map(0u16..24, weight(), 1..17)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn the_fewest_buckets_move_and_quotas_are_exact(steps in proptest::collection::vec(bricks(), 2..4)) {
        let mut buckets = Buckets::new(&steps[0]).unwrap();
        for weights in &steps[1..] {
            let before = buckets.clone();
            let changed = buckets.assign(weights).unwrap();
            let sum: u128 = weights.iter().map(|&(_, weight)| u128::from(weight)).sum();
            let mut least = 0;
            for &(brick, weight) in weights {
                let share = buckets.share(brick);
                let exact = u128::from(weight) * BUCKETS as u128;
                prop_assert!((share as u128 * sum).abs_diff(exact) < sum);
                prop_assert_eq!(share, buckets.table.iter().filter(|id| **id == brick).count());
                least += share.saturating_sub(before.share(brick));
            }
            prop_assert_eq!(buckets.bricks().map(|(_, share)| share).sum::<usize>(), BUCKETS);
            let differ = before.table.iter().zip(&buckets.table).filter(|(a, b)| a != b).count();
            prop_assert_eq!((changed, differ), (least, least));
            prop_assert_eq!(Buckets::from_bytes(&buckets.to_bytes()), Ok(buckets.clone()));
            let mut again = before.clone();
            let mut turned = weights.clone();
            turned.reverse();
            again.assign(&turned).unwrap();
            prop_assert_eq!(&again, &buckets);
        }
        prop_assert_eq!(buckets.assign(&steps[steps.len() - 1]), Ok(0));
    }

    #[test]
    fn up_to_any_bucket_a_new_table_is_fair_to_within_one(weights in bricks()) {
        let buckets = Buckets::new(&weights).unwrap();
        for (brick, share) in buckets.bricks() {
            let mut count = 0usize;
            for at in 0..BUCKETS {
                count += usize::from(buckets.at(at) == brick);
                prop_assert!((count * BUCKETS).abs_diff((at + 1) * share) < BUCKETS);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(Buckets::from_bytes(&bytes).is_err());
    }
}
