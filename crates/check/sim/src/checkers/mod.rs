//! The named checkers: one for each invariant of the architecture, and what a run fails by.
//!
//! | checker | looks at |
//! |---|---|
//! | [`reads_return_acknowledged`] | what every read gives |
//! | [`parity_matches_data`] | the images after a clean stop |
//! | [`owner_only`] | which shard sends each write |
//! | [`md_can_assemble`] | the superblocks after every crash and stop |
//! | [`memory_bounded`] | buffers in use when everything is at rest |
//! | [`stale_never_source`] | every read of every member |
//! | [`job_resumes`] | where a job goes on after a restart |
//!
//! The runner adds, by name: `requests_succeed` (no error within the level's tolerance),
//! `requests_are_valid`, `completes_once`, `nothing_waits_for_ever`, `no_livelock`, `assembles`,
//! `check_finds_nothing`, `check_finds_rot`, `check_goes_on`, `repair_mends_rot`, `repair_of_parity_only`,
//! `rescue`, and in stacks `too_degraded_is_told` and
//! `too_degraded_is_failed` (`run::too_degraded`).

pub mod gf;
pub mod job_resumes;
pub mod md_can_assemble;
pub mod memory_bounded;
pub mod owner_only;
pub mod parity_matches_data;
pub mod reads_return_acknowledged;
pub mod stale_never_source;

use crate::world::Looks;

/// Those that look at every request.
pub const LOOKS: Looks = Looks { at_read: stale_never_source::look, at_write: owner_only::look };
