//! The outcomes of metadata writes that went to several members.

use crate::state::view::MemberNr;
use braid_device::{IoError, Outcome};

/// # Errors
/// The members that did not take theirs.
pub(super) fn all_taken(
    outcomes: impl Iterator<Item = (MemberNr, Outcome)>,
) -> Result<(), Vec<(MemberNr, IoError)>> {
    let failures: Vec<_> =
        outcomes.filter_map(|(nr, outcome)| Some((nr, outcome.result.err()?))).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
