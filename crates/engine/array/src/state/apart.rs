//! Halves of one array that ran apart: each was written while it took the other for lost. Event counts do not say whose
//! data counts then, and which half is to be kept is for the user to say.
//!
//! The evidence is in the role tables. A member that failed, or was away, while the array went on knows of no loss: it
//! is stale, and nothing of it is lost. Two that each list the other as lost, and no member in common, have both gone on
//! without the other, or one is left from before all members that it knew were replaced: the tables look the same
//! then, and whoever can look at the data has to say.

use braid_format::superblock::{Role, Superblock, Version, time_seconds};
use braid_layout::Level;
use std::fmt;

/// A member of one of the sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideMember {
    /// Its name, as it was opened.
    pub name: String,
    /// Its slot.
    pub slot: u16,
    /// Updates that its superblock has seen.
    pub events: u64,
    /// Time of the last one, in seconds since 1970.
    pub updated: u64,
}

/// `a (slot 0, 12 updates, the last 2026-11-22 20:33:53 UTC)`.
impl fmt::Display for SideMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SideMember { name, slot, events, updated } = self;
        write!(f, "{name} (slot {slot}, {events} updates, the last {})", utc(*updated))
    }
}

/// The members of each side that ran apart, the side with the most updates first. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The array's name as a command takes it.
    pub array: String,
    /// The sides.
    pub sides: Vec<Vec<SideMember>>,
}

/// A line for each side, and one with the commands that keep it.
impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |side: &[SideMember]| {
            side.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        for (nr, side) in self.sides.iter().enumerate() {
            let members: Vec<String> = side.iter().map(SideMember::to_string).collect();
            write!(f, "\n  side {}: {}", nr + 1, members.join(", "))?;
        }
        for (nr, side) in self.sides.iter().enumerate() {
            write!(f, "\n  to keep side {}: braid serve {}", nr + 1, names(side))?;
            let others = self.sides.iter().enumerate().filter(|(other, _)| *other != nr);
            for member in others.flat_map(|(_, other)| other) {
                write!(f, "; braid add {} {} --force", self.array, member.name)?;
            }
        }
        Ok(())
    }
}

/// A member and its superblock.
pub(crate) struct Named<'a> {
    /// Its name, as it was opened.
    pub(crate) name: &'a str,
    pub(crate) superblock: &'a Superblock,
}

/// Both were written while they took each other for lost.
pub(crate) fn ran_apart(one: &Superblock, other: &Superblock) -> bool {
    if slots_have_other_numbers(one, other) {
        // Who is in a table says something all the same.
        let holds = |table: &Superblock, member: &Superblock| {
            let own = |(number, _)| number == member.dev_number;
            member.own_role().slot().is_none() || holders(table).any(own)
        };
        return one.set_uuid == other.set_uuid && !holds(one, other) && !holds(other, one);
    }
    one.set_uuid == other.set_uuid
        && !lists(one, other)
        && !lists(other, one)
        && went_on_without(one, other)
        && went_on_without(other, one)
        && !shares_a_member(one, other)
}

/// The level was changed between the two, and slots were given other numbers by that.
fn slots_have_other_numbers(one: &Superblock, other: &Superblock) -> bool {
    let levels = [one, other].map(|superblock| Level::from_md(superblock.level));
    matches!(
        levels,
        [Some(Level::Raid0), Some(Level::Raid10)] | [Some(Level::Raid10), Some(Level::Raid0)]
    )
}

/// The table has `member` in the slot that `member` says it holds.
fn lists(table: &Superblock, member: &Superblock) -> bool {
    let slot = member.own_role().slot();
    slot.is_none() || table.role_of(member.dev_number).slot() == slot
}

/// The numbers and slots of the members that hold one.
fn holders(table: &Superblock) -> impl Iterator<Item = (u32, u16)> {
    (0u32..table.roles.len() as u32)
        .filter_map(|number| table.role_of(number).slot().map(|slot| (number, slot)))
}

/// The table has lost a slot that the others hold, or given the slot of `member` to one that came later. A member that
/// left before has not: it lists all that were there in its time.
fn went_on_without(table: &Superblock, member: &Superblock) -> bool {
    let holder = |slot: u16| holders(table).find(|(_, held)| *held == slot);
    let lost = holders(member).any(|(_, slot)| holder(slot).is_none());
    // Members of a new array are numbered by their slots, and those that are added from the number of slots on.
    let first = |number: u32| number < table.raid_disks;
    let replaced = table.version != Version::V0_90
        && first(member.dev_number)
        && member.own_role().slot().and_then(holder).is_some_and(|(number, _)| !first(number));
    lost || replaced
}

/// One member holds the same slot by both: then what one of them says went on in the other.
fn shares_a_member(one: &Superblock, other: &Superblock) -> bool {
    holders(one).any(|(number, slot)| other.role_of(number) == Role::Slot(slot))
}

