//! What a run of arrays is about: which array stands on which, what client and world go by, and how likely things are. A
//! single array is a stack of one.
//!
//! Invariant: a seed's run draws from the streams, with the odds, that it always had, whatever of it is shared with runs of
//! the other kind.

use crate::scenario::Scenario;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use std::ops::Range;

pub(super) const KIB: u64 = 1 << 10;
/// Where data starts on leaves of stacks, and on the arrays that are members of others.
pub(super) const DATA_OFFSET: u64 = 64 * KIB;

/// What stands in the slots of an array.
#[derive(Clone, Debug)]
pub enum Below {
    /// Simulated members, by index: slots, then spares, then those that may be added later.
    Leaves(Vec<usize>),
    /// Arrays, by number.
    Arrays(Vec<usize>),
}

/// One array of a stack.
#[derive(Clone, Debug)]
pub struct ArrayPlan {
    /// How it is created; for an array of arrays without its size, which depends on theirs.
    pub create: CreateOptions,
    /// How it is assembled.
    pub assemble: AssembleOptions,
    /// What it stands on.
    pub below: Below,
    /// The array that it is a member of.
    pub above: Option<usize>,
}

/// See the module's documentation.
pub struct Plan {
    /// The arrays, each after those that it stands on; the last is the top.
    pub arrays: Vec<ArrayPlan>,
    /// The top and the leaves, as they were drawn: what the client and the world go by.
    pub scenario: Scenario,
    /// How many budgets of memory payload may take: each layer has one of its own.
    pub layers: usize,
    /// How likely things are.
    pub odds: Odds,
    /// Where its random numbers come from.
    pub streams: Streams,
}

/// How likely things are where a single array and a stack differ: in percent, unless said otherwise. For 0 no number is
/// drawn.
#[derive(Clone, Debug)]
pub struct Odds {
    /// What happens under load is a mishap.
    pub mishap: u64,
    /// It is a change of a bitmap, where there are such changes.
    pub bitmap_change: u64,
    /// Bytes for each bit of a bitmap that is added.
    pub bitmap_chunks: &'static [u64],
    /// Of what happens under load else, in 20ths, from 0: up to where a member fails (up to 11 an array below another).
    pub member_fails: u64,
    /// Of mishaps under load, in tenths: up to where flushes fail, a member hangs, and one is slow and failed.
    pub mishaps: [u64; 3],
    /// A member that hangs is failed by command when a number below 100 is among these.
    pub hanging_is_failed: Range<u64>,
    /// Blocks that take no write any more are where most requests go.
    pub defects_are_hot: u64,
    /// A spare whose array has bad-block logs has bad blocks, where others are gone.
    pub spare_has_defects: u64,
    /// A member that is gone is not added.
    pub stays_away: u64,
    /// A member that is added was without power.
    pub was_without_power: u64,
    /// A crash leaves the members' caches: the process alone is killed.
    pub is_killed: u64,
    /// Power fails while arrays are created.
    pub crash_in_create: u64,
    /// A member is added between two rounds.
    pub mended_between_rounds: u64,
    /// Rounds are followed, in 20ths, from 12, up to there, by a wait for jobs.
    pub wait_for_jobs: u64,
    /// An array whose jobs are done is idle when power fails.
    pub crash_when_idle: u64,
    /// There is a mishap between two rounds.
    pub between_rounds: u64,
    /// Jobs are waited for after a crash.
    pub jobs_after_crash: u64,
    /// Requests to members before a crash, at most, and writes of their metadata.
    pub until_crash: (u64, u64),
    /// A repair mends a member that has rotten, where the others say which it is.
    pub rot_is_repaired: u64,
}

/// A stream of random numbers, and in how many of 100 runs there is what it is for.
pub type Stream = (u64, u64);

/// The numbers of the streams that choices are drawn from, so that none disturbs another.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Most choices.
    pub choices: u64,
    /// Choices of settings.
    pub settings: u64,
    /// The client of the first life, less one.
    pub clients: u64,
    /// Mishaps.
    pub mishaps: Stream,
    /// Situations that are brought about on purpose.
    pub aimed: Stream,
    /// Arrays below others that become too degraded.
    pub too_degraded: Stream,
    /// Flushes that fail where no other member has what is lost.
    pub sole_copies: Stream,
    /// Reads of what a member has lost with a failed flush.
    pub read_lost: Stream,
    /// Blocks that cannot be read after a crash.
    pub fading: Stream,
    /// More members.
    pub reshaping: Stream,
    /// Larger components.
    pub resizing: Stream,
    /// Other chunks and layouts, and fewer members.
    pub other_shapes: Stream,
    /// Other levels.
    pub levels: Stream,
    /// Other levels in several steps.
    pub steps: Stream,
    /// Levels 0 and 10 in turn.
    pub copies: Stream,
    /// Checks that are interrupted and go on.
    pub scrub_in_parts: Stream,
    /// Members that are stale, too many for the level.
    pub rescue: Stream,
    /// Members that are replaced while they serve.
    pub replaced: Stream,
    /// A write journal whose device fails.
    pub journal: Stream,
    /// Level 0 at last.
    pub level_0: Stream,
    /// Damage of metadata.
    pub damage: Stream,
    /// Damage of lists of bad blocks.
    pub damage_of_lists: Stream,
}

/// Runs have none of what this would be for.
const NONE: Stream = (0, 0);

