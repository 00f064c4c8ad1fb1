//! **parity_matches_data**: after a clean stop, and all jobs done, the redundancy on the images is that of
//! the data on them: P and Q of every stripe, and all copies of every block (invariant 2).
//!
//! Computes with its own arithmetic ([`super::gf`]); takes only the places from `braid_layout`. Slots
//! without a whole member are left out, and with them the stripes where that leaves nothing to compare; so are
//! the rows, or copies, of blocks that are recorded as bad.

use super::gf::{add, add_power};
use crate::images::{MdChoice, recorded_bad};
use crate::world::World;
use braid_layout::{Layout, Parity, Raid10};
use std::ops::Range;

const NAME: &str = "parity_matches_data";

/// Looks at the images of the members that are in sync.
pub fn look(world: &World, layout: &Layout, choice: &MdChoice) {
    let mut components: Vec<Option<Vec<u8>>> = vec![None; layout.slots()];
    let mut bad = Vec::new();
    for (slot, member) in &choice.in_sync {
        let data = member.data.borrow().clone();
        components[*slot] = Some(member.image(data));
        bad.extend(recorded_bad(world, member).into_iter().map(|range| (*slot, range)));
    }
    let lost = world.lost_with_lies();
    bad.extend(lost.iter().flatten().cloned());
    compare(world, layout, components, &bad);
    if lost.is_some() && world.failure().is_some() {
        world.beside_lies.set(true);
    }
}

/// Compares what slots hold; `bad` is recorded as such, in component bytes of slots.
pub fn compare(
    world: &World,
    layout: &Layout,
    mut components: Vec<Option<Vec<u8>>>,
    bad: &[(usize, Range<u64>)],
) {
    for (slot, range) in bad {
        leave_out(layout, &mut components, *slot, range.clone());
    }
    match layout {
        Layout::Parity(parity) => parity_levels(world, parity, &components),
        Layout::Mirror(_) => mirrors(world, &components),
        Layout::Raid10(raid10) => raid10_copies(world, raid10, &components),
        Layout::Striped(_) | Layout::Linear(_) => {}
    }
}

/// Zeroes everywhere what component bytes `bad` of `slot` belong to: then it agrees.
fn leave_out(layout: &Layout, components: &mut [Option<Vec<u8>>], slot: usize, bad: Range<u64>) {
    let mut zero = |slot: usize, at: u64| {
        if let Some(Some(bytes)) = components.get_mut(slot)
            && let Some(sector) = bytes.get_mut(at as usize..at as usize + 512)
        {
            sector.fill(0);
        }
    };
    for at in bad.step_by(512) {
        match layout {
            Layout::Raid10(raid10) => {
                let logical = raid10.logical(slot, at).map(|logical| raid10.locate(logical));
                let Some((chunk, within)) = logical else { continue };
                for place in (0..raid10.copy_count()).map(|copy| raid10.copy(chunk, copy)) {
                    zero(place.slot, place.offset + within);
                }
            }
            _ => (0..layout.slots()).for_each(|slot| zero(slot, at)),
        }
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b { None } else { a.iter().zip(b).position(|(a, b)| a != b) }
}

fn parity_levels(world: &World, parity: &Parity, components: &[Option<Vec<u8>>]) {
    let chunk = parity.chunk_size() as usize;
    for stripe in 0..parity.stripes() {
        let map = parity.map_stripe(stripe);
        let at = parity.member_offset(stripe) as usize;
        let block = |slot: usize| components[slot].as_ref().map(|bytes| &bytes[at..at + chunk]);
        let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
        let mut whole = true;
        for k in 0..map.data_chunks() {
            let Some(data) = block(map.data_slot(k)) else {
                whole = false;
                break;
            };
            add(&mut p, data);
            if map.q_slot().is_some() {
                add_power(&mut q, data, map.exponent(k));
            }
        }
        if !whole {
            continue;
        }
        for (name, slot, right) in [("P", Some(map.p_slot()), &p), ("Q", map.q_slot(), &q)] {
            if let Some(slot) = slot
                && let Some(found) = block(slot)
                && let Some(byte) = first_difference(found, right)
            {
                let text = format!(
                    "stripe {stripe}: {name} on slot {slot} differs from its data at byte {byte} of the chunk \
                     (component byte {})",
                    at + byte
                );
                return world.fail(NAME, text);
            }
        }
    }
}

fn mirrors(world: &World, components: &[Option<Vec<u8>>]) {
    let mut copies = (0..).zip(components).filter_map(|(slot, c)| Some((slot, c.as_ref()?)));
    let Some((first, good)) = copies.next() else { return };
    for (slot, copy) in copies {
        if let Some(byte) = first_difference(good, copy) {
            let slots = format!("slots {first} and {slot}");
            return world.fail(NAME, format!("{slots} differ at component byte {byte}"));
        }
    }
}

fn raid10_copies(world: &World, raid10: &Raid10, components: &[Option<Vec<u8>>]) {
    let chunk = raid10.chunk_size() as usize;
    for nr in 0..raid10.chunks() {
        let copies = (0..raid10.copy_count()).map(|copy| raid10.copy(nr, copy));
        let mut there = copies.filter_map(|place| {
            let at = place.offset as usize;
            Some((place, &components[place.slot].as_ref()?[at..at + chunk]))
        });
        let Some((first, good)) = there.next() else { continue };
        for (place, copy) in there {
            if let Some(byte) = first_difference(good, copy) {
                let text = format!(
                    "chunk {nr}: copies on slots {} and {} differ at byte {byte}",
                    first.slot, place.slot
                );
                return world.fail(NAME, text);
            }
        }
    }
}
