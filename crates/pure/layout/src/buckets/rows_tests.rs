#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn equal(count: u16) -> Vec<(u16, u64)> {
    (0..count).map(|brick| (brick, 1000)).collect()
}

fn row(buckets: &Buckets, row: usize) -> Vec<Option<u16>> {
    // Every bucket is one of the stripes of a file.
    (0..BUCKETS as u64).map(|stripe| buckets.brick_of_copy(0, stripe, row)).collect()
}

/// The bricks of each bucket.
fn sets(buckets: &Buckets) -> Vec<BTreeSet<u16>> {
    let rows: Vec<_> = (0..buckets.rows()).map(|nr| row(buckets, nr)).collect();
    (0..BUCKETS).map(|at| rows.iter().filter_map(|row| row[at]).collect()).collect()
}

/// Copies that belong on a brick which had none of their bucket before.
fn moved(before: &[BTreeSet<u16>], after: &[BTreeSet<u16>]) -> usize {
    before.iter().zip(after).map(|(before, after)| after.difference(before).count()).sum()
}

/// Copies of buckets that each brick has.
fn counts(sets: &[BTreeSet<u16>]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for brick in sets.iter().flatten() {
        *counts.entry(*brick).or_default() += 1;
    }
    counts
}

fn with_rows(rows: usize, weights: &[(u16, u64)], domains: &[(u16, &str)]) -> Buckets {
    let mut buckets = Buckets::new(weights).unwrap();
    domains.iter().for_each(|(id, label)| buckets.set_domain(*id, label));
    buckets.make_rows(rows, weights).unwrap();
    buckets
}

/// Rows are as they must be, whatever the weights. `domain`: of each brick.
fn check(buckets: &Buckets, domain: impl Fn(u16) -> String) -> Result<(), TestCaseError> {
    let domains: BTreeSet<String> = buckets.bricks().map(|(id, _)| domain(id)).collect();
    let (all, places) = (sets(buckets), buckets.bricks().len());
    for set in &all {
        prop_assert_eq!(set.len(), buckets.rows().min(places));
    }
    for rows in 1..=buckets.rows().min(domains.len()) {
        for at in (0..BUCKETS as u64).step_by(7) {
            let of = |row| domain(buckets.brick_of_copy(0, at, row).unwrap());
            let in_domains: BTreeSet<String> = (0..rows).map(of).collect();
            prop_assert_eq!(in_domains.len(), rows, "bucket {}", at);
        }
    }
    for row in places..buckets.rows() {
        prop_assert_eq!(buckets.brick_of_copy(1, 2, row), None);
    }
    let mut read = Buckets::from_bytes(&buckets.to_bytes()).unwrap();
    for row in 1..buckets.rows() {
        read.read_row(&buckets.row_to_bytes(row).unwrap()).unwrap();
    }
    prop_assert_eq!(sets(&read), all);
    prop_assert_eq!(read.row_to_bytes(buckets.rows()), None);
    Ok(())
}

fn alone(id: u16) -> String {
    id.to_string()
}

#[test]
fn two_rows_of_equal_bricks_share_equally_and_every_pair_is_there() {
    for bricks in [3u16, 4, 5, 6, 8, 12, 24] {
        let buckets = with_rows(2, &equal(bricks), &[]);
        check(&buckets, alone).unwrap();
        let all = sets(&buckets);
        let fair = 2 * BUCKETS / usize::from(bricks);
        for (brick, count) in counts(&all) {
            assert!(count.abs_diff(fair) <= 1, "{bricks} bricks: {brick} has {count} of {fair}");
        }
        let mut pairs: BTreeMap<BTreeSet<u16>, usize> = BTreeMap::new();
        for set in all {
            *pairs.entry(set).or_default() += 1;
        }
        let fair = BUCKETS as f64 / (f64::from(bricks) * f64::from(bricks - 1) / 2.0);
        let (least, most) = (pairs.values().min().unwrap(), pairs.values().max().unwrap());
        println!("{bricks} bricks: pairs {least} to {most}, {fair:.0} each would be fair");
        assert_eq!(pairs.len(), usize::from(bricks) * usize::from(bricks - 1) / 2);
        assert!(*most as f64 <= fair * 1.25 && *least as f64 >= fair * 0.75);
    }
}

/// Most copies of one brick in any window of `len` buckets, by the brick's share of it.
fn worst_window(buckets: &Buckets, len: usize) -> f64 {
    let all = sets(buckets);
    let mut worst = 0.0f64;
    for (brick, share) in counts(&all) {
        let own = |at: usize| usize::from(all[at % BUCKETS].contains(&brick));
        let mut count: usize = (0..len).map(own).sum();
        for first in 0..BUCKETS {
            worst = worst.max(count as f64 * BUCKETS as f64 / (share * len) as f64);
            count = count - own(first) + own(first + len);
        }
    }
    worst
}

