//! Starting arrays of the members that are there: what can be started is, and what cannot is named with the reason.

use super::settings::Wanted;
use super::start::Start;
use crate::cli::Serve;
use crate::daemon::grouping::{Group, Trouble};
use crate::daemon::scrubs::Scrubs;
use crate::daemon::spares::Spares;
use crate::hosts::Guard;
use crate::members::Member;
use crate::on_shard;
use crate::output;
use crate::settings::Assignment;
use crate::settings::kept::Kept;
use crate::wanted::stack::StackPolicy;
use anyhow::{Context, Result};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::error::AssembleError;
use braid_array::options::AssembleOptions;
use braid_device::Target;
use braid_shard::mailbox::Remote;
use std::collections::HashSet;
use std::sync::Arc;

/// How arrays are started, at first and later.
#[derive(Clone)]
pub(super) struct How {
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
}

impl How {
    pub(super) fn new(
        options: &Serve,
        kept: Kept,
        (scrubs, spares): (Arc<Scrubs>, Arc<Spares>),
        (shards, memory_max): (u16, u64),
        guard: Guard,
    ) -> How {
        How {
            run: options.run,
            force: options.force,
            // A new array has all its members.
            strict: options.strict || options.create.is_some(),
            stack: options.stack,
            uuid: options.uuid.clone(),
            asked: options.asked(),
            kept,
            scrubs,
            spares,
            shards,
            memory_max,
            guard,
        }
    }

    pub(super) fn wanted(&self) -> Wanted<'_> {
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
    pub(super) fn starts(&self, groups: Vec<Group>) -> Result<Vec<Start>> {
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
pub(super) struct Begun {
    /// Those that run.
    pub arrays: Vec<Arc<Array>>,
    /// Names of those that are members of others: not for clients, whether the other one runs or not.
    pub below: HashSet<String>,
    /// Names of the members of arrays that could not be started.
    pub waiting: Vec<String>,
}

/// Starts the arrays in order. One that cannot be started is named, and keeps no other from it, unless [`How::strict`].
///
/// # Errors
/// With [`How::strict`] the first that could not be started; those before it run. Else when a shard is gone.
pub(super) fn start_all(
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
        how.spares.set_group(group.uuid, start.settings.spare_group);
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
            Err(error) if how.strict => return Err(error.into()),
            Err(error) => {
                output::note(format!("braid: array {name} is not started: {error}"));
                begun.waiting.extend(members);
            }
        }
    }
    Ok(())
}

fn start_one(
    remotes: &[Remote],
    start: Start,
    how: &How,
) -> Result<Result<Arc<Array>, AssembleError>> {
    let options = AssembleOptions {
        force: how.force,
        take_stale: how.force,
        start_degraded: how.run || start.group.is_as_it_was_left(),
        ..start.options()
    };
    let (remotes, openers) = (remotes.to_vec(), start.group.openers);
    let home = remotes.first().context("at least one shard was started")?.clone();
    on_shard::run(&home, move |shard| async move {
        assemble(&on_shard::context(&shard, &remotes), openers, options).await
    })
}

/// Names what cannot be used.
pub(super) fn say(troubles: &[Trouble], goes_on: bool) {
    let then = if goes_on { "; the server goes on looking for it" } else { "" };
    for Trouble { why, .. } in troubles {
        output::note(format!("braid: {why}{then}"));
    }
}

/// Those of `members` that have one of `names`.
pub(super) fn named(members: &[Member], names: &[String]) -> Vec<Member> {
    members.iter().filter(|member| names.contains(&member.name)).cloned().collect()
}
