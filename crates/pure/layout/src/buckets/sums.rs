//! Sums over any range of a changing list of numbers: a Fenwick tree.

use std::ops::Range;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Sums {
    values: Vec<i64>,
    /// Entry `i` is the sum of the values up to `i`; their number is the lowest set bit of `i + 1`.
    tree: Vec<i64>,
}

impl Sums {
    pub(super) fn new(values: Vec<i64>) -> Sums {
        let mut tree = values.clone();
        for at in 0..tree.len() {
            let sum = tree[at];
            if let Some(above) = tree.get_mut(at | (at + 1)) {
                *above += sum;
            }
        }
        Sums { values, tree }
    }

    /// Changes one value.
    pub(super) fn set(&mut self, at: usize, value: i64) {
        let change = value - std::mem::replace(&mut self.values[at], value);
        let mut at = at;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum += change;
            at |= at + 1;
        }
    }

    /// The sum of the values of a range; 0 of an empty one.
    pub(super) fn of(&self, range: Range<usize>) -> i64 {
        match range.len() {
            // A few values are added faster than the tree is searched.
            0..16 => self.values.get(range).map_or(0, |values| values.iter().sum()),
            _ => self.up_to(range.end) - self.up_to(range.start),
        }
    }

    fn up_to(&self, end: usize) -> i64 {
        let (mut sum, mut end) = (0, end);
        while end > 0 {
            sum += self.tree[end - 1];
            end &= end - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_every_range_are_right_after_every_change() {
        for len in [0, 1, 2, 16, 17, 100] {
            let mut values: Vec<i64> = (0..len).map(|at| at * at - 50).collect();
            let mut sums = Sums::new(values.clone());
            for change in 0..values.len().min(20) {
                let at = change * 7 % values.len();
                values[at] = 1000 - change as i64;
                sums.set(at, values[at]);
                for from in 0..values.len() {
                    for to in from..=values.len() {
                        assert_eq!(sums.of(from..to), values[from..to].iter().sum::<i64>());
                    }
                }
            }
        }
    }
}
