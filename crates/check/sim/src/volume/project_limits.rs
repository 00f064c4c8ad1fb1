//! What projects may have, as the model knows it.

use super::call::{Call, What};
use super::meta::{Id, Meta};
use braid_volume::Limits;
use std::collections::BTreeMap;

/// What projects may have, as the model knows it, by number.
pub type OfProjects = BTreeMap<u32, Limits>;

/// The project of the files that a request makes or makes larger may be full.
pub fn may_be_reached(limits: &OfProjects, meta: &Meta, call: &Call) -> bool {
    let flags = |id: Id| meta.nodes.get(&id).map(|node| node.flags).unwrap_or_default();
    let on = flags(call.on);
    let (project, adds_file) = match &call.what {
        What::Make { .. } | What::MakeUnnamed { .. } | What::Rename(..) => {
            (if on.inherits_project { on.project } else { 0 }, true)
        }
        What::SetFlags(to) => (to.project, false),
        What::Write(..) | What::Allocate(..) | What::Copy(..) => (on.project, false),
        _ => return false,
    };
    let Some(limits) = limits.get(&project).filter(|_| project != 0) else { return false };
    // Those that have lost their names may not have gone yet.
    let files = meta.nodes.values().filter(|node| node.flags.project == project).count() as u64;
    match adds_file {
        true => limits.files.is_some_and(|most| files >= most),
        false => *limits != Limits::default(),
    }
}
