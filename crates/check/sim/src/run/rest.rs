//! A stack at rest, read from the images of its leaves alone: what every array holds is composed from the
//! bottom up by the layouts, superblocks and bad-block logs of the upper arrays are read from that, and md's
//! rules say at each layer whose copy counts. Asks nothing of the engine.

use super::plan::{ArrayPlan, Below};
use super::standing::Held;
use crate::checkers::{gf, md_can_assemble, parity_matches_data};
use crate::images::{self, Choice};
use crate::member::Member;
use crate::oracle::Oracle;
use crate::world::World;
use braid_format::superblock::{READ_LEN, Superblock, location};
use braid_layout::Layout;
use std::ops::Range;
use std::rc::Rc;

const SECTOR: u64 = 512;

/// Reads bytes of a member's image.
type Image<'a> = Box<dyn Fn(Range<u64>) -> Vec<u8> + 'a>;

/// One array at rest.
pub struct Resting {
    /// Whom md would start it with.
    pub choice: Choice<Held>,
    /// By slot: what stands there in sync, and where its component starts.
    slots: Vec<Option<(Held, u64)>>,
    /// By slot: component bytes that it does not give.
    holes: Vec<Vec<Range<u64>>>,
    /// By slot: component bytes that are recorded as bad.
    bad: Vec<(usize, Range<u64>)>,
    components: Vec<Option<Vec<u8>>>,
    /// What it holds, and where that cannot be told.
    image: Vec<u8>,
    unknown: Vec<Range<u64>>,
}

/// See the module's documentation.
pub struct AtRest {
    /// By number; `None`: it is not one that can be started.
    pub arrays: Vec<Option<Resting>>,
}

fn meets(ranges: &[Range<u64>], at: u64, len: u64) -> bool {
    ranges.iter().any(|range| range.start < at + len && at < range.end)
}

impl AtRest {
    /// Looks at the arrays that `expected` says are whole enough to start; each of them must be.
    pub fn look(
        world: &World,
        plans: &[ArrayPlan],
        layouts: &[Rc<Layout>],
        expected: &[bool],
    ) -> AtRest {
        let mut rest = AtRest { arrays: Vec::new() };
        for (nr, plan) in plans.iter().enumerate() {
            let one = if expected[nr] { rest.one(world, plan, &layouts[nr]) } else { None };
            if world.failure().is_some() {
                return rest;
            }
            rest.arrays.push(one);
        }
        rest
    }

    fn one(&self, world: &World, plan: &ArrayPlan, layout: &Layout) -> Option<Resting> {
        let found: Vec<(Held, Superblock)> = match &plan.below {
            Below::Leaves(leaves) => {
                let present: Vec<Rc<Member>> = leaves
                    .iter()
                    .map(|index| world.member(*index))
                    .filter(|leaf| !leaf.is_gone() && images::superblock(world, leaf).is_some())
                    .collect();
                md_can_assemble::look(world, layout, &present, true);
                let with = |leaf: &Rc<Member>| {
                    Some((Held::Leaf(leaf.kind.index), images::superblock(world, leaf)?))
                };
                present.iter().filter_map(with).collect()
            }
            Below::Arrays(arrays) => arrays
                .iter()
                .filter_map(|nr| Some((Held::Array(*nr), self.superblock(world, *nr)?)))
                .collect(),
        };
        let Some(choice) = images::choose(&found) else {
            let text = format!("{}: no member has a superblock", plan.create.name);
            world.fail("md_can_assemble", text);
            return None;
        };
        let holds = |slot| choice.in_sync.iter().any(|(held, _)| *held == slot);
        if !layout.survives(holds) {
            let slots: Vec<usize> = choice.in_sync.iter().map(|(slot, _)| *slot).collect();
            let text = format!(
                "{}: of {} slots only {slots:?} have a member that counts as in sync",
                plan.create.name,
                layout.slots()
            );
            world.fail("md_can_assemble", text);
            return None;
        }
        let mut resting = Resting {
            slots: vec![None; layout.slots()],
            holes: vec![Vec::new(); layout.slots()],
            bad: Vec::new(),
            components: vec![None; layout.slots()],
            image: Vec::new(),
            unknown: Vec::new(),
            choice,
        };
        for (slot, held) in resting.choice.in_sync.clone() {
            let Some((_, sb)) = found.iter().find(|(other, _)| *other == held) else { continue };
            self.fill(world, &mut resting, slot, (held, sb));
        }
        (resting.image, resting.unknown) = compose(layout, &resting.components, &resting.holes);
        Some(resting)
    }

