//! What may come back wrong of an array that is started by force, dirty and without a member: the write hole.
//!
//! Where power failed during a write, parity may not match the data of its rows, and what a missing member held there is
//! computed from it. A write-intent bitmap says where anything was being written; bits that are set because a member was away
//! are among those. Without a bitmap it may be anywhere.

use crate::assemble::choose::Choice;
use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::bitmap::ranges::Ranges;
use crate::state::in_doubt::InDoubt;
use braid_layout::{Parity, Role, Slot};
use std::ops::Range;

/// The places in doubt of an array of this layout, whose bitmap this is where it has one that can be used.
pub(super) fn of(choice: &Choice, parity: &Parity, bitmap: Option<&Keeper>) -> InDoubt {
    let missing = choice.slots_not_in_sync();
    // Two geometries have rows of two kinds.
    let Some(bitmap) = bitmap.filter(|_| choice.shared.reshape.is_none()) else {
        return InDoubt::anywhere(missing);
    };
    let mut places = InDoubt::of_slots(missing.clone());
    let ranges = Ranges::of(bitmap.bits(), bitmap.shape(), 0);
    for rows in ranges.iter() {
        let rows = rows.start..rows.end.min(parity.used_component_size());
        for_each_chunk(parity, &rows, |stripe, within| {
            for slot in &missing {
                add(&mut places, parity, (stripe, &within), *slot);
            }
        });
    }
    places
}

/// The parts of stripes in these component bytes: the stripe, and the bytes of its chunks.
fn for_each_chunk(parity: &Parity, rows: &Range<u64>, mut each: impl FnMut(u64, Range<u64>)) {
    let chunk = parity.chunk_size();
    let mut at = rows.start;
    while at < rows.end {
        let end = rows.end.min((at / chunk + 1) * chunk);
        each(parity.first_stripe() + at / chunk, at % chunk..at % chunk + (end - at));
        at = end;
    }
}

/// A missing member's part of a stripe, if that is data.
fn add(places: &mut InDoubt, parity: &Parity, (stripe, within): (u64, &Range<u64>), slot: Slot) {
    let Role::Data(k) = parity.role(stripe, slot) else { return };
    let start = parity.array_offset(stripe, k, within.start);
    let component = parity.member_offset(stripe) + within.start;
    let len = within.end - within.start;
    places.add(slot, start..start + len, component..component + len);
}
