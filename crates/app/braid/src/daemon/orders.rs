//! What is asked of one running array, and how that can fail.

use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::error::ControlError;
use braid_array::status::{ArrayStatus, MemberState, MemberStatus};
use std::future::Future;
use std::rc::Rc;

/// No array of that name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoSuchArray(pub(super) String);

pub(super) fn stopped(array: &Array) -> anyhow::Error {
    NoSuchArray(format!("array {} has been stopped", array.name())).into()
}

pub(super) fn status(array: &Array) -> Result<ArrayStatus> {
    array.control(|control| async move { control.status().await }).ok_or_else(|| stopped(array))
}

/// Has the array's control do something that it may refuse.
pub(super) fn order<T, F, W>(array: &Array, job: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(Rc<Control>) -> W + Send + 'static,
    W: Future<Output = Result<T, ControlError>> + 'static,
{
    Ok(array.control(job).ok_or_else(|| stopped(array))??)
}

/// What happens next by itself, or has to be done.
pub(super) fn outlook(status: &ArrayStatus) -> String {
    let name = &status.name;
    let helps = |member: &MemberStatus| {
        matches!(member.state, MemberState::Spare | MemberState::Rebuilding { .. })
    };
    let fills = |member: &&MemberStatus| matches!(member.state, MemberState::Replacing { .. });
    if let Some(new) = status.members.iter().find(fills) {
        return format!(
            "{} is being filled to replace a member; `braid wait {name}` follows it",
            new.name
        );
    }
    if status.degraded == 0 {
        let is_spare = |member: &&MemberStatus| member.state == MemberState::Spare;
        return match status.members.iter().filter(is_spare).count() {
            0 => "every slot has a member in sync".to_string(),
            1 => "every slot has a member in sync, and it waits as a spare".to_string(),
            spares => format!("every slot has a member in sync, and {spares} spares wait"),
        };
    }
    match status.members.iter().find(|member| helps(member)) {
        Some(spare) => format!("{} is being rebuilt; `braid wait {name}` follows it", spare.name),
        None => format!("the array is degraded; `braid add {name} MEMBER` gives it a new one"),
    }
}
