//! Spares that the arrays of a group share, as with mdadm's `spare-group`: one that an array does not need goes to another that
//! lacks a member.
//!
//! | file | subject |
//! |---|---|
//! | `choice` | which spare goes where |
//!
//! Owns which array is in which group while it runs; `settings` keeps that. Does not know how a spare is moved (`sharing`).

pub mod choice;

use crate::settings::group::SpareGroup;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A spare that an array has refused is not offered to it again for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Moves that are shown, of each array.
const SHOWN: usize = 4;

type Uuid = [u8; 16];

/// See the module's documentation.
#[derive(Default)]
pub struct Spares {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    groups: BTreeMap<Uuid, SpareGroup>,
    /// Spares that an array does not take, by name, and since when.
    refused: BTreeMap<(Uuid, String), Instant>,
    /// Sentences on the last moves.
    moves: BTreeMap<Uuid, Vec<String>>,
}

impl Spares {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change is a single call, so a panic elsewhere leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array with this UUID shares its spares with this group from now on; `None`: with nobody.
    pub fn set_group(&self, uuid: Uuid, group: Option<SpareGroup>) {
        let mut known = self.known();
        match group {
            Some(group) => known.groups.insert(uuid, group),
            None => known.groups.remove(&uuid),
        };
        // A spare that was refused may suit another group.
        known.refused.clear();
    }

    /// The group with which the array shares its spares.
    pub fn group(&self, uuid: &Uuid) -> Option<SpareGroup> {
        self.known().groups.get(uuid).copied()
    }

    /// Sentences on the last spares that came to the array, or went from it.
    pub fn moves(&self, uuid: &Uuid) -> Vec<String> {
        self.known().moves.get(uuid).cloned().unwrap_or_default()
    }

    /// A spare has come to the array, or gone from it, as this sentence says.
    pub fn has_moved(&self, uuid: Uuid, sentence: String) {
        let mut known = self.known();
        let moves = known.moves.entry(uuid).or_default();
        moves.push(sentence);
        let more = moves.len().saturating_sub(SHOWN);
        moves.drain(..more);
    }

    /// Remembers that the array does not take this spare; false if that was known.
    pub fn refuse(&self, uuid: Uuid, spare: &str) -> bool {
        self.known().refused.insert((uuid, spare.to_string()), Instant::now()).is_none()
    }

    /// The array may take this spare, as far as is known.
    pub fn may_take(&self, uuid: Uuid, spare: &str) -> bool {
        let known = self.known();
        let since = known.refused.get(&(uuid, spare.to_string()));
        since.is_none_or(|since| since.elapsed() > REFUSED_FOR)
    }
}