    /// The superblock of the array above that array `nr` holds.
    fn superblock(&self, world: &World, nr: usize) -> Option<Superblock> {
        let image = &self.arrays.get(nr)?.as_ref()?.image;
        let sectors = image.len() as u64 / SECTOR;
        let at = location(world.metadata, sectors)?;
        let start = (at * SECTOR) as usize;
        let bytes = image.get(start..(start + READ_LEN).min(image.len()))?;
        Superblock::parse(bytes, world.metadata, at, sectors).ok()
    }

    fn fill(
        &self,
        world: &World,
        resting: &mut Resting,
        slot: usize,
        (held, sb): (Held, &Superblock),
    ) {
        let start = sb.data_offset * SECTOR;
        let len = SECTOR * if sb.size == 0 { sb.data_size } else { sb.size };
        let (name, image, mut holes): (String, Image<'_>, Vec<Range<u64>>) = match held {
            Held::Leaf(index) => {
                let leaf = world.member(index);
                let holes = leaf.unreadable();
                (leaf.name().to_string(), Box::new(move |range| leaf.image(range)), holes)
            }
            Held::Array(nr) => {
                let Some(Some(lower)) = self.arrays.get(nr) else { return };
                let within = |range: &Range<u64>| {
                    range.start.saturating_sub(start)..range.end.saturating_sub(start)
                };
                let holes = lower.unknown.iter().map(within).collect();
                let image = move |range: Range<u64>| {
                    let range = range.start as usize..range.end as usize;
                    lower.image.get(range).unwrap_or(&[]).to_vec()
                };
                (format!("array:a{nr}"), Box::new(image), holes)
            }
        };
        let bad = images::bad_of(world, &name, sb, &image);
        holes.extend(bad.iter().cloned());
        resting.bad.extend(bad.into_iter().map(|range| (slot, range)));
        resting.holes[slot] = holes;
        resting.components[slot] = Some(image(start..start + len));
        resting.slots[slot] = Some((held, start));
    }

    /// The leaves that hold copies of byte `offset` of array `nr`, in sync at every layer, with the byte of
    /// each.
    pub fn copies(
        &self,
        layouts: &[Rc<Layout>],
        nr: usize,
        offset: u64,
        len: u64,
    ) -> Vec<(usize, u64)> {
        let (Some(Some(resting)), Some(layout)) = (self.arrays.get(nr), layouts.get(nr)) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for place in images::places(layout, offset) {
            let Some((held, start)) = resting.slots[place.slot] else { continue };
            if meets(&resting.holes[place.slot], place.offset, len) {
                continue;
            }
            match held {
                Held::Leaf(index) => all.push((index, start + place.offset)),
                Held::Array(lower) => {
                    all.extend(self.copies(layouts, lower, start + place.offset, len));
                }
            }
        }
        all
    }

    /// **copies_hold_acknowledged**: whichever copy counts as in sync at every layer holds, for each block of
    /// the top, a version that the block may hold (invariant 1, before anybody reads).
    pub fn copies_hold_acknowledged(
        &self,
        world: &World,
        layouts: &[Rc<Layout>],
        oracle: &mut Oracle,
    ) {
        let (top, size) = (self.arrays.len() - 1, oracle.block_size());
        let started = oracle.begin_read();
        for block in 0..oracle.len() {
            for (leaf, at) in self.copies(layouts, top, block * size, size) {
                let member = world.member(leaf);
                if let Err(text) = oracle.check(started, block, &member.image(at..at + size)) {
                    let text = format!("the copy on {} at byte {at}: {text}", member.name());
                    return world.fail("copies_hold_acknowledged", text);
                }
            }
        }
        oracle.end_read(started);
    }

