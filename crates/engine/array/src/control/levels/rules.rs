//! The level changes that need no byte of data moved, and the shape that each leads to.
//!
//! ```text
//!  4 ─► 5     parity stays on the last slot (parity-last)          5 ─► 4    where parity is on the last slot
//!  5 ─► 6     one slot more, for Q; the others keep their parts    6 ─► 5    where Q has the last slot to itself; it is given up
//!  0 ─► 4, 5  one slot more, for parity: parity-last               4, 5 ─► 0 where parity has the last slot to itself; its member leaves
//!  1 ─► 5     of two members: the second copy is the parity        5 ─► 1    of two members
//!  0 ─► 10    a slot behind each, for its copy (near 2)            10 ─► 0   near 2, an even number: one member of each two leaves
//!  1 ─► 1     more copies, each on a slot that is new              1 ─► 1    fewer: those in sync are the first of them
//! ```
//!
//! Two of them in a row are one, where that is meant: 4 or 0 to 6, 6 to 4 or 0. They are md's (`takeover` in `raid0.c`, `raid1.c`,
//! `raid5.c` and `raid10.c`, and `raid1_reshape`), whose layout numbers they lead to. Between 0 and 10 slots get other numbers, and
//! with fewer copies where one of the first is missing; else each member keeps the one that it has.

use crate::state::geometry::Geometry;
use braid_layout::{Layout, Level, Slot, Spec, layout_name};

/// md's number of the layout of levels 5 and 6 that has parity on the last slots; the same at both.
pub(crate) const PARITY_LAST: u32 = 5;
/// The layouts of level 6 that are one of level 5 with Q on one slot more: so much is added to its number.
pub(crate) const Q_LAST: u32 = 16;
/// The last layout of level 5 for which there is such a one.
pub(crate) const PARITY_FIRST: u32 = 4;
/// The layout of level 10 that has two copies side by side.
const NEAR_2: u32 = 0x102;
/// The chunk that an array gets which had none, unless its size is no multiple of that: then the largest that fits.
const CHUNK_MAX: u64 = 64 << 10;
const CHUNK_MIN: u64 = 4 << 10;
/// Slots of a level 6 array at most, as md has it here.
const SLOTS_MAX: usize = 254;

/// An array's shape at another level, in which every byte of it has the place that it has now.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    /// md's number of the layout.
    pub(crate) number: u32,
    pub(crate) layout: Layout,
    /// Bytes used of each component; what the layout was made of.
    pub(crate) component: u64,
    slots: Slots,
}

/// The slots that members get.
#[derive(Clone, Debug)]
enum Slots {
    /// Those that they have.
    Same,
    /// Each gets an empty one behind it.
    Doubled,
    /// Each two become one.
    Halved,
    /// The holders of these become the first, in this order.
    First(Vec<Slot>),
}

impl Shape {
    /// The slot that the holder of `slot` gets; `None`: it loses it.
    pub(crate) fn slot_for(&self, slot: Slot) -> Option<Slot> {
        let new = match &self.slots {
            Slots::Same => slot,
            Slots::Doubled => slot * 2,
            Slots::Halved => slot / 2,
            Slots::First(holders) => holders.iter().position(|holder| *holder == slot)?,
        };
        (new < self.layout.slots()).then_some(new)
    }

    /// Members that stay have another slot then.
    pub(crate) fn renumbers(&self) -> bool {
        !matches!(self.slots, Slots::Same)
    }
}

