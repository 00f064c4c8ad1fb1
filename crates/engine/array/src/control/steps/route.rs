//! The steps to another level where data has to be moved: changes that move nothing (`levels`), and reshapes at the level
//! before or after.
//!
//! ```text
//!  0, 4, 5 ─► 6, 0 ─► 4, 5, 4 ─► 5, 1 ─► 5    the level first, then what else is wanted
//!  4, 5 ─► 6 with no more members than it has    fewer members first, then the level: one of those freed gets Q
//!  6 ─► 5, 6 ─► 4, 5 ─► 4    the layout that the new level is made from first, with chunks and members as wanted, then the level
//!  6 ─► 5 with as many members, without a spare    the layout, the level, and then the member that had Q gets a slot
//!  5 ─► 1    two members first
//!  4, 5, 6 ─► 0    parity-last, with chunks and members as wanted, then the level: those with parity leave
//! ```
//!
//! Those in between are md's names: left-symmetric-6 is left-symmetric with Q on the last slot. From each shape between two
//! steps the way to the same end goes over the same shapes, so that a command can be given again after a crash.
//!
//! Knows the shapes alone: neither whether the members have room, nor whether this is the moment.

use crate::control::following::Goal;
use crate::control::levels::new_geometry;
use crate::control::levels::rules::{PARITY_FIRST, PARITY_LAST, Q_LAST, Shape, shape_at};
use crate::control::reshaping::WantedShape;
use crate::control::steps::wanted::{WantedArray, WantedLayout, normal_layout};
use crate::state::geometry::Geometry;
use braid_layout::{Layout, Level, Spec, default_layout};

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Leg {
    /// Another level, without anything being moved.
    Level(Shape),
    /// Data is moved; every part of the shape is given.
    Reshape(WantedShape),
}

/// The steps from `start`, of which none is a reshape that does not change anything; `spares`: members that may get slots.
///
/// # Errors
/// The reason why there is no way, or nothing to be done.
pub(super) fn route(
    start: &Geometry,
    wanted: &WantedArray,
    spares: usize,
) -> Result<Vec<Leg>, String> {
    let to = wanted.level;
    if start.level == to {
        let rest = rest(start, wanted)?;
        return rest.map(|leg| vec![leg]).ok_or_else(|| format!("it is {to} already"));
    }
    if to == Level::Raid0
        && let Some(parity) = start.parity()
    {
        return to_level_0(start, wanted, parity.parity_count());
    }
    let chunk = wanted.chunk_size.filter(|_| start.layout.chunk_size() == 0);
    let shape = match shape_at(start, to, chunk) {
        Ok(shape) => shape,
        Err(why) => return moved_first(start, wanted, spares).unwrap_or(Err(why)),
    };
    let after = new_geometry(start, &shape);
    let more = after.slots().saturating_sub(start.slots());
    let fewer = wanted.raid_disks.filter(|disks| more > 0 && *disks < after.slots());
    match fewer.and_then(|disks| disks.checked_sub(more)) {
        Some(disks) if start.has_parity() => {
            let first = shape_of(start, None, wanted.chunk_size, Some(disks));
            then_level(start, first, wanted)
        }
        _ => Ok([Some(Leg::Level(shape)), rest(&after, wanted)?].into_iter().flatten().collect()),
    }
}

