//! Requests that wait in the kernel, as far as a reader of the device can tell.
//!
//! Bricks that answer at once leave nothing under way however many requests wait to be read. That the device was not found
//! empty for a while says that there are more than this reader can take.

/// Requests in a row that stand for one that waits: a process that waits for each answer makes a few of its own accord.
const PER_WAITING: usize = 4;
/// Requests in a row that are remembered.
const ROW_MAX: usize = 16 * PER_WAITING;

/// Counts requests that come in a row.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    in_a_row: usize,
}

impl Crowd {
    /// Requests that wait, by guess.
    pub fn waiting(&self) -> usize {
        self.in_a_row / PER_WAITING
    }

    /// A request was read.
    pub fn came(&mut self) {
        self.in_a_row = (self.in_a_row + 1).min(ROW_MAX);
    }

    /// There was none. `sleeps`: the reader has time to wait for the next.
    pub fn was_empty(&mut self, sleeps: bool) {
        self.in_a_row = if sleeps { 0 } else { self.in_a_row / 2 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_never_empty_has_more_and_more_waiting_up_to_a_bound() {
        let mut crowd = Crowd::default();
        let mut seen = Vec::new();
        for _ in 0..1000 {
            crowd.came();
            seen.push(crowd.waiting());
        }
        assert!(seen.is_sorted());
        assert_eq!((seen[0], seen[15], seen[999]), (0, 4, 16));
    }

    #[test]
    fn a_process_that_waits_for_each_answer_is_no_crowd() {
        let mut crowd = Crowd::default();
        for _ in 0..1000 {
            // A file's end is told together with the next one's name.
            crowd.came();
            crowd.came();
            crowd.was_empty(false);
            assert!(crowd.waiting() < 1, "{crowd:?}");
        }
    }

    #[test]
    fn a_reader_that_sleeps_has_no_crowd() {
        let mut crowd = Crowd::default();
        (0..1000).for_each(|_| crowd.came());
        crowd.was_empty(false);
        assert_eq!(crowd.waiting(), 8);
        crowd.was_empty(true);
        assert_eq!(crowd.waiting(), 0);
    }
}
