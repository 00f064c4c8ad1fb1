//! How runs end, and what they did: the report that the command line makes its tables of.

use crate::world::{Failure, World};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was found.
    Passed,
    /// Something was lost, and a member had lied: outside of every promise, and seen.
    Outside(Failure),
    /// A checker found fault.
    Failed(Failure),
}

/// Checkers of what members hold, and of what follows from it: what a member has lost that lied about flushes can make
/// these fail, and no other.
const OF_CONTENT: &[&str] = &[
    "assembles",
    "blocks_are_there",
    "check_finds_nothing",
    "copies_hold_acknowledged",
    "md_can_assemble",
    "parity_matches_data",
    "reads_return_acknowledged",
    "stale_never_source",
];

impl Verdict {
    /// The verdict on the run of `world`, whose members are still there.
    pub(crate) fn of(world: &World) -> Verdict {
        let lost = world.lie_has_cost() && !world.beside_lies.get();
        match world.failure() {
            None => Verdict::Passed,
            Some(failure) if lost && OF_CONTENT.contains(&failure.checker) => {
                Verdict::Outside(failure)
            }
            Some(failure) => Verdict::Failed(failure),
        }
    }
}

/// How often things happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests that the client sent.
    pub requests: u64,
    /// Crashes.
    pub crashes: u64,
    /// Members that failed, blocks that became unreadable, and so on.
    pub faults: u64,
    /// Members that were taken back by the bitmap.
    pub re_added: u64,
    /// Bitmaps that were added or removed.
    pub bitmap_changes: u64,
    /// Arrays that were given another shape.
    pub reshapes: u64,
    /// Changes of a level.
    pub level_changes: u64,
    /// Components that became larger.
    pub resizes: u64,
    /// Members that were to be replaced while they served.
    pub replacements: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.crashes += other.crashes;
        self.faults += other.faults;
        self.re_added += other.re_added;
        self.bitmap_changes += other.bitmap_changes;
        self.reshapes += other.reshapes;
        self.level_changes += other.level_changes;
        self.resizes += other.resizes;
        self.replacements += other.replacements;
    }
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub verdict: Verdict,
    /// The scenario in a line.
    pub scenario: String,
    /// How often things happened.
    pub did: Counts,
    /// A member lied about flushes.
    pub lies: bool,
}