#[test]
fn windows_of_all_copies_stay_even() {
    for bricks in [3u16, 4, 5, 8, 16] {
        for rows in 2..=3 {
            let new = with_rows(rows, &equal(bricks), &[]);
            let mut grown = with_rows(rows, &equal(bricks - 1), &[]);
            grown.assign(&equal(bricks)).unwrap();
            let mut shrunk = with_rows(rows, &equal(bricks + 1), &[]);
            shrunk.assign(&equal(bricks)).unwrap();
            for (how, buckets) in [("new", new), ("grown", grown), ("shrunk", shrunk)] {
                let worst = worst_window(&buckets, 4 * usize::from(bricks));
                println!("{how}, {bricks} bricks, {rows} rows: {worst:.3}");
                assert!(worst <= 1.9, "{how}, {bricks} bricks, {rows} rows: {worst}");
            }
        }
    }
}

#[test]
fn a_brick_that_is_added_to_equal_ones_gets_the_fewest_copies() {
    for bricks in (1u16..=8).chain([12, 16, 24, 32, 64]) {
        for rows in 2..=ROWS_MAX {
            let mut buckets = with_rows(rows, &equal(bricks), &[]);
            let before = sets(&buckets);
            let told = buckets.assign(&equal(bricks + 1)).unwrap();
            let after = sets(&buckets);
            let least = (rows * BUCKETS / usize::from(bricks + 1)).min(BUCKETS);
            let moved = moved(&before, &after);
            assert!(
                moved as f64 <= 1.01 * least as f64 + 1.0,
                "{bricks} bricks, {rows} rows: {moved}, {least} are the fewest"
            );
            assert!(told >= moved && told <= moved + BUCKETS / 100, "{told} of {moved}");
            for (brick, count) in counts(&after) {
                let fair = least;
                assert!(
                    count.abs_diff(fair) <= 2,
                    "{bricks}+1, {rows} rows: {brick} has {count} of {fair}"
                );
            }
            check(&buckets, alone).unwrap();
        }
    }
}

#[test]
fn copies_of_a_brick_that_goes_are_all_that_moves() {
    for bricks in [3u16, 4, 5, 8, 16, 32] {
        for rows in 2..=3usize.min(usize::from(bricks) - 1) {
            let mut buckets = with_rows(rows, &equal(bricks), &[]);
            let before = sets(&buckets);
            buckets.assign(&equal(bricks - 1)).unwrap();
            let after = sets(&buckets);
            let least = before.iter().filter(|set| set.contains(&(bricks - 1))).count();
            let moved = moved(&before, &after);
            println!("{bricks} bricks, {rows} rows: {moved} moved, {least} are the fewest");
            assert!(moved as f64 <= 1.01 * least as f64, "{bricks} bricks, {rows} rows");
            check(&buckets, alone).unwrap();
        }
    }
}

#[test]
fn a_brick_in_the_place_of_another_moves_nothing_between_the_others() {
    for rows in [1, 2, 3] {
        let labels = [(0, "east"), (3, "east")];
        let before = with_rows(rows, &[(0, 5), (1, 3), (3, 4), (7, 4)], &labels);
        let mut after = before.clone();
        after.substitute(3, 5);
        after.set_domain(5, "east");
        assert_eq!(after.assign(&[(0, 5), (1, 3), (5, 4), (7, 4)]), Ok(0));
        let taken = |id: Option<u16>| if id == Some(3) { Some(5) } else { id };
        for stripe in 0..BUCKETS as u64 {
            for row in 0..rows {
                let (was, is) =
                    (before.brick_of_copy(9, stripe, row), after.brick_of_copy(9, stripe, row));
                assert_eq!(is, taken(was), "copy {row} of stripe {stripe}");
            }
        }
        assert_eq!((after.share(3), after.share(5)), (0, before.share(3)));
        // Nor does anything that cannot be.
        let same = after.clone();
        after.substitute(3, 8);
        after.substitute(0, 1);
        assert_eq!(after, same);
        // A larger one gets the share that it is due.
        after.assign(&[(0, 5), (1, 3), (5, 8), (7, 4)]).unwrap();
        assert!(after.share(5) > same.share(5));
    }
}

#[test]
fn the_bucket_that_is_left_over_stays_where_a_brick_takes_the_place_of_the_first() {
    for rows in [1, 2] {
        let mut buckets = with_rows(rows, &equal(3), &[]);
        for (old, new) in [(0, 3), (1, 4), (3, 5)] {
            buckets.substitute(old, new);
            let weights: Vec<(u16, u64)> = buckets.bricks().map(|(id, _)| (id, 1000)).collect();
            assert_eq!(buckets.assign(&weights), Ok(0), "{rows} rows, {old} is {new}");
        }
    }
}

#[test]
fn a_brick_larger_than_all_others_has_one_copy_of_everything() {
    let buckets = with_rows(2, &[(0, 10), (1, 1), (2, 2), (3, 1)], &[]);
    check(&buckets, alone).unwrap();
    let counts = counts(&sets(&buckets));
    assert_eq!(counts[&0], BUCKETS);
    for (brick, part) in [(1, 4), (2, 2), (3, 4)] {
        assert!(counts[&brick].abs_diff(BUCKETS / part) <= 2, "{counts:?}");
    }
}

