//! What the members' images say, read without the engine: superblocks, and whom md would choose.

use crate::member::Member;
use crate::world::World;
use braid_format::badblocks;
use braid_format::superblock::{READ_LEN, Role, Superblock, location};
use braid_layout::{Layout, Level, Place, Spec};
use std::ops::Range;
use std::rc::Rc;

/// The superblock on a member, if it has one that can be used: one that says that there are bad blocks needs the list of
/// them, as for md (`md.c`: super_1_load).
pub fn superblock(world: &World, member: &Member) -> Option<Superblock> {
    superblock_alone(world, member).filter(|sb| !member.damaged.get() || list_is_there(member, sb))
}

/// [`superblock`], whatever has become of a list of bad blocks.
pub fn superblock_alone(world: &World, member: &Member) -> Option<Superblock> {
    let place = superblock_place(world, member)?;
    let sectors = member.kind.info.size / 512;
    let bytes = member.readable_image(place.clone());
    Superblock::parse(&bytes, world.metadata, place.start / 512, sectors).ok()
}

/// The bytes of a member that are read for its superblock.
pub fn superblock_place(world: &World, member: &Member) -> Option<Range<u64>> {
    let size = member.kind.info.size;
    let start = location(world.metadata, size / 512)? * 512;
    Some(start..(start + READ_LEN as u64).min(size))
}

fn list_is_there(member: &Member, sb: &Superblock) -> bool {
    let Some(at) = sb.bblog_sector().filter(|_| sb.bad_blocks).map(|sector| sector * 512) else {
        return true;
    };
    let list = at..at + u64::from(sb.bblog_size) * 512;
    !member.cannot_read(&list) && badblocks::parse(&member.image(list), sb.bblog_shift).is_ok()
}

/// By its superblock, and those of `others`, this member holds a slot.
pub fn takes_part(world: &World, others: &[Rc<Member>], member: &Rc<Member>) -> bool {
    let all = others.iter().chain([member]);
    let found: Vec<_> = all
        .filter_map(|member| Some((Rc::clone(member), superblock_alone(world, member)?)))
        .collect();
    choose(&found).is_some_and(|choice| {
        let held = choice.in_sync.iter().map(|(_, holder)| holder);
        let mut holders = held.chain(choice.rebuilding.iter().map(|(_, holder, _)| holder));
        holders.any(|holder| Rc::ptr_eq(holder, member))
    })
}

/// What the bad-block log on a member lists, in component bytes.
pub fn recorded_bad(world: &World, member: &Member) -> Vec<Range<u64>> {
    let Some(sb) = superblock(world, member) else { return Vec::new() };
    bad_of(world, member.name(), &sb, |bytes| member.image(bytes))
}

/// [`recorded_bad`] of anything that has a superblock and bytes.
pub fn bad_of(
    world: &World,
    name: &str,
    sb: &Superblock,
    image: impl Fn(Range<u64>) -> Vec<u8>,
) -> Vec<Range<u64>> {
    let Some(at) = sb.bblog_sector().filter(|_| sb.bad_blocks).map(|sector| sector * 512) else {
        return Vec::new();
    };
    let log = image(at..at + u64::from(sb.bblog_size) * 512);
    let bytes = |sector: u64| sector.saturating_sub(sb.data_offset) * 512;
    match badblocks::parse(&log, sb.bblog_shift) {
        Ok(list) => list.iter().map(|range| bytes(range.start)..bytes(range.end)).collect(),
        Err(error) => {
            world.fail("md_can_assemble", format!("{name}: {error}"));
            Vec::new()
        }
    }
}

/// The geometry that superblocks (of all slots, for levels 0 and linear) describe.
pub fn layout(superblocks: &[Superblock]) -> Option<Layout> {
    let first = superblocks.first()?;
    let disks = first.raid_disks as usize;
    let size_of = |slot: usize| {
        let holder = superblocks.iter().find(|sb| sb.own_role() == Role::Slot(slot as u16));
        holder.map(|sb| sb.data_size * 512)
    };
    Layout::new(&Spec {
        level: Level::from_md(first.level)?,
        layout: first.layout,
        chunk_size: u64::from(first.chunk_sectors) * 512,
        raid_disks: disks,
        component_size: first.size * 512,
        member_sizes: (0..disks).map_while(size_of).collect(),
    })
    .ok()
}

