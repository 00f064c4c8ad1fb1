//! What an assembly would come to, without one: who would take part, who would not and why, and what has to be said for it to
//! start. Writes nothing, and starts nothing.

use crate::assemble::rescue::span;
use crate::assemble::{examine_all, prepare};
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::options::{AssembleOptions, Context};
use crate::state::apart::utc;
use braid_device::Opener;
use braid_format::superblock::{Role, time_seconds};
use braid_layout::{Level, Slot};
use std::sync::Arc;

/// The outlook of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Its name and UUID.
    pub title: String,
    /// Its level, where it is one.
    pub level: Option<Level>,
    /// Number of its slots.
    pub raid_disks: usize,
    /// The freshest superblock says that all writes had ended.
    pub clean: bool,
    /// Updates that the freshest superblock has seen.
    pub events: u64,
    /// When it was written, in seconds since 1970.
    pub updated: u64,
    /// The members that were given.
    pub members: Vec<Prospect>,
    /// Slots that no member would hold.
    pub missing: Vec<Slot>,
    /// Why it does not start by itself; `None`: it does.
    pub problem: Option<String>,
    /// It would start by force.
    pub by_force: bool,
}

/// One member's part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Its name, as it was opened.
    pub name: String,
    /// The slot that its superblock names.
    pub slot: Option<Slot>,
    /// Updates that its superblock has seen, and by how many it is behind the freshest.
    pub events: u64,
    /// By how many updates it is behind the freshest.
    pub behind: u64,
    /// When it was last written, in seconds since 1970.
    pub updated: u64,
    /// It would take part as this: `up to date`, `rebuilding`, `spare`, `taken by force`; else why it would not.
    pub part: String,
    /// Only by force.
    pub by_force: bool,
}

impl Prospect {
    /// By how much it is older than the freshest, written at `freshest`, as people say it.
    pub fn age(&self, freshest: u64) -> String {
        span(freshest.saturating_sub(self.updated))
    }

    /// When it was last written, in UTC.
    pub fn last_written(&self) -> String {
        utc(self.updated)
    }
}

/// Looks at the array whose members `openers` are; `start_degraded`: also members that were there when it was last written may
/// be missing.
///
/// # Errors
/// Members that cannot be read, or do not belong together.
pub async fn outlook(
    ctx: &Context,
    openers: Vec<Arc<dyn Opener>>,
    start_degraded: bool,
) -> Result<Outlook, AssembleError> {
    let found = examine_all(ctx, openers.clone()).await?;
    let holds = |role: Role| matches!(role, Role::Slot(_) | Role::Journal);
    let freshest = found
        .iter()
        .map(|found| &found.superblock)
        .max_by_key(|superblock| (holds(superblock.own_role()), superblock.events));
    let Some(freshest) = freshest.cloned() else { return Err(AssembleError::NoMember) };
    let options = AssembleOptions { start_degraded, ..AssembleOptions::default() };
    let plain = prepare(ctx, openers.clone(), &options).await;
    let options =
        AssembleOptions { force: true, take_stale: true, start_degraded: true, ..options };
    let forced = prepare(ctx, openers, &options).await;
    let mut members: Vec<Prospect> = found
        .iter()
        .map(|found| {
            let own = &found.superblock;
            Prospect {
                name: found.name.clone(),
                slot: own.own_role().slot().map(Slot::from),
                events: own.events,
                behind: freshest.events.saturating_sub(own.events),
                updated: time_seconds(own.utime),
                part: "not used".to_string(),
                by_force: false,
            }
        })
        .collect();
    let raid_disks = freshest.raid_disks as usize;
    let mut missing: Vec<Slot> = (0..raid_disks).collect();
    if let Ok(prepared) = plain.as_ref().or(forced.as_ref()) {
        for chosen in &prepared.choice.members {
            let Some(member) = members.iter_mut().find(|m| m.name == chosen.found.name) else {
                continue;
            };
            member.by_force = prepared.taken.iter().any(|(name, _)| *name == member.name);
            member.part = match &chosen.standing {
                Standing::InSync(_) if member.by_force => "taken by force",
                Standing::InSync(_) => "up to date",
                Standing::Rebuilding { .. } => "rebuilding",
                Standing::Replacing { .. } => "being filled to replace another",
                Standing::Spare => "spare",
                Standing::Journal => "journal",
                Standing::Faulty(why) => why,
            }
            .to_string();
            missing.retain(|slot| chosen.standing.slot() != Some(*slot));
        }
        for line in &prepared.choice.left_out {
            let with = members.iter_mut().find(|m| line.starts_with(&format!("{}: ", m.name)));
            if let Some(member) = with {
                member.part = line[member.name.len() + 2..].to_string();
            }
        }
    }
    Ok(Outlook {
        title: crate::assemble::choose::title(&freshest),
        level: Level::from_md(freshest.level),
        raid_disks,
        clean: freshest.is_clean(),
        events: freshest.events,
        updated: time_seconds(freshest.utime),
        members,
        missing,
        by_force: plain.is_err() && forced.is_ok(),
        problem: plain.err().map(|error| error.to_string()),
    })
}
