//! The bytes that may come back wrong of an array that is started by force, dirty and without a member: the write hole.
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
        add_rows(&mut places, parity, &rows, &missing);
    }
    places
}

/// Adds the data of the missing members in these component bytes, as the bitmap counts them.
///
/// Its time does not depend on how many stripes those are: a damaged superblock may speak of any number.
fn add_rows(places: &mut InDoubt, parity: &Parity, rows: &Range<u64>, missing: &[Slot]) {
    let (chunk, period) = (parity.chunk_size(), parity.period());
    let in_period = data_chunks_in_a_period(parity, missing);
    // Data follows data on a member where neither parity nor other data lies between.
    let height = if period == 1 && parity.data_chunks() == 1 { u64::MAX } else { chunk };
    let mut at = rows.start;
    while at < rows.end {
        let periods = (rows.end - at) / chunk / period;
        let listed = places.more == 0 && in_period > 0;
        if !listed && at.is_multiple_of(chunk) && periods > 0 {
            places.count(periods * in_period, chunk);
            at += periods * period * chunk;
            continue;
        }
        let end = (at / height + 1).saturating_mul(height).min(rows.end);
        missing.iter().for_each(|slot| add(places, parity, &(at..end), *slot));
        at = end;
    }
}

fn data_chunks_in_a_period(parity: &Parity, missing: &[Slot]) -> u64 {
    let first = parity.first_stripe();
    let stripes = first..first + parity.period().min(parity.stripes());
    stripes
        .map(|stripe| {
            let map = parity.map_stripe(stripe);
            missing.iter().filter(|slot| matches!(map.role(**slot), Role::Data(_))).count() as u64
        })
        .sum()
}

/// A missing member's part of a stripe, if that is data.
fn add(places: &mut InDoubt, parity: &Parity, rows: &Range<u64>, slot: Slot) {
    let chunk = parity.chunk_size();
    let (stripe, within) = (parity.first_stripe() + rows.start / chunk, rows.start % chunk);
    let Role::Data(k) = parity.role(stripe, slot) else { return };
    let start = parity.array_offset(stripe, k, within);
    let component = parity.member_offset(stripe) + within;
    let len = rows.end - rows.start;
    places.add(slot, start..start + len, component..component + len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::extent::pieces;
    use braid_layout::{Layout, Level, Spec};

    const CHUNK: u64 = 4096;

    fn parity(level: Level, layout: u32, slots: usize, stripes: u64) -> Parity {
        let spec = Spec {
            level,
            layout,
            chunk_size: CHUNK,
            raid_disks: slots,
            component_size: stripes * CHUNK,
            member_sizes: Vec::new(),
        };
        match Layout::new(&spec).unwrap() {
            Layout::Parity(parity) => parity,
            other => panic!("{other:?}"),
        }
    }

    fn of_rows(parity: &Parity, rows: &Range<u64>, missing: &[Slot]) -> InDoubt {
        let mut places = InDoubt::of_slots(missing.to_vec());
        add_rows(&mut places, parity, rows, missing);
        places
    }

    #[test]
    fn what_the_list_has_no_room_for_is_counted_as_if_it_were_gone_through() {
        let shapes: [(Level, u32, usize, &[Slot]); 8] = [
            (Level::Raid4, 0, 2, &[0]),
            (Level::Raid4, 0, 4, &[3]),
            (Level::Raid4, 0, 4, &[1]),
            (Level::Raid5, 2, 2, &[0]),
            (Level::Raid5, 2, 5, &[4]),
            (Level::Raid5, 4, 3, &[0]),
            (Level::Raid6, 2, 5, &[0, 3]),
            (Level::Raid6, 18, 6, &[5, 2]),
        ];
        for (level, layout, slots, missing) in shapes {
            let parity = parity(level, layout, slots, 1000);
            for rows in [0..1000 * CHUNK, 512..900 * CHUNK, 7 * CHUNK..999 * CHUNK + 512, 5..9] {
                let found = of_rows(&parity, &rows, missing);
                let mut each = InDoubt::of_slots(missing.to_vec());
                for rows in pieces(&rows, CHUNK) {
                    missing.iter().for_each(|slot| add(&mut each, &parity, &rows, *slot));
                }
                assert_eq!(found, each, "{level} {layout} of {slots}, rows {rows:?}");
            }
        }
    }

    #[test]
    fn any_number_of_stripes_takes_no_time() {
        let stripes = 1 << 48;
        for (level, missing) in [(Level::Raid4, [0]), (Level::Raid4, [1]), (Level::Raid5, [0])] {
            let parity = parity(level, 0, 2, stripes);
            let found = of_rows(&parity, &(0..stripes * CHUNK), &missing);
            let share = match (level, missing) {
                (Level::Raid4, [0]) => stripes,
                (Level::Raid4, _) => 0,
                _ => stripes / 2,
            };
            assert_eq!(found.bytes, share * CHUNK, "{level}");
        }
    }
}
