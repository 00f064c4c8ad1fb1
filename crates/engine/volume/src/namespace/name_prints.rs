//! The names of a large directory as hashes, which say of nearly every name that is not there that it is not.
//!
//! Invariant: each name of the directory has its hash here. A hash that several names may have stays when one of them goes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

/// See the module's documentation. It takes some 20 bytes for each name.
#[derive(Default)]
pub(super) struct NamePrints {
    prints: HashSet<u64>,
    /// Those that more than one name may have.
    shared: HashSet<u64>,
}

/// The same in every run, so that a simulation can be replayed.
fn print(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl NamePrints {
    /// A name has come, or is there already.
    pub(super) fn add(&mut self, name: &[u8]) {
        let print = print(name);
        if !self.prints.insert(print) {
            self.shared.insert(print);
        }
    }

    /// A name has gone.
    pub(super) fn remove(&mut self, name: &[u8]) {
        let print = print(name);
        if !self.shared.contains(&print) {
            self.prints.remove(&print);
        }
    }

    /// False: there is no such name.
    pub(super) fn may_have(&self, name: &[u8]) -> bool {
        self.prints.contains(&print(name))
    }

    /// The number of hashes.
    pub(super) fn len(&self) -> usize {
        self.prints.len() + self.shared.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_is_never_said_to_be_absent() {
        let mut prints = NamePrints::default();
        prints.add(b"a");
        prints.add(b"b");
        assert!(prints.may_have(b"a") && prints.may_have(b"b") && !prints.may_have(b"c"));
        prints.remove(b"b");
        assert!(prints.may_have(b"a") && !prints.may_have(b"b"));
        // As if another name had the same hash.
        prints.add(b"a");
        prints.remove(b"a");
        assert!(prints.may_have(b"a"));
        assert_eq!(prints.len(), 2);
    }
}
