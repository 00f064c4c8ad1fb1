//! Members that the array went on without, taken all the same: the last resort of an array that cannot start otherwise.
//!
//! As `mdadm --assemble --force` does (mdadm: Assemble.c, force_array) the newest are taken first, and none once the level
//! can do with those that are there; with a member of parity levels come those of the same update, which are as good. Of
//! levels with copies those that bring nothing which the others lack stay out: what they have is older than what is there.
//!
//! Nobody is taken while the array is being reshaped: which of what is on them has been moved since nobody can say.
//! Never taken is one whose own superblock says that it is not whole, that takes the freshest for lost, that was another
//! slot's by then, or whose place in the role table was given to another. Writes nothing.
//!
//! Invariant: nobody is taken unless the level needs it and is then survived.

use crate::assemble::choose::{Choice, Chosen, Stale, older_by};
use crate::control::record::members::Standing;
use crate::state::apart::utc;
use braid_format::superblock::{Superblock, time_seconds};
use braid_layout::{Layout, Level, Slot};
use braid_shard::plant::planted;

/// Takes the stale members that are needed, and says which: a line each. None when they are not needed, or not enough.
pub(crate) fn take(choice: &mut Choice, level: Level, layout: Option<&Layout>) -> Vec<String> {
    let taken = needed(choice, level, layout);
    let lines =
        taken.iter().filter_map(|at| choice.stale.get(*at)).map(|one| line(&choice.shared, one));
    let lines = lines.collect();
    let mut left = Vec::new();
    for (at, stale) in std::mem::take(&mut choice.stale).into_iter().enumerate() {
        let Stale { found, slot, .. } = stale;
        match taken.contains(&at) {
            true => choice.members.push(Chosen { found, standing: Standing::InSync(slot) }),
            false => left.push(Stale { found, slot, line: stale.line }),
        }
    }
    choice.stale = left;
    lines
}

/// The stale members that [`take`] would take: a line each.
pub(crate) fn offer(choice: &Choice, level: Level, layout: Option<&Layout>) -> Vec<String> {
    let taken = needed(choice, level, layout);
    taken
        .iter()
        .filter_map(|at| choice.stale.get(*at))
        .map(|one| line(&choice.shared, one))
        .collect()
}

/// `b: slot 1, 3 updates older than the freshest, last written 2026-11-22 20:33:53 UTC (5 s before it)`.
fn line(shared: &Superblock, stale: &Stale) -> String {
    let own = &stale.found.superblock;
    let behind = shared.events.saturating_sub(own.events);
    let (now, then) = (time_seconds(shared.utime), time_seconds(own.utime));
    format!(
        "{}: slot {}, {} than the freshest, last written {} ({} before it)",
        stale.found.name,
        stale.slot,
        older_by(behind),
        utc(then),
        span(now.saturating_sub(then))
    )
}

/// A span in seconds, as people say it.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Which of the stale members are needed, by their place in the list.
fn needed(choice: &Choice, level: Level, layout: Option<&Layout>) -> Vec<usize> {
    let fresh: Vec<Slot> = choice
        .members
        .iter()
        .filter_map(|chosen| match chosen.standing {
            Standing::InSync(slot) => Some(slot),
            _ => None,
        })
        .collect();
    let slots = choice.shared.raid_disks as usize;
    let slot_of = |at: &usize| choice.stale.get(*at).map(|one| one.slot);
    let enough = |taken: &[usize]| {
        let holds =
            |slot: Slot| fresh.contains(&slot) || taken.iter().any(|at| slot_of(at) == Some(slot));
        match layout.filter(|_| level.has_redundancy()) {
            Some(layout) => layout.survives(holds),
            None => !level.has_redundancy() && (0..slots).all(holds),
        }
    };
    if enough(&[]) || choice.shared.reshape.is_some() {
        return Vec::new();
    }
    let mut taken: Vec<usize> = Vec::new();
    let mut vintage = None;
    for at in candidates(choice) {
        let events = choice.stale[at].found.superblock.events;
        let as_good = level.is_parity() && vintage == Some(events);
        if taken.iter().any(|known| slot_of(known) == slot_of(&at)) || (enough(&taken) && !as_good)
        {
            continue;
        }
        vintage = Some(events);
        taken.push(at);
    }
    if !enough(&taken) {
        return Vec::new();
    }
    if !level.is_parity() {
        // The oldest first.
        for at in taken.clone().into_iter().rev() {
            let without: Vec<usize> = taken.iter().copied().filter(|other| *other != at).collect();
            if enough(&without) {
                taken = without;
            }
        }
    }
    taken
}

/// The stale members whose slot and number are free, the newest first.
fn candidates(choice: &Choice) -> Vec<usize> {
    let is_free = |one: &Stale| {
        let number = one.found.superblock.dev_number;
        !choice.members.iter().any(|chosen| {
            chosen.standing.slot() == Some(one.slot) || chosen.found.superblock.dev_number == number
        })
    };
    let all = choice.stale.iter().enumerate();
    let mut free: Vec<usize> = all.filter(|(_, one)| is_free(one)).map(|(at, _)| at).collect();
    free.sort_by_key(|at| std::cmp::Reverse(choice.stale[*at].found.superblock.events));
    if planted("oldest-first") {
        free.reverse();
    }
    free
}