/// The steps where the level can be changed only when data has been moved; `None`: that does not help either.
fn moved_first(
    start: &Geometry,
    wanted: &WantedArray,
    spares: usize,
) -> Option<Result<Vec<Leg>, String>> {
    let now = start.layout_number;
    let (layout, parities) = match (start.level, wanted.level, wanted.layout) {
        (_, _, WantedLayout::Preserve) => return None,
        (Level::Raid6, Level::Raid5, WantedLayout::Number(number)) => match number {
            0..=PARITY_FIRST => (number + Q_LAST, 1),
            PARITY_LAST => (PARITY_LAST, 1),
            _ => return None,
        },
        (Level::Raid6, Level::Raid5, _) if now <= PARITY_FIRST => (now + Q_LAST, 1),
        (Level::Raid6, Level::Raid5, _) => (default_layout(Level::Raid5) + Q_LAST, 1),
        (Level::Raid6, Level::Raid4, _) => (PARITY_LAST, 1),
        (Level::Raid5, Level::Raid4, _) => (PARITY_LAST, 0),
        (Level::Raid5, Level::Raid1, _) if wanted.raid_disks == Some(2) => (now, 0),
        _ => return None,
    };
    let slots = start.slots();
    let disks = wanted.raid_disks.map_or(slots, |disks| disks.saturating_add(parities));
    // The member that has Q could not be one of those that it is to have then.
    let too_few = disks.saturating_sub(slots) > spares && parities > 0;
    let disks = if too_few { slots } else { disks };
    let first = shape_of(start, Some(layout), wanted.chunk_size, Some(disks));
    Some(then_level(start, first, wanted))
}

/// The steps to level 0, at which no data is moved: it has the shape that is wanted before. As many members keep data as have
/// it now, unless more or fewer are wanted.
fn to_level_0(start: &Geometry, wanted: &WantedArray, parities: usize) -> Result<Vec<Leg>, String> {
    let now = start.layout_number;
    let layout = match start.level {
        _ if wanted.layout == WantedLayout::Preserve => now,
        Level::Raid4 => now,
        _ => PARITY_LAST,
    };
    let disks = wanted.raid_disks.map(|disks| disks.saturating_add(parities));
    let first = shape_of(start, Some(layout), wanted.chunk_size, disks);
    if first != shape_of(start, None, None, None) {
        return then_level(start, first, wanted);
    }
    let shape = shape_at(start, wanted.level, None)?;
    rest(&new_geometry(start, &shape), wanted)?;
    Ok(vec![Leg::Level(shape)])
}

/// `first`, unless the array has that shape already, then the level, and what is left.
fn then_level(
    start: &Geometry,
    first: WantedShape,
    wanted: &WantedArray,
) -> Result<Vec<Leg>, String> {
    let between = reshaped(start, &first)?;
    let shape = shape_at(&between, wanted.level, None)?;
    let rest = rest(&new_geometry(&between, &shape), wanted)?;
    let mut legs = vec![Leg::Reshape(first), Leg::Level(shape)];
    legs.extend(rest);
    Ok(legs)
}

/// The reshape that is left to be made when the array has the level.
fn rest(geometry: &Geometry, wanted: &WantedArray) -> Result<Option<Leg>, String> {
    let now = geometry.layout_number;
    let layout = match wanted.layout {
        WantedLayout::Any | WantedLayout::Preserve => now,
        WantedLayout::Normalise => normal_layout(geometry.level, now),
        WantedLayout::Number(number) => number,
    };
    let shape = shape_of(geometry, Some(layout), wanted.chunk_size, wanted.raid_disks);
    if shape == shape_of(geometry, None, None, None) {
        return Ok(None);
    }
    if !geometry.has_parity() && geometry.level != Level::Raid10 {
        return Err(format!(
            "at {} no data is moved, so its chunks, layout and number of members have to be changed before, or stay",
            geometry.level
        ));
    }
    reshaped(geometry, &shape)?;
    Ok(Some(Leg::Reshape(shape)))
}

/// All of a shape: what is `None` is as in `geometry`.
pub(super) fn shape_of(
    geometry: &Geometry,
    layout: Option<u32>,
    chunk: Option<u64>,
    disks: Option<usize>,
) -> WantedShape {
    WantedShape {
        raid_disks: Some(disks.unwrap_or(geometry.slots())),
        chunk_size: Some(chunk.unwrap_or(geometry.layout.chunk_size())),
        layout: Some(layout.unwrap_or(geometry.layout_number)),
    }
}

