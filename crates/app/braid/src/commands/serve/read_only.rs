//! `braid serve --read-only`: whatever arrays the members hold, read as they are. Nothing is written, so nothing has
//! to be asked for: what is missing, stale or unfinished is said, and what cannot be served keeps nothing else from it.

use crate::daemon::grouping::{Group, group_what_is_there};
use crate::daemon::starting::start::Start;
use crate::members::parse_distinct;
use crate::on_shard;
use crate::output::{self, size};
use anyhow::{Context, Result, bail};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::error::AssembleError;
use braid_array::options::AssembleOptions;
use braid_array::salvage::{Salvage, cautions, freshest, salvage};
use braid_device::Target;
use braid_export::Doors;
use braid_shard::mailbox::Remote;
use std::collections::HashSet;
use std::sync::Arc;

/// Sorts the members into arrays.
pub(super) fn groups(home: &Remote, texts: &[String]) -> Result<Vec<Group>> {
    let (members, twice) = parse_distinct(texts)?;
    let (groups, notes) = group_what_is_there(home, &members)?;
    for note in twice.iter().chain(&notes) {
        output::note(format!("note: {note}"));
    }
    if groups.is_empty() {
        bail!("nothing to serve: none of what was given is a member of an array that can be read");
    }
    Ok(groups)
}

/// Starts each array that can be read, with `take_stale` also of members that it went on without, and says of the others why
/// they cannot. Gives the names of those that are members of others.
pub(super) fn start_all(
    remotes: &[Remote],
    (starts, take_stale): (Vec<Start>, bool),
    arrays: &mut Vec<Arc<Array>>,
    salvaged: &mut Vec<Arc<Salvage>>,
) -> Result<HashSet<String>> {
    let mut below = HashSet::new();
    let home = remotes.first().context("at least one shard was started")?;
    for start in starts {
        let options = AssembleOptions {
            read_only: true,
            // Nothing is written, so whatever is wrong does not get worse.
            force: true,
            start_degraded: true,
            // Old content in place of what is missing is for the user to ask for.
            take_stale,
            ..start.options()
        };
        let group = start.group;
        let (openers, all) = (group.openers.clone(), remotes.to_vec());
        let started = on_shard::run(home, move |shard| async move {
            assemble(&on_shard::context(&shard, &all), openers, options).await
        })?;
        let error = match started {
            Ok(array) => {
                let status = array.control(|control| async move { control.status().await });
                let degraded = status.is_some_and(|status| status.degraded > 0);
                warn(&group, degraded, &[]);
                is_below(&group, Arc::clone(&array) as Arc<dyn Target>, &mut below);
                arrays.push(array);
                continue;
            }
            Err(error @ (AssembleError::Unsupported { .. } | AssembleError::NotEnough { .. })) => {
                error
            }
            Err(error) => {
                refuse(&group.name, &error);
                continue;
            }
        };
        let (openers, all) = (group.openers.clone(), remotes.to_vec());
        let (name, uuid) = (group.name.clone(), group.uuid);
        let looked_at = on_shard::run(home, move |shard| async move {
            salvage(&on_shard::context(&shard, &all), openers, name, Some(uuid)).await
        })?;
        match (looked_at, &error) {
            (Ok(array), _) => {
                warn(&group, array.degraded() > 0, array.warnings());
                let array = Arc::new(array);
                is_below(&group, Arc::clone(&array) as Arc<dyn Target>, &mut below);
                salvaged.push(array);
            }
            (Err(_), AssembleError::NotEnough { by_force, .. }) if !by_force.is_empty() => {
                refuse(&group.name, &error);
            }
            // What the engine says of missing members is said by salvaging too.
            (Err(error), _) => refuse(&group.name, &error),
        }
    }
    if arrays.is_empty() && salvaged.is_empty() {
        bail!("nothing to serve: no array could be assembled");
    }
    Ok(below)
}

/// Tells the array above, where there is one, that this one runs.
fn is_below(group: &Group, array: Arc<dyn Target>, below: &mut HashSet<String>) {
    if let Some(member) = &group.as_member {
        below.insert(array.info().name);
        member.started(array);
    }
}

fn refuse(name: &str, error: &AssembleError) {
    output::note(format!("braid: array {name} is not served: {error}"));
}

fn warn(group: &Group, degraded: bool, more: &[String]) {
    let general =
        freshest(group.superblocks()).map(|sb| cautions(sb, degraded)).unwrap_or_default();
    for warning in general.iter().chain(more) {
        output::note(format!("warning: array {}: {warning}", group.name));
    }
}

/// Says that an array is served, and where.
pub(super) fn announce(array: &Salvage, doors: &Doors) -> Result<()> {
    let info = array.info();
    output::line(format!(
        "array {}: {}, {}, {}",
        info.name,
        info.description,
        size::human(info.device.size),
        crate::daemon::salvaged::state(array)
    ))?;
    for line in array.left_out() {
        output::note(format!("left out of array {}: {line}", info.name));
    }
    for location in doors.locations(&info.name) {
        output::line(format!("  {location}"))?;
    }
    Ok(())
}