    /// Redundancy on the images of array `nr` is that of its data.
    pub fn redundancy_matches(&self, world: &World, layout: &Layout, nr: usize) {
        let Some(Some(resting)) = self.arrays.get(nr) else { return };
        let mut left_out = resting.bad.clone();
        for (slot, holes) in resting.holes.iter().enumerate() {
            left_out.extend(holes.iter().map(|hole| (slot, sectors(hole))));
        }
        parity_matches_data::compare(world, layout, resting.components.clone(), &left_out);
    }
}

fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR * SECTOR..range.end
}

/// What an array holds, by its layout, and where that cannot be told.
fn compose(
    layout: &Layout,
    components: &[Option<Vec<u8>>],
    holes: &[Vec<Range<u64>>],
) -> (Vec<u8>, Vec<Range<u64>>) {
    let size = layout.array_size();
    let (mut image, mut unknown) = (vec![0; size as usize], Vec::new());
    let read = |slot: usize, at: u64| {
        let bytes = components.get(slot)?.as_ref()?.get(at as usize..(at + SECTOR) as usize)?;
        (!meets(&holes[slot], at, SECTOR)).then_some(bytes)
    };
    for at in (0..size / SECTOR).map(|sector| sector * SECTOR) {
        let target = &mut image[at as usize..(at + SECTOR) as usize];
        let mut places = images::places(layout, at).into_iter();
        if let Some(bytes) = places.find_map(|place| read(place.slot, place.offset)) {
            target.copy_from_slice(bytes);
        } else if !by_parity(layout, at, target, read) {
            unknown.push(at..at + SECTOR);
        }
    }
    (image, unknown)
}

/// Computes a sector from the rest of its row; false when too much of that is missing as well.
fn by_parity<'a>(
    layout: &Layout,
    at: u64,
    target: &mut [u8],
    read: impl Fn(usize, u64) -> Option<&'a [u8]>,
) -> bool {
    let Layout::Parity(parity) = layout else { return false };
    let (stripe, wanted, within) = parity.locate(at);
    let map = parity.map_stripe(stripe);
    let row = parity.member_offset(stripe) + within;
    let p = read(map.p_slot(), row);
    let q = map.q_slot().and_then(|slot| read(slot, row));
    let (mut sum, mut syndrome) = (target.to_vec(), target.to_vec());
    let mut missing = Vec::new();
    for k in 0..map.data_chunks() {
        match read(map.data_slot(k), row) {
            Some(bytes) => {
                gf::add(&mut sum, bytes);
                gf::add_power(&mut syndrome, bytes, map.exponent(k));
            }
            None => missing.push(k),
        }
    }
    let own = gf::power(map.exponent(wanted));
    match (missing.as_slice(), p, q) {
        ([_], Some(p), _) => {
            gf::add(&mut sum, p);
            target.copy_from_slice(&sum);
        }
        ([_], None, Some(q)) => {
            gf::add(&mut syndrome, q);
            gf::divide(&mut syndrome, own);
            target.copy_from_slice(&syndrome);
        }
        ([a, b], Some(p), Some(q)) => {
            // Both are in P, and in Q with factors of their own: take P times the other's factor away.
            let other = map.exponent(if *a == wanted { *b } else { *a });
            gf::add(&mut sum, p);
            gf::add(&mut syndrome, q);
            gf::add_power(&mut syndrome, &sum, other);
            gf::divide(&mut syndrome, own ^ gf::power(other));
            target.copy_from_slice(&syndrome);
        }
        _ => return false,
    }
    true
}
