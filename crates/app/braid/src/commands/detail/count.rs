//! Members by their states.

use braid_control::protocol::Detail;

/// Members in one of these states.
pub(super) fn count(detail: &Detail, states: &[&str]) -> usize {
    detail.members.iter().filter(|member| states.contains(&member.state.as_str())).count()
}

/// Members that hold no slot in full: waiting, or being filled.
pub(super) fn spares(detail: &Detail) -> usize {
    count(detail, &["spare", "rebuilding", "replacing"])
}
