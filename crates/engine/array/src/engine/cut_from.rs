//! The size of the client requests that an array's work is cut from.
//!
//! Below that size nothing is handed down that could be larger. The largest of late counts: streams and small
//! requests come mixed. An array that is a member is told by the one above, which knows its clients' requests.

use std::cell::Cell;

/// So many smaller requests in a row, and there are none of the larger size any more.
const SMALLER_MAX: u32 = 64;

/// See the module's documentation. Sizes in bytes; 0 while nothing is known.
#[derive(Default)]
pub(crate) struct CutFrom {
    bytes: Cell<u64>,
    smaller: Cell<u32>,
    /// The array above has said it.
    told: Cell<bool>,
}

impl CutFrom {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The array above has said it.
    pub(crate) fn is_told(&self) -> bool {
        self.told.get()
    }

    /// A request of `len` bytes has come; true when that changes what is known.
    #[inline]
    pub(crate) fn note(&self, len: u64) -> bool {
        let known = self.bytes.get();
        if len == known || self.told.get() {
            self.smaller.set(0);
            return false;
        }
        if len < known {
            self.smaller.set(self.smaller.get() + 1);
            if self.smaller.get() < SMALLER_MAX {
                return false;
            }
        }
        self.smaller.set(0);
        self.bytes.set(len);
        true
    }

    /// The array above says it; 0: there is none any more.
    pub(crate) fn tell(&self, bytes: u64) {
        self.told.set(bytes > 0);
        self.smaller.set(0);
        self.bytes.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_late_counts() {
        let cut_from = CutFrom::default();
        assert!(cut_from.note(4096) && cut_from.note(65536) && !cut_from.note(65536));
        for _ in 0..3 {
            for _ in 1..SMALLER_MAX {
                assert!(!cut_from.note(4096));
            }
            assert!(!cut_from.note(65536));
        }
        let changes = (0..SMALLER_MAX).filter(|_| cut_from.note(4096)).count();
        assert_eq!((changes, cut_from.bytes()), (1, 4096));
    }

    #[test]
    fn what_the_array_above_says_goes_before_what_comes() {
        let cut_from = CutFrom::default();
        cut_from.tell(1 << 20);
        assert!(!cut_from.note(4 << 20));
        assert_eq!(cut_from.bytes(), 1 << 20);
        cut_from.tell(0);
        assert!(cut_from.note(4096));
    }
}