/// Whom md would start an array with: members, or arrays of a stack.
#[derive(Clone)]
pub struct Choice<T> {
    /// The freshest superblock.
    pub freshest: Superblock,
    /// Members that count as in sync, with their slots.
    pub in_sync: Vec<(usize, T)>,
    /// Members that count as being rebuilt, with their slots and the component bytes that are valid.
    pub rebuilding: Vec<(usize, T, u64)>,
}

/// Whom md would start an array of simulated members with.
pub type MdChoice = Choice<Rc<Member>>;

/// [`choose`], from what is on members.
pub fn md_choice(world: &World, members: &[Rc<Member>]) -> Option<MdChoice> {
    // The journal's superblock may be the freshest.
    let journal = world.journal.borrow();
    let found: Vec<(Rc<Member>, Superblock)> = members
        .iter()
        .chain(journal.iter().filter(|journal| !journal.is_gone()))
        .filter_map(|member| Some((Rc::clone(member), superblock(world, member)?)))
        .collect();
    choose(&found)
}

/// What md makes of the members' superblocks: the highest event count is the freshest, one less counts
/// as the same (the last update may have reached some members only), and the freshest superblock's
/// table says what each member is (`md.c`: super_1_validate; mdadm: Assemble.c).
pub fn choose<T: Clone>(found: &[(T, Superblock)]) -> Option<Choice<T>> {
    let freshest = found.iter().map(|(_, sb)| sb).max_by_key(|sb| sb.events)?.clone();
    let (mut in_sync, mut rebuilding) = (Vec::new(), Vec::new());
    for (member, sb) in found {
        // A spare of old whose number has been given away is refused: the number is taken.
        let twin = found
            .iter()
            .any(|(_, other)| other.dev_number == sb.dev_number && other.events > sb.events);
        if sb.events + 1 < freshest.events || twin {
            continue;
        }
        let member = member.clone();
        if let Role::Slot(slot) = freshest.role_of(sb.dev_number) {
            let slot = usize::from(slot);
            // A replacement that is whole holds its slot once the member that it replaces is faulty.
            let serves = |other: &Superblock| {
                other.dev_number != sb.dev_number
                    && !other.replacement
                    && other.recovery_offset.is_none()
                    && other.events + 1 >= freshest.events
                    && freshest.role_of(other.dev_number) == Role::Slot(slot as u16)
            };
            let waits = sb.replacement && found.iter().any(|(_, other)| serves(other));
            match sb.recovery_offset {
                None if waits => rebuilding.push((slot, member, u64::MAX)),
                None => in_sync.push((slot, member)),
                Some(sectors) => rebuilding.push((slot, member, sectors * 512)),
            }
        }
    }
    Some(Choice { freshest, in_sync, rebuilding })
}

/// Where array byte `offset` is kept as it is, in any number of copies (parity is left out).
pub fn places(layout: &Layout, offset: u64) -> Vec<Place> {
    match layout {
        Layout::Mirror(mirror) => (0..mirror.slots()).map(|slot| Place { slot, offset }).collect(),
        Layout::Parity(parity) => {
            let (stripe, k, within) = parity.locate(offset);
            let slot = parity.data_slot(stripe, k);
            vec![Place { slot, offset: parity.member_offset(stripe) + within }]
        }
        Layout::Raid10(raid10) => {
            let (chunk, within) = raid10.locate(offset);
            let copies = (0..raid10.copy_count()).map(|copy| raid10.copy(chunk, copy));
            copies.map(|place| Place { offset: place.offset + within, ..place }).collect()
        }
        Layout::Striped(striped) => vec![striped.map(offset).0],
        Layout::Linear(linear) => vec![linear.map(offset).0],
    }
}

/// The array bytes of the unit that component byte `offset` of `slot` belongs to.
pub fn unit_range(layout: &Layout, slot: Option<usize>, offset: u64) -> Option<(u64, u64)> {
    match layout {
        Layout::Parity(parity) => {
            let stripe = offset / parity.chunk_size();
            Some((stripe * parity.stripe_size(), (stripe + 1) * parity.stripe_size()))
        }
        Layout::Mirror(_) => Some((offset, offset + 1)),
        Layout::Raid10(raid10) => {
            let start = raid10.logical(slot?, offset)? / raid10.chunk_size() * raid10.chunk_size();
            Some((start, start + raid10.chunk_size()))
        }
        Layout::Striped(_) | Layout::Linear(_) => None,
    }
}
