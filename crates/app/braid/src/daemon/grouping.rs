//! Which of the members given make which array, and what each array is exported as.
//!
//! Owns the sorting by UUID and the choice of names. Whether an array can run with its members is
//! decided when it is assembled.

use crate::discover;
use crate::members::Member;
use crate::on_shard;
use crate::source::Source;
use anyhow::{Context, Result};
use braid_array::metadata::superblock::Examined;
use braid_array::stacking::ArrayMember;
use braid_device::Opener;
use braid_device::file::Mode;
use braid_format::signature::refuse_container;
use braid_format::superblock::{Name, Superblock, Version};
use braid_format::uuid_text;
use braid_shard::mailbox::Remote;
use std::collections::HashMap;
use std::sync::Arc;

/// The members of one array.
pub struct Group {
    /// The array's UUID.
    pub uuid: [u8; 16],
    /// The name to export it under.
    pub name: String,
    /// The name in its superblocks.
    recorded: Name,
    /// Its members, opened.
    pub openers: Vec<Arc<dyn Opener>>,
    /// The largest logical block of its members, in bytes.
    pub logical_block: u32,
    superblocks: Vec<Superblock>,
    /// What the group above knows it as, when it is itself a member of one.
    pub as_member: Option<Arc<ArrayMember>>,
}

impl Group {
    /// The members of an array that was just created, exported as `name`.
    pub fn new(uuid: [u8; 16], name: String, openers: Vec<Arc<dyn Opener>>) -> Group {
        let (recorded, superblocks) = (Name::default(), Vec::new());
        Group { uuid, name, recorded, openers, logical_block: 0, superblocks, as_member: None }
    }

    /// The name in its superblocks.
    pub fn recorded(&self) -> Name {
        self.recorded
    }

    /// The superblocks of its members, in the order in which they were given.
    pub fn superblocks(&self) -> &[Superblock] {
        &self.superblocks
    }

    /// Every member is here that the freshest superblock says holds a slot: what is missing then was
    /// missing when the array was last written.
    pub fn is_as_it_was_left(&self) -> bool {
        let Some(freshest) = self.superblocks.iter().max_by_key(|superblock| superblock.events)
        else {
            return true;
        };
        let given =
            |number: u32| self.superblocks.iter().any(|superblock| superblock.dev_number == number);
        (0u32..)
            .zip(&freshest.roles)
            .all(|(number, _)| freshest.role_of(number).slot().is_none() || given(number))
    }
}

/// A member that cannot be used.
#[derive(Clone)]
pub struct Trouble {
    /// The member.
    pub member: Member,
    /// Why not, with its name.
    pub why: String,
}

/// Opens the members, reads their superblocks and sorts them, in the order in which arrays appear. Beside them those that
/// cannot be opened or read, are no members at all, or have damaged superblocks.
pub fn group(home: &Remote, members: &[Member]) -> (Vec<Group>, Vec<Trouble>) {
    let (mut groups, mut troubles) = (Vec::new(), Vec::new());
    for member in members {
        match usable(home, member) {
            Ok((opener, superblock, block)) => enter(&mut groups, opener, superblock, block),
            Err(error) => {
                troubles.push(Trouble { member: member.clone(), why: crate::output::said(&error) });
            }
        }
    }
    (groups, troubles)
}

/// A member that can be written to, its superblock and its logical block.
fn usable(home: &Remote, member: &Member) -> Result<(Arc<dyn Opener>, Superblock, u32)> {
    let (opener, examined) = open(home, member, Mode::ReadWrite)?;
    // A container's disk may also have an md superblock that was left over: writing would ruin one of the two.
    let signatures = match member.path() {
        Some(path) => discover::examine(path)?.signatures,
        None if member.is_remote() => {
            discover::look_opened(home, &member.name, &opener)?.signatures
        }
        None => Vec::new(),
    };
    refuse_container(&signatures).with_context(|| member.name.clone())?;
    let superblock = examined.superblock.with_context(|| {
        format!(
            "{}: no md superblock, so it is no member of an array; leave it out, or `braid create` an array on it \
             first",
            member.name
        )
    })?;
    Ok((opener, superblock, examined.device.logical_block))
}

/// The same for members of which nothing is written: what is no member, or cannot be used, is passed over, and a
/// member that is there twice (the member and a copy of it) is taken once. With a note for each.
///
/// # Errors
/// When the shard is gone.
pub fn group_what_is_there(home: &Remote, members: &[Member]) -> Result<(Vec<Group>, Vec<String>)> {
    let (mut groups, mut notes) = (Vec::<Group>::new(), Vec::new());
    for member in members {
        match open(home, member, Mode::ReadOnly) {
            Ok((opener, Examined { superblock: Some(superblock), device, .. })) => {
                match twin(&mut groups, &superblock) {
                    None => enter(&mut groups, opener, superblock, device.logical_block),
                    Some((known, known_superblock)) => {
                        let older = known_superblock.events < superblock.events;
                        let name = member.name.clone();
                        let (used, left) = match older {
                            true => (name, known.name().to_string()),
                            false => (known.name().to_string(), name),
                        };
                        notes.push(format!("{left} is a copy of {used} and is not used"));
                        if older {
                            (*known, *known_superblock) = (opener, superblock);
                        }
                    }
                }
            }
            Ok(_) => notes.push(format!("{}: {}", member.name, no_member(home, member))),
            Err(error) => notes
                .push(format!("{error}; it is passed over", error = crate::output::said(&error))),
        }
    }
    Ok((groups, notes))
}

