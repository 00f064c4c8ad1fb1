//! Starting arrays of the members that are there: what can be started is, and what cannot is named with the reason.

pub mod settings;
pub mod start;

use super::grouping::{Group, Trouble};
use super::scrubs::Scrubs;
use super::spares::Spares;
use crate::hosts::Guard;
use crate::lease::{NotTaken, Session, Taken};
use crate::members::Member;
use crate::on_shard;
use crate::output;
use crate::settings::Assignment;
use crate::settings::group::SpareGroup;
use crate::settings::kept::Kept;
use anyhow::{Context, Result};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::options::AssembleOptions;
use braid_control::wanted::stack::StackPolicy;
use braid_device::Target;
use braid_shard::mailbox::Remote;
use settings::Wanted;
use start::Start;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// How arrays are started, at first and later.
#[derive(Clone)]
pub struct How {
    /// Also when members are missing that were there.
    pub run: bool,
    /// Also when that may bring wrong blocks back.
    pub force: bool,
    /// Everything, or nothing.
    pub strict: bool,
    /// Which arrays of arrays.
    pub stack: StackPolicy,
    /// Only this one.
    pub uuid: Option<String>,
    /// Settings of the command line.
    pub asked: Vec<Assignment>,
    /// Where settings are kept.
    pub kept: Kept,
    /// The arrays' checks, which are told the hours between which they run.
    pub scrubs: Arc<Scrubs>,
    /// The groups in which they share spares.
    pub spares: Arc<Spares>,
    /// Shards of this process.
    pub shards: u16,
    /// Bytes that the caches of an array may take.
    pub memory_max: u64,
    /// The means that keep other hosts off the arrays.
    pub guard: Guard,
    /// The lease that arrays are run under.
    pub lease: Option<Arc<Session>>,
    /// Spare groups that the configuration gives arrays, before what is kept.
    pub groups: BTreeMap<[u8; 16], SpareGroup>,
}

impl How {
    /// The settings that arrays are started with.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            kept: &self.kept,
            asked: &self.asked,
            shards: self.shards,
            memory_max: self.memory_max,
        }
    }

    /// Arrays with the settings that they are started with.
    ///
    /// # Errors
    /// Settings of the command line that do not suit one.
    pub fn starts(&self, groups: Vec<Group>) -> Result<Vec<Start>> {
        let wanted = self.wanted();
        let (memory_max, guard) = (self.memory_max, self.guard);
        let start = |group| {
            let settings = wanted.of(&group)?;
            Ok(Start { settings, memory_max, guard, group })
        };
        groups.into_iter().map(start).collect()
    }
}

/// What came of starting.
#[derive(Default)]
pub struct Begun {
    /// Those that run.
    pub arrays: Vec<Arc<Array>>,
    /// Names of those that are members of others: not for clients, whether the other one runs or not.
    pub below: HashSet<String>,
    /// Names of the members of arrays that could not be started.
    pub waiting: Vec<String>,
    /// A sentence for each array that could not be started.
    pub refused: Vec<String>,
}

/// Starts the arrays in order. One that cannot be started is named, and keeps no other from it, unless [`How::strict`].
///
/// # Errors
/// With [`How::strict`] the first that could not be started; those before it run. Else when a shard is gone.
pub fn start_all(
    remotes: &[Remote],
    starts: Vec<Start>,
    how: &How,
    begun: &mut Begun,
) -> Result<()> {
    for start in starts {
        for opener in &start.group.openers {
            for note in opener.notes() {
                output::note(format!("note: {note}"));
            }
        }
        let Start { group, .. } = &start;
        let (name, as_member) = (group.name.clone(), group.as_member.clone());
        how.scrubs.set_hours(group.uuid, start.settings.check_between);
        let spare_group = how.groups.get(&group.uuid).copied().or(start.settings.spare_group);
        how.spares.set_group(group.uuid, spare_group);
        let members: Vec<String> =
            group.openers.iter().map(|opener| opener.name().to_string()).collect();
        if as_member.is_some() {
            begun.below.insert(name.clone());
        }
        match start_one(remotes, start, how)? {
            Ok(array) => {
                if let Some(member) = as_member {
                    member.started(Arc::clone(&array) as Arc<dyn Target>);
                }
                begun.arrays.push(array);
            }
            Err(error) if how.strict => return Err(error),
            Err(error) => {
                let why = format!("array {name} is not started: {}", output::said(&error));
                output::note(format!("braid: {why}"));
                begun.refused.push(why);
                begun.waiting.extend(members);
            }
        }
    }
    Ok(())
}

fn start_one(remotes: &[Remote], start: Start, how: &How) -> Result<Result<Arc<Array>>> {
    let uuid = start.group.uuid;
    let options = match leased(how.lease.as_deref(), (&uuid, &start.group.name), start.options()) {
        Ok(options) => options,
        Err(held) => return Ok(Err(held.into())),
    };
    let options = AssembleOptions {
        force: how.force,
        take_stale: how.force,
        // As for mdadm, force says more than run does.
        start_degraded: how.run || how.force || start.group.is_as_it_was_left(),
        ..options
    };
    let (remotes, openers) = (remotes.to_vec(), start.group.openers);
    let home = remotes.first().context("at least one shard was started")?.clone();
    let started = on_shard::run(&home, move |shard| async move {
        assemble(&on_shard::context(&shard, &remotes), openers, options).await
    })?;
    if let (Err(_), Some(lease)) = (&started, &how.lease) {
        lease.give_up(&uuid);
    }
    Ok(started.map_err(Into::into))
}

/// `options` for an array that is this server's by its lease, where there is one.
///
/// # Errors
/// It is another's.
pub(super) fn leased(
    lease: Option<&Session>,
    (uuid, name): (&[u8; 16], &str),
    options: AssembleOptions,
) -> Result<AssembleOptions, NotTaken> {
    let Some(lease) = lease else { return Ok(options) };
    let Taken { token, owner, ended } = lease.take(uuid, name)?;
    tracing::info!("array {name}: lease {} of {}, token {token}", lease.number(), lease.place());
    Ok(AssembleOptions { owner: Some(owner), ended, ..options })
}

/// Names what cannot be used.
pub fn say(troubles: &[Trouble], goes_on: bool) {
    let then = if goes_on { "; the server goes on looking for it" } else { "" };
    for Trouble { why, .. } in troubles {
        output::note(format!("braid: {why}{then}"));
    }
}

/// Those of `members` that have one of `names`.
pub fn named(members: &[Member], names: &[String]) -> Vec<Member> {
    members.iter().filter(|member| names.contains(&member.name)).cloned().collect()
}