/// The sides, when members ran apart from the freshest.
pub(crate) fn sides(found: &[Named<'_>], freshest: &Superblock) -> Option<Sides> {
    let holds = |found: &&Named<'_>| found.superblock.own_role().slot().is_some();
    if !found.iter().filter(holds).any(|found| ran_apart(freshest, found.superblock)) {
        return None;
    }
    let mut left: Vec<&Named<'_>> = found.iter().filter(holds).collect();
    let mut sides = Vec::new();
    // Each round takes at least its own reference away.
    while let Some(reference) = left.iter().map(|found| found.superblock).reduce(newer) {
        let reference = reference.clone();
        let (side, others): (Vec<&Named<'_>>, Vec<&Named<'_>>) =
            left.into_iter().partition(|found| lists(&reference, found.superblock));
        // A member that was away from all sides is of none of them.
        left = others.into_iter().filter(|found| ran_apart(&reference, found.superblock)).collect();
        sides.push(side.into_iter().map(side_member).collect());
    }
    let short = String::from_utf8_lossy(freshest.set_name.short()).into_owned();
    let array = if short.is_empty() || short.contains(char::is_control) {
        braid_format::uuid_text::format(&freshest.set_uuid)
    } else {
        short
    };
    Some(Sides { array, sides })
}

fn newer<'a>(one: &'a Superblock, other: &'a Superblock) -> &'a Superblock {
    if other.events > one.events { other } else { one }
}

fn side_member(found: &Named<'_>) -> SideMember {
    let superblock = found.superblock;
    SideMember {
        name: found.name.to_string(),
        slot: superblock.own_role().slot().unwrap_or(0),
        events: superblock.events,
        updated: time_seconds(superblock.utime),
    }
}

/// A time in seconds since 1970 as people read it, in UTC: the engine knows no time zone.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have the leap day at their end. 400 of them are 146,097 days; 719,468 days lie between
    // 1 March of the year 0 and 1 January 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        let shown = [0, 951_782_400, 951_868_799, 1_700_000_000, 4_107_542_399].map(utc);
        let expected = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-29 00:00:00 UTC",
            "2000-02-29 23:59:59 UTC",
            "2023-11-14 22:13:20 UTC",
            "2100-02-28 23:59:59 UTC",
        ];
        assert_eq!(shown, expected);
    }

    /// A superblock of a mirror: `own` is its number, `slots` who holds each slot.
    fn mirror(own: u32, slots: &[Option<u32>]) -> Superblock {
        let mut roles = vec![Role::Spare; 16];
        for (slot, number) in slots.iter().enumerate() {
            if let Some(number) = number {
                roles[*number as usize] = Role::Slot(slot as u16);
            }
        }
        Superblock {
            level: 1,
            raid_disks: slots.len() as u32,
            dev_number: own,
            roles,
            ..Superblock::empty(Version::V1_2)
        }
    }

    #[test]
    fn halves_that_lost_each_other_ran_apart() {
        let cases = [
            (mirror(0, &[Some(0), None]), mirror(1, &[None, Some(1)])),
            (mirror(0, &[Some(0), None, None]), mirror(2, &[None, Some(1), Some(2)])),
            // One or both have been given another member since.
            (mirror(0, &[Some(0), Some(2)]), mirror(1, &[None, Some(1)])),
            (mirror(0, &[Some(0), None]), mirror(1, &[Some(2), Some(1)])),
            (mirror(0, &[Some(0), Some(2)]), mirror(1, &[Some(2), Some(1)])),
        ];
        for (one, other) in cases {
            assert!(ran_apart(&one, &other) && ran_apart(&other, &one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_the_array_went_on_without_is_stale_and_no_half() {
        let cases = [
            // It failed, was replaced, and all others were too in the end.
            (mirror(0, &[Some(0), None]), mirror(1, &[Some(0), Some(1)])),
            (mirror(0, &[Some(0), Some(2)]), mirror(1, &[Some(0), Some(1)])),
            (mirror(3, &[Some(3), Some(2)]), mirror(1, &[Some(0), Some(1)])),
            (mirror(3, &[Some(3), None]), mirror(1, &[Some(0), Some(1)])),
            // 0 failed; 1 failed while 2 went on; 0 came back.
            (mirror(0, &[Some(0), None, Some(2)]), mirror(1, &[None, Some(1), Some(2)])),
            // In step.
            (mirror(0, &[Some(0), Some(1)]), mirror(1, &[Some(0), Some(1)])),
            // Only one side recorded a loss, and still lists the other elsewhere.
            (mirror(0, &[Some(0), Some(1)]), mirror(1, &[None, Some(1)])),
        ];
        for (one, other) in cases {
            assert!(!ran_apart(&one, &other) && !ran_apart(&other, &one), "{one:?} {other:?}");
        }
    }
}
