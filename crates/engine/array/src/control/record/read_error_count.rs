//! The read errors of one member of late: each hour without any halves them (md's `raid1-10.c`).

use braid_shard::Nanos;

const HOUR: Nanos = 3_600_000_000_000;

/// Read errors of a member, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadErrors {
    count: u32,
    last: Option<Nanos>,
}

impl ReadErrors {
    /// Counts one more; gives how many there are now.
    pub(crate) fn add(&mut self, now: Nanos) -> u32 {
        if let Some(last) = self.last.replace(now) {
            let hours = now.saturating_sub(last) / HOUR;
            self.count =
                u32::try_from(hours).ok().and_then(|h| self.count.checked_shr(h)).unwrap_or(0);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_halves_with_each_hour_since_the_last_error() {
        let mut errors = ReadErrors::default();
        for expected in 1..=16 {
            assert_eq!(errors.add(HOUR), expected);
        }
        assert_eq!(errors.add(2 * HOUR - 1), 17);
        assert_eq!(errors.add(4 * HOUR), 17 / 4 + 1);
        assert_eq!(errors.add(100 * HOUR), 1);
    }
}
