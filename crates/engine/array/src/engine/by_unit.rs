//! A small table by unit: an entry for each unit of which something waits or is held.
//!
//! There are as many entries as writes under way, hundreds at most, and each write makes and removes some: so a look-up
//! is one multiplication and one step along a chain, which a general map does not get down to.

use std::mem::{replace, take};

/// The end of a chain.
const NONE: u32 = u32::MAX;

struct Entry<T> {
    unit: u64,
    /// The next of the same chain, or of the free entries.
    next: u32,
    value: T,
}

/// See the module's documentation.
pub(super) struct ByUnit<T> {
    /// The first entry of each chain: a power of two of them, no fewer than entries.
    chains: Vec<u32>,
    entries: Vec<Entry<T>>,
    /// The first of those that were removed.
    free: u32,
}

impl<T> Default for ByUnit<T> {
    fn default() -> ByUnit<T> {
        ByUnit { chains: vec![NONE; 16], entries: Vec::new(), free: NONE }
    }
}

impl<T: Default> ByUnit<T> {
    /// The chain of `unit`: below the number of chains.
    #[inline(always)]
    fn chain(&self, unit: u64) -> usize {
        // Neighbours, and units a power of two apart, go to different chains: Knuth's multiplicative hash.
        let hash = unit.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.chains.len() - 1)
    }

    /// The value of `unit`, if it has one.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, unit: u64) -> Option<&mut T> {
        let mut at = *self.chains.get(self.chain(unit))?;
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.unit == unit {
                break;
            }
            at = entry.next;
        }
        self.entries.get_mut(at as usize).map(|entry| &mut entry.value)
    }

    /// Gives `unit`, which has none, a value.
    #[inline(always)]
    pub(super) fn insert(&mut self, unit: u64, value: T) {
        let chain = self.chain(unit);
        let Some(first) = self.chains.get_mut(chain) else { return };
        match self.entries.get_mut(self.free as usize) {
            Some(entry) => {
                let at = replace(&mut self.free, entry.next);
                (entry.unit, entry.value) = (unit, value);
                entry.next = replace(first, at);
            }
            None => self.grow(unit, value),
        }
    }

    #[cold]
    fn grow(&mut self, unit: u64, value: T) {
        self.entries.push(Entry { unit, next: NONE, value });
        if self.entries.len() > self.chains.len() {
            self.chains = vec![NONE; self.chains.len() * 2];
        } else {
            self.chains.fill(NONE);
        }
        // None is free: all of them belong to a chain.
        for at in 0..self.entries.len() {
            let chain = self.chain(self.entries[at].unit);
            self.entries[at].next = replace(&mut self.chains[chain], at as u32);
        }
    }

    /// Removes `unit` if its value is such a one.
    #[inline(always)]
    pub(super) fn remove_if(&mut self, unit: u64, is: impl Fn(&T) -> bool) -> bool {
        let chain = self.chain(unit);
        let Some(first) = self.chains.get(chain) else { return false };
        let (mut at, mut before) = (*first, NONE);
        loop {
            let Some(entry) = self.entries.get_mut(at as usize) else { return false };
            if entry.unit != unit {
                (before, at) = (at, entry.next);
                continue;
            }
            if !is(&entry.value) {
                return false;
            }
            // Its value stays until another takes the entry.
            let next = replace(&mut entry.next, replace(&mut self.free, at));
            match self.entries.get_mut(before as usize) {
                Some(before) => before.next = next,
                None => {
                    if let Some(first) = self.chains.get_mut(chain) {
                        *first = next;
                    }
                }
            }
            return true;
        }
    }

    /// Takes the value of `unit` away, if it has one.
    #[inline(always)]
    pub(super) fn remove(&mut self, unit: u64) -> Option<T> {
        let chain = self.chain(unit);
        let mut at = *self.chains.get(chain)?;
        let mut before = NONE;
        loop {
            let entry = self.entries.get_mut(at as usize)?;
            if entry.unit == unit {
                let next = replace(&mut entry.next, replace(&mut self.free, at));
                let value = take(&mut entry.value);
                match self.entries.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => *self.chains.get_mut(chain)? = next,
                }
                return Some(value);
            }
            (before, at) = (at, entry.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_has_what_a_map_has() {
        let (mut table, mut map) = (ByUnit::default(), HashMap::new());
        let mut seed = 1u64;
        for step in 0..20_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Units that differ in low bits, and in high ones.
            let unit = ((seed >> 40) % 97) << ((seed >> 60) * 3);
            assert_eq!(table.get_mut(unit).copied(), map.get(&unit).copied());
            assert!(!table.remove_if(unit, |value| *value == u64::MAX));
            if map.contains_key(&unit) {
                match step % 2 {
                    0 => assert_eq!(table.remove(unit), map.remove(&unit)),
                    _ => {
                        assert!(table.remove_if(unit, |_| true));
                        map.remove(&unit);
                    }
                }
            } else if map.len() < 200 {
                table.insert(unit, step);
                map.insert(unit, step);
            }
        }
    }

    #[test]
    fn entries_are_used_again() {
        let mut table = ByUnit::default();
        for unit in 0..1000 {
            table.insert(unit, 0);
            table.insert(unit + 1, 1);
            assert_eq!((table.remove(unit), table.remove(unit + 1)), (Some(0), Some(1)));
            assert_eq!(table.remove(unit), None);
        }
        assert_eq!(table.entries.len(), 2);
    }
}