/// The shape of `geometry` at `level`, with chunks of `chunk` bytes where it has none now.
///
/// # Errors
/// The reason why that would move data, or cannot be, and what can be done instead.
pub(crate) fn shape_at(
    geometry: &Geometry,
    level: Level,
    chunk: Option<u64>,
) -> Result<Shape, String> {
    let from = geometry.level;
    let now = geometry.layout.chunk_size();
    if let Some(wanted) = chunk.filter(|wanted| now != 0 && *wanted != now) {
        return Err(format!(
            "chunks of {wanted} bytes move data, which has {now}; change the level first, and then the chunks"
        ));
    }
    let (slots, last) = (geometry.slots(), geometry.layout_number);
    let more = |parities: usize| slots + parities;
    let numbers = match (from, level) {
        (Level::Raid0, Level::Raid10) => Slots::Doubled,
        (Level::Raid10, Level::Raid0) => Slots::Halved,
        _ => Slots::Same,
    };
    let (number, disks) = match (from, level) {
        (Level::Raid4, Level::Raid5) => (PARITY_LAST, slots),
        (Level::Raid4, Level::Raid6) => (PARITY_LAST, more(1)),
        (Level::Raid5, Level::Raid4) if last == PARITY_LAST => (0, slots),
        (Level::Raid5, Level::Raid6) if last <= PARITY_FIRST => (last + Q_LAST, more(1)),
        (Level::Raid5, Level::Raid6) if last == PARITY_LAST => (PARITY_LAST, more(1)),
        (Level::Raid6, Level::Raid5) if last >= Q_LAST => (last - Q_LAST, slots - 1),
        (Level::Raid6, Level::Raid5) if last == PARITY_LAST => (PARITY_LAST, slots - 1),
        (Level::Raid6, Level::Raid4) if last == PARITY_LAST => (0, slots - 1),
        (Level::Raid0, Level::Raid4) => (0, more(1)),
        (Level::Raid0, Level::Raid5) => (PARITY_LAST, more(1)),
        (Level::Raid0, Level::Raid6) => (PARITY_LAST, more(2)),
        (Level::Raid4, Level::Raid0) => (0, slots - 1),
        (Level::Raid5, Level::Raid0) if last == PARITY_LAST => (0, slots - 1),
        (Level::Raid6, Level::Raid0) if last == PARITY_LAST => (0, slots - 2),
        (Level::Raid1, Level::Raid5) if slots == 2 => (braid_layout::default_layout(level), slots),
        (Level::Raid5, Level::Raid1) if slots == 2 => (0, slots),
        (Level::Raid0, Level::Raid10) => (NEAR_2, slots * 2),
        (Level::Raid10, Level::Raid0) if last == NEAR_2 && slots.is_multiple_of(2) => {
            (0, slots / 2)
        }
        _ => return Err(not_that(geometry, level)),
    };
    if level == Level::Raid6 && !(4..=SLOTS_MAX).contains(&disks) {
        return Err(format!("raid6 has 4 to {SLOTS_MAX} slots here, and it would have {disks}"));
    }
    let component = component(geometry)?;
    let chunk_size = match level {
        Level::Raid1 => 0,
        _ if now == 0 => chunk_for(component, chunk)?,
        _ => now,
    };
    let layout = layout_of((level, number), chunk_size, disks, component)?;
    if layout.array_size() != geometry.array_size() {
        return Err(format!(
            "it would have {} bytes instead of {}",
            layout.array_size(),
            geometry.array_size()
        ));
    }
    Ok(Shape { level, number, layout, component, slots: numbers })
}

/// The shape of a level 1 array of `copies` slots; `in_sync`: the slots that have a member in sync, in order.
///
/// # Errors
/// It has as many already, or there is no such array.
pub(crate) fn mirror_of(
    geometry: &Geometry,
    copies: usize,
    in_sync: Vec<Slot>,
) -> Result<Shape, String> {
    let (level, number) = (geometry.level, geometry.layout_number);
    if copies == geometry.slots() {
        return Err(format!("it has {copies} slots already"));
    }
    if copies < 2 {
        return Err(format!("a {level} array of less than two members keeps no second copy"));
    }
    let component = component(geometry)?;
    let layout = layout_of((level, number), 0, copies, component)?;
    // Those that keep their slots are not written anew.
    let first = in_sync.iter().take(copies).all(|slot| *slot < copies);
    let slots = if first { Slots::Same } else { Slots::First(in_sync) };
    Ok(Shape { level, number, layout, component, slots })
}

/// The layout of `disks` members of which `component` bytes are used.
fn layout_of(
    (level, layout): (Level, u32),
    chunk_size: u64,
    disks: usize,
    component: u64,
) -> Result<Layout, String> {
    let member_sizes = if level == Level::Raid0 { vec![component; disks] } else { Vec::new() };
    let spec = Spec {
        level,
        layout,
        chunk_size,
        raid_disks: disks,
        component_size: component,
        member_sizes,
    };
    Layout::new(&spec).map_err(|error| error.to_string())
}

/// Bytes that are used of each component.
fn component(geometry: &Geometry) -> Result<u64, String> {
    match &geometry.layout {
        Layout::Striped(raid0) if raid0.zones().len() > 1 => Err(
            "its members differ in size, and what the larger ones have behind the end of the others is used: as for md, \
             that keeps its level"
                .to_string(),
        ),
        Layout::Striped(raid0) => Ok(raid0.used_size(0)),
        other => Ok(match other {
            Layout::Parity(parity) => parity.used_component_size(),
            _ => geometry.component_size,
        }),
    }
}