/// The geometry of an array that has been reshaped.
///
/// # Errors
/// There is no such shape.
pub(super) fn reshaped(geometry: &Geometry, shape: &WantedShape) -> Result<Geometry, String> {
    let number = shape.layout.unwrap_or(geometry.layout_number);
    let spec = Spec {
        level: geometry.level,
        layout: number,
        chunk_size: shape.chunk_size.unwrap_or(geometry.layout.chunk_size()),
        raid_disks: shape.raid_disks.unwrap_or(geometry.slots()),
        component_size: geometry.component_size,
        member_sizes: Vec::new(),
    };
    match Layout::new(&spec) {
        Ok(layout @ (Layout::Parity(_) | Layout::Raid10(_))) => {
            Ok(geometry.shaped(geometry.level, number, layout))
        }
        Ok(_) => Err(format!("braid does not reshape {}", geometry.level)),
        Err(error) => Err(error.to_string()),
    }
}

/// The shape of an array of `geometry` after these steps.
pub(super) fn goal_of(geometry: &Geometry, legs: &[Leg]) -> Goal {
    let start = Goal {
        level: geometry.level,
        layout: geometry.layout_number,
        chunk_size: geometry.layout.chunk_size(),
        raid_disks: geometry.slots(),
    };
    legs.iter().fold(start, |goal, leg| leg.leads_to(goal))
}

