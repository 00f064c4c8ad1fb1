//! Choices that only some runs make, each from a stream of its own. A run that is *plain* makes none of them: seeds that
//! failed before there were any stay the runs that they were.

use super::plan::Streams;
use crate::member::Member;
use crate::rng::Extra;
use std::rc::Rc;

/// See the module's documentation.
pub(super) struct Chances {
    /// Situations that are brought about on purpose.
    pub(super) aimed: Extra,
    /// Arrays below others that become too degraded.
    pub(super) too_degraded: Extra,
    /// Flushes that fail where no other member has what is lost.
    pub(super) sole_copies: Extra,
    /// Reads of what a member has lost with a failed flush.
    pub(super) read_lost: Extra,
    /// Blocks that cannot be read after a crash.
    pub(super) fading: Extra,
    /// More members.
    pub(super) reshaping: Extra,
    /// Larger components.
    pub(super) resizing: Extra,
    /// Other chunks and layouts, and fewer members.
    pub(super) other_shapes: Extra,
    /// Other levels.
    pub(super) levels: Extra,
    /// Other levels in several steps.
    pub(super) steps: Extra,
    /// Levels 0 and 10 in turn.
    pub(super) copies: Extra,
    /// Checks in parts.
    pub(super) scrub_in_parts: Extra,
    /// Too many members that are stale.
    pub(super) rescue: Extra,
    /// Members that are replaced while they serve.
    pub(super) replaced: Extra,
    /// A write journal whose device fails.
    pub(super) journal: Extra,
    /// Level 0 at last.
    pub(super) level_0: Extra,
}

impl Chances {
    /// Those of `seed`.
    pub(super) fn of(seed: u64, streams: &Streams, plain: bool) -> Chances {
        let of = |(stream, percent)| Extra::of(seed, stream, percent, plain);
        Chances {
            aimed: of(streams.aimed),
            too_degraded: of(streams.too_degraded),
            sole_copies: of(streams.sole_copies),
            read_lost: of(streams.read_lost),
            fading: of(streams.fading),
            reshaping: of(streams.reshaping),
            resizing: of(streams.resizing),
            other_shapes: of(streams.other_shapes),
            levels: of(streams.levels),
            steps: of(streams.steps),
            copies: of(streams.copies),
            scrub_in_parts: of(streams.scrub_in_parts),
            rescue: of(streams.rescue),
            replaced: of(streams.replaced),
            journal: of(streams.journal),
            level_0: of(streams.level_0),
        }
    }
}

/// A member that an assembly was not given because its metadata is damaged.
pub(super) struct LeftOut {
    pub(super) member: Rc<Member>,
    /// Writes that it had taken by then.
    pub(super) writes: u32,
}

/// Damage of metadata.
pub(super) struct Damage {
    /// Of any.
    pub(super) any: Extra,
    /// Of lists of bad blocks.
    pub(super) lists: Extra,
    /// The members that were left out for it in this life.
    pub(super) left_out: Vec<LeftOut>,
}

impl Damage {
    /// That of `seed`.
    pub(super) fn of(seed: u64, streams: &Streams, plain: bool) -> Damage {
        let of = |(stream, percent)| Extra::of(seed, stream, percent, plain);
        Damage { any: of(streams.damage), lists: of(streams.damage_of_lists), left_out: Vec::new() }
    }
}