fn open(home: &Remote, member: &Member, mode: Mode) -> Result<(Arc<dyn Opener>, Examined)> {
    let opener = member.prepare(mode)?;
    let examined = on_shard::examine(home, &opener)?;
    Ok((opener, examined))
}

/// The member among those known that this superblock was read from too.
fn twin<'a>(
    groups: &'a mut [Group],
    superblock: &Superblock,
) -> Option<(&'a mut Arc<dyn Opener>, &'a mut Superblock)> {
    let group = groups.iter_mut().find(|group| group.uuid == superblock.set_uuid)?;
    // Members of 0.90 have no uuid, and one that was replaced has the number of its successor.
    let same = |known: &Superblock| match superblock.version {
        Version::V0_90 => known.is_twin_of(superblock),
        _ => known.device_uuid == superblock.device_uuid,
    };
    let at = group.superblocks.iter().position(same)?;
    Some((group.openers.get_mut(at)?, group.superblocks.get_mut(at)?))
}

pub(super) fn enter(
    groups: &mut Vec<Group>,
    opener: Arc<dyn Opener>,
    superblock: Superblock,
    block: u32,
) {
    match groups.iter_mut().find(|group| group.uuid == superblock.set_uuid) {
        Some(group) => {
            group.logical_block = group.logical_block.max(block);
            group.openers.push(opener);
            group.superblocks.push(superblock);
        }
        None => groups.push(Group {
            uuid: superblock.set_uuid,
            name: String::new(),
            recorded: superblock.set_name,
            openers: vec![opener],
            logical_block: block,
            superblocks: vec![superblock],
            as_member: None,
        }),
    }
}

/// Why a device without an md superblock is no member: what it holds instead, if that is known.
fn no_member(home: &Remote, member: &Member) -> String {
    let examined =
        Source::of(home, member).and_then(|source| discover::examine_source(&source, &member.name));
    let signatures = examined.map(|examined| examined.signatures).unwrap_or_default();
    match (refuse_container(&signatures), signatures.first()) {
        (Err(container), _) => container.to_string(),
        (Ok(()), Some(other)) => {
            format!("no member of an array, it has {}; passed over", other.what)
        }
        (Ok(()), None) => "no member of an array; passed over".to_string(),
    }
}

/// Chooses the names to export them under.
pub(super) fn name_all(groups: &mut [Group]) {
    let recorded: Vec<([u8; 16], Name)> =
        groups.iter().map(|group| (group.uuid, group.recorded)).collect();
    for (group, name) in groups.iter_mut().zip(export_names(&recorded)) {
        group.name = name;
    }
}

/// The short name where it is text and nobody else has it, else the full one, else the short one with
/// the beginning of the UUID.
fn export_names(recorded: &[([u8; 16], Name)]) -> Vec<String> {
    let short = |name: &Name| {
        let text = std::str::from_utf8(name.short()).ok()?;
        let plain = !text.is_empty() && !text.contains(char::is_control);
        plain.then(|| text.to_string())
    };
    let mut shorts: HashMap<String, usize> = HashMap::new();
    let mut fulls: HashMap<&[u8], usize> = HashMap::new();
    for (_, name) in recorded {
        *shorts.entry(short(name).unwrap_or_default()).or_default() += 1;
        *fulls.entry(name.bytes()).or_default() += 1;
    }
    let choose = |(uuid, name): &([u8; 16], Name)| {
        let uuid = uuid_text::format(uuid);
        let Some(short) = short(name) else { return uuid };
        if shorts.get(&short) == Some(&1) {
            return short;
        }
        match name.as_text() {
            Some(full) if fulls.get(name.bytes()) == Some(&1) => full.to_string(),
            _ => format!("{short}-{}", uuid.split(':').next().unwrap_or_default()),
        }
    };
    recorded.iter().map(choose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(recorded: &[&str]) -> Vec<String> {
        let arrays: Vec<_> = recorded
            .iter()
            .enumerate()
            .map(|(index, name)| ([index as u8; 16], Name::from_escaped(name).unwrap()))
            .collect();
        export_names(&arrays)
    }

    #[test]
    fn an_array_is_exported_under_its_short_name() {
        assert_eq!(names(&["host:data", "other"]), ["data", "other"]);
    }

    #[test]
    fn equal_names_are_told_apart() {
        assert_eq!(names(&["a:data", "b:data"]), ["a:data", "b:data"]);
        assert_eq!(names(&["a:data", "a:data"]), ["data-00000000", "data-01010101"]);
    }

    #[test]
    fn a_name_that_is_no_text_gives_way_to_the_uuid() {
        assert_eq!(names(&["\\xff", ""])[1], "01010101:01010101:01010101:01010101");
        assert_eq!(names(&["\\x1b[2J"])[0], "00000000:00000000:00000000:00000000");
    }
}