impl Odds {
    /// Of a single array.
    pub const ALONE: Odds = Odds {
        mishap: 25,
        bitmap_change: 30,
        bitmap_chunks: &[4 * KIB, 16 * KIB, 64 * KIB, KIB * KIB],
        member_fails: 11,
        mishaps: [5, 7, 10],
        hanging_is_failed: 50..100,
        defects_are_hot: 80,
        spare_has_defects: 50,
        stays_away: 50,
        was_without_power: 50,
        is_killed: 25,
        crash_in_create: 15,
        mended_between_rounds: 40,
        wait_for_jobs: 15,
        crash_when_idle: 40,
        between_rounds: 30,
        jobs_after_crash: 0,
        until_crash: (400, 6),
        rot_is_repaired: 60,
    };

    /// Of a stack.
    pub const STACK: Odds = Odds {
        mishap: 30,
        bitmap_change: 20,
        bitmap_chunks: &[4 * KIB, 16 * KIB, KIB * KIB],
        member_fails: 9,
        mishaps: [4, 6, 8],
        hanging_is_failed: 0..50,
        defects_are_hot: 70,
        spare_has_defects: 0,
        stays_away: 0,
        was_without_power: 0,
        is_killed: 0,
        crash_in_create: 0,
        mended_between_rounds: 50,
        wait_for_jobs: 16,
        crash_when_idle: 0,
        between_rounds: 0,
        jobs_after_crash: 40,
        until_crash: (600, 8),
        rot_is_repaired: 0,
    };
}

impl Streams {
    /// Of a single array.
    pub const ALONE: Streams = Streams {
        choices: 2,
        settings: 5,
        clients: 16,
        mishaps: (40, 75),
        aimed: (41, 60),
        too_degraded: NONE,
        sole_copies: (55, 70),
        read_lost: (58, 80),
        fading: (59, 60),
        reshaping: (111, 50),
        resizing: (110, 30),
        other_shapes: (112, 50),
        levels: (113, 50),
        steps: (114, 35),
        copies: (115, 20),
        scrub_in_parts: (61, 30),
        rescue: (62, 12),
        replaced: (63, 40),
        journal: (121, 70),
        level_0: (120, 25),
        damage: (104, 40),
        damage_of_lists: (105, 60),
    };

    /// Of a single array that is about other levels and shapes.
    pub const CHANGING: Streams = Streams {
        choices: 117,
        settings: 118,
        clients: 256,
        mishaps: (119, 0),
        levels: (113, 100),
        steps: (114, 100),
        copies: (115, 100),
        level_0: (120, 50),
        ..Streams::STACK
    };

    /// Of an array that grows, and meets little else.
    pub const GROWING: Streams = Streams {
        choices: 1017,
        settings: 1018,
        clients: 512,
        mishaps: (1019, 0),
        reshaping: (1020, 100),
        other_shapes: (1021, 100),
        resizing: (1022, 100),
        ..Streams::STACK
    };

    /// Of a stack.
    pub const STACK: Streams = Streams {
        choices: 33,
        settings: 34,
        clients: 64,
        mishaps: (42, 60),
        aimed: NONE,
        too_degraded: (43, 60),
        sole_copies: NONE,
        read_lost: NONE,
        fading: NONE,
        reshaping: NONE,
        resizing: NONE,
        other_shapes: NONE,
        levels: NONE,
        steps: NONE,
        copies: NONE,
        scrub_in_parts: NONE,
        rescue: NONE,
        replaced: NONE,
        journal: NONE,
        level_0: NONE,
        damage: NONE,
        damage_of_lists: NONE,
    };
}

impl ArrayPlan {
    /// It is created with a write-intent bitmap.
    pub fn has_bitmap(&self) -> bool {
        self.create.bitmap != CreateBitmap::None
    }
}

impl Plan {
    /// A single array of simulated members.
    pub fn alone(scenario: Scenario) -> Plan {
        let array = ArrayPlan {
            create: scenario.create.clone(),
            assemble: scenario.assemble.clone(),
            below: Below::Leaves((0..scenario.members.len()).collect()),
            above: None,
        };
        let (odds, streams) = (Odds::ALONE, Streams::ALONE);
        Plan { arrays: vec![array], scenario, layers: 1, odds, streams }
    }

    /// It is a single array.
    pub fn is_alone(&self) -> bool {
        self.arrays.len() == 1
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        if self.is_alone() {
            return self.scenario.describe();
        }
        let one = |array: usize| self.describe_one(array);
        let Scenario { shards, block, volatile, zeroes, lies, .. } = &self.scenario;
        format!(
            "{}; {shards} shards, block {block}, metadata {}{}{}{}",
            one(self.arrays.len() - 1),
            self.scenario.create.version,
            if *volatile { ", volatile caches" } else { "" },
            if *zeroes { "" } else { ", garbage at first" },
            if *lies { ", a member lies" } else { "" },
        )
    }

    fn describe_one(&self, array: usize) -> String {
        let Some(plan) = self.arrays.get(array) else { return String::new() };
        let create = &plan.create;
        let below = match &plan.below {
            Below::Leaves(leaves) => format!("{} leaves", leaves.len()),
            Below::Arrays(arrays) => {
                let all: Vec<String> = arrays.iter().map(|nr| self.describe_one(*nr)).collect();
                all.join(", ")
            }
        };
        let bitmap = if plan.has_bitmap() { " bitmap" } else { "" };
        let log = if create.bad_block_log { " log" } else { "" };
        let (layout, chunk) = (create.layout.unwrap_or(0), create.chunk_size.unwrap_or(0));
        format!("{} {layout:#x}/{chunk}{bitmap}{log} over [{below}]", create.level)
    }
}