#[test]
fn copies_are_in_distinct_domains_as_long_as_there_are_enough() {
    let labels = [(0, "east"), (1, "east"), (2, "east"), (3, "west"), (4, "north")];
    let of = |id: u16| labels[usize::from(id)].1.to_owned();
    for rows in 2..=4 {
        let buckets = with_rows(rows, &equal(5), &labels);
        check(&buckets, of).unwrap();
        let counts = counts(&sets(&buckets));
        println!("{rows} rows: {counts:?}");
        if rows == 2 {
            // The east is to have more than one of two copies by weight.
            assert_eq!(counts[&0] + counts[&1] + counts[&2], BUCKETS);
            assert!(counts[&3].abs_diff(BUCKETS / 2) <= 2, "{counts:?}");
        }
    }
}

#[test]
fn a_label_that_is_given_later_parts_the_copies() {
    let mut buckets = with_rows(2, &equal(4), &[]);
    let before = buckets.to_bytes();
    let labels = [(0, "a"), (1, "a"), (2, "b"), (3, "b")];
    labels.iter().for_each(|(id, label)| buckets.set_domain(*id, label));
    let moved = buckets.make_rows(2, &equal(4)).unwrap();

    assert!((BUCKETS / 4..BUCKETS / 2).contains(&moved), "{moved}");
    assert_eq!(buckets.to_bytes(), before);
    check(&buckets, |id| labels[usize::from(id)].1.to_owned()).unwrap();
}

#[test]
fn with_fewer_bricks_than_copies_there_is_no_brick_for_some() {
    let mut buckets = with_rows(3, &equal(2), &[]);
    check(&buckets, alone).unwrap();
    assert_eq!(buckets.row_to_bytes(2), Some(vec![1, 0, 0, 0]));
    assert_eq!(buckets.row_to_bytes(3), None);
    buckets.assign(&equal(3)).unwrap();
    check(&buckets, alone).unwrap();
    buckets.assign(&equal(1)).unwrap();
    check(&buckets, alone).unwrap();
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let mut buckets = with_rows(2, &equal(4), &[]);
    assert_eq!(buckets.make_rows(2, &equal(5)), Err(BucketsError::OtherBricks));
    let of_others = with_rows(2, &equal(5), &[]).row_to_bytes(1).unwrap();
    let good = buckets.row_to_bytes(1).unwrap();
    let table = Buckets::from_bytes(&buckets.to_bytes()).unwrap();
    for bad in [vec![], vec![1, 0], vec![1, 0, 0, 0, 0], of_others, buckets.to_bytes()] {
        let error = table.clone().read_row(&bad).unwrap_err();
        assert!(error.to_string().contains("check the volume"), "{error}");
    }
    let mut twice = table.clone();
    twice.read_row(&good).unwrap();
    assert!(twice.read_row(&good).is_err());
    let mut full = with_rows(4, &equal(4), &[]);
    assert!(full.read_row(&[1, 0, 0, 0]).is_err());
    let mut after_none = Buckets::from_bytes(&buckets.to_bytes()).unwrap();
    after_none.read_row(&[1, 0, 0, 0]).unwrap();
    assert!(after_none.read_row(&good).is_err());
}

fn bricks() -> impl Strategy<Value = Vec<(u16, u64, u8)>> {
    proptest::collection::btree_map(0u16..12, (1u64..20, 0u8..6), 1..9).prop_map(|map| {
        map.into_iter().map(|(id, (weight, domain))| (id, weight, domain)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn rows_are_distinct_and_row_0_is_as_it_would_be_alone(
        steps in proptest::collection::vec(bricks(), 2..4),
        rows in 2usize..5,
    ) {
        let mut alone: Option<Buckets> = None;
        let mut buckets: Option<Buckets> = None;
        for step in &steps {
            let weights: Vec<(u16, u64)> = step.iter().map(|(id, weight, _)| (*id, *weight)).collect();
            // Domain 0: none.
            let labels: BTreeMap<u16, String> = step
                .iter()
                .map(|(id, _, domain)| (*id, if *domain == 0 { String::new() } else { format!("d{domain}") }))
                .collect();
            let mut now = match buckets.take() {
                Some(now) => now,
                None => Buckets::new(&weights).unwrap(),
            };
            labels.iter().for_each(|(id, label)| now.set_domain(*id, label));
            now.assign(&weights).unwrap();
            now.make_rows(rows, &weights).unwrap();
            match &mut alone {
                Some(alone) => {
                    alone.assign(&weights).unwrap();
                }
                None => alone = Some(Buckets::new(&weights).unwrap()),
            }
            prop_assert_eq!(now.to_bytes(), alone.as_ref().unwrap().to_bytes());
            let (mut again, mut other) = (now.clone(), now.clone());
            let moved = again.make_rows(rows, &weights).unwrap();
            prop_assert!(moved <= BUCKETS / 100, "{} move though nothing has changed", moved);
            prop_assert_eq!(other.make_rows(rows, &weights), Ok(moved));
            prop_assert_eq!(&again, &other);
            let of = |id: u16| match labels.get(&id) {
                Some(label) if !label.is_empty() => label.clone(),
                _ => format!("alone {id}"),
            };
            check(&now, of)?;
            buckets = Some(now);
        }
    }
}
