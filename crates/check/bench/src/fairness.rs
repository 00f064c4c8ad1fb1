//! How fairly stripes are placed over the bricks of a volume, and how many must move when bricks come and go.
//!
//! Nothing is measured: the placement is a function, and every stripe of the files is asked for its brick.

use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_layout::buckets::Buckets;
use braid_load::Report;

/// Sizes of the bricks in GB: unequal, in the order in which they are added and removed again.
const BRICKS: [u64; 16] =
    [1000, 500, 2000, 250, 4000, 1500, 750, 3000, 480, 960, 1920, 3840, 120, 240, 8000, 16000];
const STRIPE: u64 = 128 << 10;
/// The large file, in bytes.
const LARGE: u64 = 10 << 30;
const SMALL_FILES: u64 = 10_000;
/// The first inode number of a file; the root has 1.
const FIRST_INO: u64 = 2;

/// A file, by inode number and stripes.
type File = (u64, u64);

/// Counts it.
pub fn table(_: &Effort) -> anyhow::Result<Table> {
    let sets = [large(), small()];
    let stripes = sets.each_ref().map(|set| set.iter().map(|(_, stripes)| stripes).sum::<u64>());
    let all: Vec<(u16, u64)> = (0..).zip(BRICKS).collect();
    let mut rows = Vec::new();
    let mut present = all.first().map(|first| vec![*first]).unwrap_or_default();
    let mut buckets = Buckets::new(&present).context("placing stripes on one brick")?;
    rows.push(row("1".to_owned(), None, &placed(&buckets, &present, 0), &sets));
    let added = all.iter().skip(1).map(|brick| (true, *brick));
    let removed = all.iter().take(BRICKS.len() - 1).map(|brick| (false, *brick));
    for (is_added, brick) in added.chain(removed) {
        let before = placed(&buckets, &present, 0);
        let change = if is_added {
            present.push(brick);
            format!("add {} GB", brick.1)
        } else {
            present.retain(|other| *other != brick);
            format!("remove {} GB", brick.1)
        };
        let load = format!("{}: {change}", present.len());
        let changed =
            buckets.assign(&present).with_context(|| format!("placing stripes after {change}"))?;
        rows.push(row(load, Some(&before), &placed(&buckets, &present, changed), &sets));
    }
    Ok(Table {
        title: "Fairness of placement".to_owned(),
        about: format!(
            "Stripes of 128 KiB on bricks of unequal sizes, which are added one by one and removed again in the same \
             order; the number in front is that of the bricks after it. *Large*: one file of 10 GiB ({} stripes). *Small*: {SMALL_FILES} files of 1 KiB to \
             4 MiB, small ones more often ({} stripes). *Deviation*: of the brick whose number of stripes is furthest \
             from its fair share (by size), in per cent of that share; a share of few stripes cannot be met exactly. *Moved*: stripes whose brick changed, by \
             the fewest that exact shares before and after leave. *Buckets moved*: entries of the table of 16384 that changed, by the fewest.",
            stripes[0], stripes[1],
        ),
        headings: vec![
            "bricks",
            "deviation, large",
            "deviation, small",
            "moved, large",
            "moved, small",
            "buckets moved",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn large() -> Vec<File> {
    vec![(FIRST_INO, LARGE / STRIPE)]
}

/// As many files of each of 4096 lengths that grow evenly in their logarithm, in an order that looks like none.
fn small() -> Vec<File> {
    let stripes = |nr: u64| {
        let turned = nr * 2531 % 4096;
        let bytes = 1024.0 * 4096f64.powf(turned as f64 / 4095.0);
        (bytes as u64).div_ceil(STRIPE)
    };
    (0..SMALL_FILES).map(|nr| (FIRST_INO + nr, stripes(nr))).collect()
}

/// A table with the bricks that it is for.
struct Placed {
    buckets: Buckets,
    bricks: Vec<(u16, u64)>,
    /// Buckets that changed.
    changed: usize,
}

fn placed(buckets: &Buckets, bricks: &[(u16, u64)], changed: usize) -> Placed {
    Placed { buckets: buckets.clone(), bricks: bricks.to_vec(), changed }
}

impl Placed {
    /// The part of all stripes that is a brick's due.
    fn fair(&self, brick: u16) -> f64 {
        let sum: u64 = self.bricks.iter().map(|(_, size)| size).sum();
        let own = self.bricks.iter().find(|(id, _)| *id == brick).map_or(0, |(_, size)| *size);
        own as f64 / sum as f64
    }

    fn each_stripe<'a>(&'a self, files: &'a [File]) -> impl Iterator<Item = u16> + 'a {
        let stripes = files.iter().flat_map(|&(ino, count)| (0..count).map(move |nr| (ino, nr)));
        stripes.map(|(ino, nr)| self.buckets.brick_of(ino, nr))
    }

    /// Of the brick that is furthest from its share, in parts of the share.
    fn deviation(&self, files: &[File]) -> f64 {
        let mut counts = [0u64; BRICKS.len()];
        let mut all = 0u64;
        for brick in self.each_stripe(files) {
            if let Some(count) = counts.get_mut(usize::from(brick)) {
                *count += 1;
            }
            all += 1;
        }
        let of = |brick: u16| {
            let fair = self.fair(brick) * all as f64;
            let count = counts.get(usize::from(brick)).copied().unwrap_or_default();
            (count as f64 / fair - 1.0).abs()
        };
        self.bricks.iter().map(|&(brick, _)| of(brick)).fold(0.0, f64::max)
    }

    /// Stripes that moved since `before`, and the fewest that the exact shares leave.
    fn moved(&self, before: &Placed, files: &[File]) -> (usize, f64) {
        let pairs = before.each_stripe(files).zip(self.each_stripe(files));
        let (mut moved, mut all) = (0, 0usize);
        for (one, other) in pairs {
            moved += usize::from(one != other);
            all += 1;
        }
        (moved, self.least(before) * all as f64)
    }

    /// The sum of what the shares of those bricks grow by that have more than before.
    fn least(&self, before: &Placed) -> f64 {
        let growth = |&(brick, _): &(u16, u64)| (self.fair(brick) - before.fair(brick)).max(0.0);
        self.bricks.iter().map(growth).sum()
    }

    /// The fewest buckets that the tables' quotas before and after leave.
    fn least_buckets(&self, before: &Placed) -> usize {
        let growth =
            |(brick, share): (u16, usize)| share.saturating_sub(before.buckets.share(brick));
        self.buckets.bricks().map(growth).sum()
    }
}

fn row(load: String, before: Option<&Placed>, after: &Placed, sets: &[Vec<File>; 2]) -> Row {
    let mut cells: Vec<String> =
        sets.iter().map(|set| format!("{:.2} %", 100.0 * after.deviation(set))).collect();
    match before {
        Some(before) => {
            cells.extend(sets.iter().map(|set| {
                let (moved, least) = after.moved(before, set);
                format!("{moved} ({:.3})", moved as f64 / least)
            }));
            let least = after.least_buckets(before);
            let ratio = after.changed as f64 / least as f64;
            cells.push(format!("{} ({ratio:.3})", after.changed));
        }
        None => cells.extend(std::iter::repeat_n("–".to_owned(), 3)),
    }
    let report = Report::without_figures(format!("placement on {} bricks", after.bricks.len()));
    Row { load, cells, report }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_and_deviations_are_counted_against_exact_shares() {
        let bricks = [(0, 3), (1, 1)];
        let one = placed(&Buckets::new(&bricks[..1]).unwrap(), &bricks[..1], 0);
        let two = placed(&Buckets::new(&bricks).unwrap(), &bricks, 4096);
        let whole_table = [(FIRST_INO, 16384)];
        assert_eq!(one.deviation(&whole_table), 0.0);
        assert_eq!(two.deviation(&whole_table), 0.0);
        assert_eq!(two.moved(&one, &whole_table), (4096, 4096.0));
        assert_eq!(one.moved(&two, &whole_table), (4096, 4096.0));
        assert_eq!(two.least_buckets(&one), 4096);
        // A table for other sizes: brick 1 has a quarter and half is its due.
        let wrong = placed(&two.buckets, &[(0, 1), (1, 1)], 0);
        assert_eq!(wrong.deviation(&whole_table), 0.5);
    }
}
