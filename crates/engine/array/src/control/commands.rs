//! The checks that commands have in common: which member is meant, and whether the array is in a state for it.

use crate::control::record::Record;
use crate::error::ControlError;
use crate::options::MemberSelector;
use crate::state::view::MemberNr;
use crate::status::JobKind;

/// The number of the member that a command names.
pub(crate) fn select(
    record: &Record,
    doing: &'static str,
    selector: &MemberSelector,
) -> Result<MemberNr, ControlError> {
    let roster = record.roster.borrow();
    let found = roster.members.iter().find(|member| match selector {
        MemberSelector::Nr(nr) => member.nr == *nr,
        MemberSelector::Name(name) => member.name == *name,
    });
    found.map(|member| member.nr).ok_or_else(|| {
        let known: Vec<&str> = roster.members.iter().map(|member| member.name.as_str()).collect();
        ControlError::NoSuchMember {
            doing,
            array: record.name.clone(),
            selector: selector.clone(),
            known: known.join(", "),
        }
    })
}

/// The level has redundancy.
pub(crate) fn needs_redundancy(record: &Record, doing: &'static str) -> Result<(), ControlError> {
    let level = record.geometry().level;
    if level.has_redundancy() {
        return Ok(());
    }
    Err(ControlError::NoRedundancy { doing, array: record.name.clone(), level })
}

/// The array runs, may be written and has not failed.
pub(crate) fn needs_working(record: &Record, doing: &'static str) -> Result<(), ControlError> {
    let array = record.name.clone();
    if record.end.has_begun() {
        return Err(ControlError::Stopping { doing, array });
    }
    if record.read_only {
        return Err(ControlError::ReadOnly { doing, array });
    }
    if record.roster.borrow().broken {
        return Err(ControlError::Failed { doing, array });
    }
    Ok(())
}

/// Why a change has to wait that, as in md, is not made while redundancy is being made; `None`: it need not.
pub(crate) fn unsettled(record: &Record) -> Option<String> {
    let roster = record.roster.borrow();
    if roster.shared.reshape.is_some() {
        Some(not_done_yet(record, "a reshape"))
    } else if roster.resynced != u64::MAX {
        Some(not_done_yet(record, "a resync"))
    } else if roster.members.iter().any(|member| member.standing.is_filled()) {
        Some(not_done_yet(record, "a recovery"))
    } else {
        None
    }
}

/// Tells that `job` has to end first.
pub(crate) fn not_done_yet(record: &Record, job: &str) -> String {
    format!("{job} is not done yet; {}", wait_first(record))
}

/// Tells that a job runs, which has to end first.
pub(crate) fn running(record: &Record, job: JobKind) -> String {
    format!("a {job} is running; {}", wait_first(record))
}

fn wait_first(record: &Record) -> String {
    format!("wait for it first: braid wait {}", record.name)
}

/// The device cannot become a member, and why.
pub(crate) fn unfit(record: &Record, member: &str, why: String) -> ControlError {
    ControlError::Unfit { array: record.name.clone(), member: member.to_string(), why }
}