impl Leg {
    /// The shape of an array after it.
    pub(super) fn leads_to(&self, from: Goal) -> Goal {
        match self {
            Leg::Level(shape) => Goal {
                level: shape.level,
                layout: shape.number,
                chunk_size: shape.layout.chunk_size(),
                raid_disks: shape.layout.slots(),
            },
            Leg::Reshape(shape) => Goal {
                level: from.level,
                layout: shape.layout.unwrap_or(from.layout),
                chunk_size: shape.chunk_size.unwrap_or(from.chunk_size),
                raid_disks: shape.raid_disks.unwrap_or(from.raid_disks),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 8 << 10;
    const COMPONENT: u64 = 48 * CHUNK;
    use Level::{Raid0, Raid1, Raid4, Raid5, Raid6};

    fn geometry(level: Level, layout: u32, disks: usize) -> Geometry {
        let spec = Spec {
            level,
            layout,
            chunk_size: if level == Raid1 { 0 } else { CHUNK },
            raid_disks: disks,
            component_size: COMPONENT,
            member_sizes: if level == Raid0 { vec![COMPONENT; disks] } else { Vec::new() },
        };
        Geometry::new(level, layout, Layout::new(&spec).unwrap(), 512, COMPONENT, 1)
    }

    fn wanted(level: Level) -> WantedArray {
        WantedArray { level, layout: WantedLayout::Any, chunk_size: None, raid_disks: None }
    }

    fn layout(level: Level, number: u32) -> WantedArray {
        WantedArray { layout: WantedLayout::Number(number), ..wanted(level) }
    }

    /// Each step as `L` or `M` (moves), and the layout and slots after it.
    fn words(start: &Geometry, legs: &[Leg]) -> String {
        let mut at = goal_of(start, &[]);
        let mut words = Vec::new();
        for leg in legs {
            at = leg.leads_to(at);
            let kind = if matches!(leg, Leg::Level(_)) { 'L' } else { 'M' };
            words.push(format!(
                "{kind} {} {} of {}",
                at.level.md_number(),
                at.layout,
                at.raid_disks
            ));
        }
        words.join(", ")
    }

    #[test]
    fn the_level_comes_first_where_it_moves_nothing() {
        let to = |from: (Level, u32, usize), wanted| {
            let start = geometry(from.0, from.1, from.2);
            words(&start, &route(&start, &wanted, 2).unwrap())
        };
        let five = (Raid5, 2, 4);
        assert_eq!(to(five, wanted(Raid6)), "L 6 18 of 5");
        assert_eq!(to(five, layout(Raid6, 18)), "L 6 18 of 5");
        assert_eq!(to(five, layout(Raid6, 2)), "L 6 18 of 5, M 6 2 of 5");
        let normal = WantedArray { layout: WantedLayout::Normalise, ..wanted(Raid6) };
        assert_eq!(to((Raid5, 3, 4), normal), "L 6 19 of 5, M 6 3 of 5");
        assert_eq!(to((Raid4, 0, 3), layout(Raid6, 2)), "L 6 5 of 4, M 6 2 of 4");
        assert_eq!(to((Raid4, 0, 3), layout(Raid5, 2)), "L 5 5 of 3, M 5 2 of 3");
        assert_eq!(to((Raid0, 0, 3), layout(Raid5, 2)), "L 5 5 of 4, M 5 2 of 4");
        assert_eq!(to((Raid0, 0, 3), layout(Raid6, 2)), "L 6 5 of 5, M 6 2 of 5");
        let chunk = WantedArray { chunk_size: Some(2 * CHUNK), ..wanted(Raid4) };
        assert_eq!(to((Raid0, 0, 3), chunk), "L 4 0 of 4, M 4 0 of 4");
        let more = WantedArray { raid_disks: Some(5), ..wanted(Raid5) };
        assert_eq!(to((Raid1, 0, 2), more), "L 5 2 of 2, M 5 2 of 5");
        // With no more members than it has: the fourth is freed for Q.
        let same = WantedArray { raid_disks: Some(5), ..layout(Raid6, 2) };
        assert_eq!(to((Raid5, 2, 5), same), "M 5 2 of 4, L 6 18 of 5, M 6 2 of 5");
    }

    #[test]
    fn data_moves_first_where_the_level_is_made_of_another_layout() {
        let to = |from: (Level, u32, usize), wanted, spares| {
            let start = geometry(from.0, from.1, from.2);
            words(&start, &route(&start, &wanted, spares).unwrap())
        };
        let six = (Raid6, 2, 5);
        assert_eq!(to(six, wanted(Raid5), 0), "M 6 18 of 5, L 5 2 of 4");
        assert_eq!(to(six, layout(Raid5, 0), 0), "M 6 16 of 5, L 5 0 of 4");
        assert_eq!(to((Raid6, 8, 5), wanted(Raid5), 0), "M 6 18 of 5, L 5 2 of 4");
        assert_eq!(to((Raid6, 18, 5), wanted(Raid5), 0), "L 5 2 of 4");
        assert_eq!(to(six, wanted(Raid4), 0), "M 6 5 of 5, L 4 0 of 4");
        assert_eq!(to((Raid5, 2, 4), wanted(Raid4), 0), "M 5 5 of 4, L 4 0 of 4");
        let as_many = WantedArray { raid_disks: Some(5), ..wanted(Raid5) };
        assert_eq!(to(six, as_many, 1), "M 6 18 of 6, L 5 2 of 5");
        assert_eq!(to(six, as_many, 0), "M 6 18 of 5, L 5 2 of 4, M 5 2 of 5");
        let two = WantedArray { raid_disks: Some(2), ..wanted(Raid1) };
        assert_eq!(to((Raid5, 2, 4), two, 0), "M 5 2 of 2, L 1 0 of 2");
        // Parity comes to lie on members of its own, which leave.
        assert_eq!(to((Raid5, 2, 4), wanted(Raid0), 0), "M 5 5 of 4, L 0 0 of 3");
        assert_eq!(to((Raid5, 5, 4), wanted(Raid0), 0), "L 0 0 of 3");
        assert_eq!(to(six, wanted(Raid0), 0), "M 6 5 of 5, L 0 0 of 3");
        assert_eq!(to((Raid6, 18, 5), wanted(Raid0), 0), "M 6 5 of 5, L 0 0 of 3");
        let disks = |disks| WantedArray { raid_disks: Some(disks), ..wanted(Raid0) };
        assert_eq!(to((Raid5, 5, 4), disks(2), 0), "M 5 5 of 3, L 0 0 of 2");
        assert_eq!(to((Raid5, 2, 4), disks(4), 1), "M 5 5 of 5, L 0 0 of 4");
        let chunk = WantedArray { chunk_size: Some(2 * CHUNK), ..wanted(Raid0) };
        assert_eq!(to((Raid4, 0, 3), chunk, 0), "M 4 0 of 3, L 0 0 of 2");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let why = |from: (Level, u32, usize), wanted| {
            let start = geometry(from.0, from.1, from.2);
            route(&start, &wanted, 2).unwrap_err()
        };
        assert!(why((Raid6, 18, 5), wanted(Raid6)).contains("already"));
        let stays = WantedArray { layout: WantedLayout::Preserve, ..wanted(Raid5) };
        assert!(why((Raid6, 2, 5), stays).contains("--layout left-symmetric-6"));
        let stays = |level| WantedArray { layout: WantedLayout::Preserve, ..wanted(level) };
        assert!(why((Raid5, 2, 4), stays(Raid0)).contains("--layout parity-last"));
        assert!(why((Raid6, 2, 4), stays(Raid0)).contains("--layout parity-last"));
        assert!(why((Raid5, 2, 4), wanted(Raid1)).contains("two members"));
        assert!(why((Raid0, 0, 3), wanted(Raid1)).contains("does not change"));
        let chunk = WantedArray { chunk_size: Some(2 * CHUNK), ..wanted(Raid0) };
        assert!(why((Raid0, 0, 4), chunk).contains("no data is moved"));
        assert!(why((Raid5, 5, 4), layout(Raid0, 2)).contains("no data is moved"));
    }

    /// A command that is given again after a crash takes the same way.
    #[test]
    fn the_way_from_every_shape_between_leads_over_the_others() {
        let mut seen = 0;
        let starts: Vec<(Level, u32)> = [(Raid0, 0), (Raid4, 0), (Raid1, 0)]
            .into_iter()
            .chain((0..6).map(|number| (Raid5, number)))
            .chain((0..21).filter(|n| !matches!(n, 6 | 7 | 11..=15)).map(|n| (Raid6, n)))
            .collect();
        for (from, number) in starts {
            for disks in 2..7 {
                if from == Raid6 && disks < 4 || from == Raid1 && disks != 2 {
                    continue;
                }
                for to in [Raid0, Raid1, Raid4, Raid5, Raid6] {
                    for layout in [None, Some(0), Some(2), Some(5), Some(18)] {
                        for chunk_size in [None, Some(2 * CHUNK)] {
                            for (more, spares) in
                                (2..8).map(Some).chain([None]).flat_map(|m| [(m, 0), (m, 3)])
                            {
                                let layout = layout.map_or(WantedLayout::Any, WantedLayout::Number);
                                let wanted =
                                    WantedArray { level: to, layout, chunk_size, raid_disks: more };
                                let start = geometry(from, number, disks);
                                let Ok(legs) = route(&start, &wanted, spares) else { continue };
                                seen += 1;
                                the_same_way(start, &legs, spares);
                            }
                        }
                    }
                }
            }
        }
        assert!(seen > 1000, "{seen}");
    }

    fn the_same_way(start: Geometry, legs: &[Leg], mut spares: usize) {
        let goal = goal_of(&start, legs);
        let mut at = start;
        for (nr, leg) in legs.iter().enumerate() {
            let left = route(&at, &WantedArray::of(&goal), spares).unwrap();
            let (is, should) = (words(&at, &left), words(&at, &legs[nr..]));
            assert_eq!(is, should, "{} {} of {}", at.level, at.layout_number, at.slots());
            let before = at.slots();
            at = match leg {
                Leg::Level(shape) => new_geometry(&at, shape),
                Leg::Reshape(shape) => reshaped(&at, shape).unwrap(),
            };
            spares = (spares + before).saturating_sub(at.slots());
        }
        let is = (at.level, at.layout_number, at.layout.chunk_size(), at.slots());
        assert_eq!(is, (goal.level, goal.layout, goal.chunk_size, goal.raid_disks));
    }
}
