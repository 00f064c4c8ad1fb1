//! The bytes that may come back wrong of an array that is started by force, dirty and without a member: the write hole.
//!
//! Where power failed during a write, parity may not match the data of its rows, and what a missing member held there is
//! computed from it. A write-intent bitmap says where anything was being written; bits that are set because a member was away
//! are among those. Without a bitmap it may be anywhere.

use crate::assemble::choose::Choice;
use crate::metadata::bitmap::keeper::Keeper;
use crate::metadata::bitmap::ranges::Ranges;
use crate::state::extent::pieces;
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
        for rows in pieces(&rows, parity.chunk_size()) {
            missing.iter().for_each(|slot| add(&mut places, parity, &rows, *slot));
        }
    }
    places
}

/// A missing member's part of a stripe, in these component bytes as the bitmap counts them, if that is data.
fn add(places: &mut InDoubt, parity: &Parity, rows: &Range<u64>, slot: Slot) {
    let chunk = parity.chunk_size();
    let (stripe, within) = (parity.first_stripe() + rows.start / chunk, rows.start % chunk);
    let Role::Data(k) = parity.role(stripe, slot) else { return };
    let start = parity.array_offset(stripe, k, within);
    let component = parity.member_offset(stripe) + within;
    let len = rows.end - rows.start;
    places.add(slot, start..start + len, component..component + len);
}