/// The chunk of an array of two copies of `size` bytes.
fn chunk_for(size: u64, wanted: Option<u64>) -> Result<u64, String> {
    if let Some(wanted) = wanted {
        let fits = wanted.is_power_of_two() && wanted >= CHUNK_MIN && size.is_multiple_of(wanted);
        return fits.then_some(wanted).ok_or_else(|| {
            format!(
                "{wanted} is no chunk for it: that is a power of two from {CHUNK_MIN} on, of which its {size} bytes are a \
                 multiple"
            )
        });
    }
    // The largest power of two that divides it.
    let largest = 1 << size.trailing_zeros().min(CHUNK_MAX.trailing_zeros());
    if largest < CHUNK_MIN {
        return Err(format!(
            "its {size} bytes are no multiple of {CHUNK_MIN}, the smallest chunk; use less of the components first, with \
             braid grow --size"
        ));
    }
    Ok(largest)
}

/// Why the array cannot be taken to `level` as it is, and the way that there is.
fn not_that(geometry: &Geometry, level: Level) -> String {
    let (from, slots) = (geometry.level, geometry.slots());
    let layout = layout_name(from, geometry.layout_number).unwrap_or_default();
    let relayout = |to: u32| {
        let to = layout_name(from, to).unwrap_or_default();
        format!(
            "with layout {layout} that would move data; give it another one first, and wait for that: braid grow --layout {to}"
        )
    };
    let q_last = match geometry.layout_number {
        number if number <= PARITY_FIRST => number + Q_LAST,
        _ => 2 + Q_LAST,
    };
    match (from, level) {
        (from, to) if from == to => format!("it is {from} already"),
        (Level::Raid6, Level::Raid5) => relayout(q_last),
        (Level::Raid5 | Level::Raid6, Level::Raid4 | Level::Raid0) => relayout(PARITY_LAST),
        (Level::Raid1, Level::Raid5) | (Level::Raid5, Level::Raid1) => {
            format!("that needs two members, and it has {slots}")
        }
        (Level::Raid10, Level::Raid0) => format!(
            "with layout {layout} of {slots} members that would move data; as in md, it has to be n2 of an even number"
        ),
        _ => format!(
            "braid does not change {from} to {level}; it changes 0 to 4, 5, 6 or 10 and back, 4, 5 and 6 to each other, and 1 of \
             two members to 5 and back"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::Place;

    const CHUNK: u64 = 8 << 10;
    const COMPONENT: u64 = 40 * CHUNK;

    fn geometry(level: Level, number: u32, disks: usize) -> Geometry {
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        let layout = layout_of((level, number), chunk, disks, COMPONENT).unwrap();
        Geometry::new(level, number, layout, 512, COMPONENT, 1)
    }

    fn place(layout: &Layout, byte: u64) -> Place {
        match layout {
            Layout::Parity(parity) => {
                let (stripe, k, within) = parity.locate(byte);
                let offset = parity.member_offset(stripe) + within;
                Place { slot: parity.data_slot(stripe, k), offset }
            }
            Layout::Striped(raid0) => raid0.map(byte).0,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn copies_in_sync_are_the_first_when_there_are_fewer() {
        let four = geometry(Level::Raid1, 0, 4);
        let slots = |copies, in_sync: &[Slot]| {
            let shape = mirror_of(&four, copies, in_sync.to_vec()).unwrap();
            assert_eq!(shape.layout.array_size(), COMPONENT);
            (0..4).map(|slot| shape.slot_for(slot)).collect::<Vec<_>>()
        };
        let (zero, one, two, three) = (Some(0), Some(1), Some(2), Some(3));
        assert_eq!(slots(6, &[0, 1, 2, 3]), [zero, one, two, three]);
        assert_eq!(slots(2, &[0, 1, 2, 3]), [zero, one, None, None]);
        assert_eq!(slots(2, &[0, 3]), [zero, None, None, one]);
        assert_eq!(slots(3, &[1, 2, 3]), [None, zero, one, two]);
        assert_eq!(slots(2, &[1]), [zero, one, None, None]);
        assert!(mirror_of(&four, 4, vec![0]).unwrap_err().contains("already"));
        assert!(mirror_of(&four, 1, vec![0]).unwrap_err().contains("no second copy"));
    }

    #[test]
    fn every_byte_stays_where_it_is_and_parity_does_too() {
        let all = [Level::Raid0, Level::Raid4, Level::Raid5, Level::Raid6];
        let mut changes = 0;
        for from in all {
            for to in all {
                for number in 0..21 {
                    let known = match from {
                        Level::Raid0 | Level::Raid4 => number == 0,
                        Level::Raid5 => number <= 5,
                        _ => !matches!(number, 6 | 7 | 11..=15),
                    };
                    if !known {
                        continue;
                    }
                    let old = geometry(from, number, 6);
                    let Ok(new) = shape_at(&old, to, None) else { continue };
                    changes += 1;
                    for byte in (0..old.array_size()).step_by(4096) {
                        let (was, is) = (place(&old.layout, byte), place(&new.layout, byte));
                        assert_eq!(was, is, "{from} {number} to {to}: byte {byte}");
                    }
                    let (Layout::Parity(was), Layout::Parity(is)) = (&old.layout, &new.layout)
                    else {
                        continue;
                    };
                    for stripe in 0..was.stripes() {
                        let what = format!("{from} {number} to {to}: stripe {stripe}");
                        assert_eq!(was.p_slot(stripe), is.p_slot(stripe), "{what}");
                        for q in [was.q_slot(stripe), is.q_slot(stripe)].into_iter().flatten() {
                            assert_eq!(q, 6.min(was.slots().max(is.slots()) - 1), "{what}");
                        }
                    }
                }
            }
        }
        // 0: 4, 5, 6. 4: 0, 5, 6. 5: 6 of six layouts, 0 and 4 of one. 6: 5 of six layouts, 0 and 4 of one.
        assert_eq!(changes, 3 + 3 + 8 + 8);
    }

    #[test]
    fn what_is_striped_is_one_copy_of_two() {
        let zero = geometry(Level::Raid0, 0, 3);
        let ten = shape_at(&zero, Level::Raid10, None).unwrap();
        assert_eq!((ten.number, ten.layout.slots()), (NEAR_2, 6));
        let Layout::Raid10(copies) = &ten.layout else { unreachable!() };
        for byte in (0..zero.array_size()).step_by(4096) {
            let was = place(&zero.layout, byte);
            let (chunk, within) = copies.locate(byte);
            let [one, other] = [0, 1].map(|copy| copies.copy(chunk, copy));
            assert_eq!(ten.slot_for(was.slot), Some(one.slot));
            assert_eq!((one.offset + within, other.slot), (was.offset, one.slot + 1));
        }
        let back = shape_at(&geometry(Level::Raid10, NEAR_2, 6), Level::Raid0, None).unwrap();
        assert_eq!(format!("{:?}", back.layout), format!("{:?}", zero.layout));
        let slots: Vec<_> = (0..6).map(|slot| back.slot_for(slot).unwrap()).collect();
        assert_eq!(slots, [0, 0, 1, 1, 2, 2]);
        for (number, disks) in [(NEAR_2, 5), (0x103, 6), (0x201, 6), (0x1_0201, 6)] {
            let ten = geometry(Level::Raid10, number, disks);
            let why = shape_at(&ten, Level::Raid0, None).unwrap_err();
            assert!(why.contains("n2 of an even number"), "{why}");
        }
    }

    #[test]
    fn two_copies_are_data_and_its_parity() {
        let five = shape_at(&geometry(Level::Raid1, 0, 2), Level::Raid5, None).unwrap();
        assert_eq!((five.number, five.layout.chunk_size()), (2, 64 << 10));
        let wanted = shape_at(&geometry(Level::Raid1, 0, 2), Level::Raid5, Some(CHUNK)).unwrap();
        assert_eq!(wanted.layout.chunk_size(), CHUNK);
        let one = shape_at(&geometry(Level::Raid5, 3, 2), Level::Raid1, None).unwrap();
        assert_eq!((one.number, one.layout.array_size()), (0, COMPONENT));
        assert!(shape_at(&geometry(Level::Raid1, 0, 3), Level::Raid5, None).is_err());
        assert!(shape_at(&geometry(Level::Raid5, 2, 3), Level::Raid1, None).is_err());
    }

    #[test]
    fn who_cannot_is_told_the_way() {
        let why = |from, number, disks, to| {
            shape_at(&geometry(from, number, disks), to, None).unwrap_err()
        };
        let six = why(Level::Raid6, 3, 5, Level::Raid5);
        assert!(six.contains("--layout right-symmetric-6"), "{six}");
        let zero = why(Level::Raid5, 2, 4, Level::Raid0);
        assert!(zero.contains("--layout parity-last"), "{zero}");
        assert!(why(Level::Raid5, 2, 4, Level::Raid5).contains("already"));
        assert!(why(Level::Raid5, 2, 2, Level::Raid6).contains("4 to"));
        assert!(why(Level::Raid1, 0, 2, Level::Raid6).contains("does not change"));
        let chunks = shape_at(&geometry(Level::Raid5, 2, 4), Level::Raid6, Some(4096));
        assert!(chunks.unwrap_err().contains("first"));
    }
}
