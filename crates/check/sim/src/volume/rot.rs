//! A block of a file that rots after the last stop: a scrub must name it and nothing else, and it is not read as if it were right.
//! When one copy of several rots another is read, and the scrub puts it right.

use super::copies::copies_of;
use super::ledger::Pairs;
use super::run::{Mounting, VolumeRun, uuid_of};
use crate::member::Member;
use crate::rng::Rng;
use crate::waiting::{Over, wait};
use braid_filesystem::{Errno, FileSystem, Ino};
use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::extent::{Extent, stripe_of};
use braid_format::volume::sums::{self, PER_REGION, PER_WINDOW, UNKNOWN};
use braid_format::volume::{BLOCK, keys};
use braid_volume::{CheckEnd, Geometry, Lost, Volume};
use std::rc::Rc;

/// A block of a file that has a checksum.
struct Place {
    ino: Ino,
    /// Counted from the start of the file.
    block: u64,
    /// Of each copy that has it the brick, and its block of the brick's data area.
    copies: Vec<(u16, u64)>,
    /// Files that have it, and their block that it is: this one, and others that have the same extents.
    files: Vec<(Ino, u64)>,
}

impl VolumeRun {
    /// Changes a byte of a block that has a checksum, in one copy or in all, and looks whether it is noticed. The volume has been
    /// stopped.
    pub(super) fn rot(&mut self) -> Result<(), Over> {
        let rng = Rng::new(self.world.seed, 78);
        if self.plan.faults > 0 || !rng.percent(50) {
            return Ok(());
        }
        let Some(place) = some_place(&rng, self.metadata.pairs(), self.plan.stripe) else {
            return Ok(());
        };
        let within = rng.range(0..BLOCK);
        let is_over_array = |(brick, _): &(u16, u64)| {
            let index = self.place_of(*brick, 0).map(|(member, _)| member.kind.index);
            index.is_some_and(|index| self.over_arrays.is_array(index))
        };
        if place.copies.iter().any(is_over_array) {
            return self.rot_in_an_array(&place, within);
        }
        let left = place.copies.len() > 1 && rng.percent(70);
        let first = if left { rng.below(place.copies.len()) } else { 0 };
        let count = if left { 1 } else { place.copies.len() };
        let mut right = [0];
        for (brick, block) in place.copies.iter().skip(first).take(count) {
            let Some((member, start)) = self.place_of(*brick, *block) else { return Ok(()) };
            let (at, mut byte) = (start + within, [0]);
            if member.read(at, &mut byte).is_err() || member.read(start, &mut right).is_err() {
                return Ok(());
            }
            self.world.trace(|| {
                let (ino, block, name) = (place.ino, place.block, member.name());
                format!("rot: file {ino}, block {block}: byte {at} of {name}")
            });
            member.rot(at, &[byte[0] ^ 0x40]);
        }
        let what = format!(
            "{count} of {} copies of block {} of file {} have rotten",
            place.copies.len(),
            place.block,
            place.ino
        );
        self.must_notice(&place, (left, right), &what)
    }

    /// The same in one leaf of a brick that is an array with redundancy: the volume asks that for what was written.
    fn rot_in_an_array(&mut self, place: &Place, within: u64) -> Result<(), Over> {
        let [(brick, block)] = place.copies[..] else { return Ok(()) };
        let Some((member, start)) = self.place_of(brick, block) else { return Ok(()) };
        let Some((leaf, start)) = self.over_arrays.leaf_with(member.kind.index, start) else {
            return Ok(());
        };
        let (mut right, mut byte) = ([0], [0]);
        let at = start + within;
        if leaf.read(start, &mut right).is_err() || leaf.read(at, &mut byte).is_err() {
            return Ok(());
        }
        leaf.rot(at, &[byte[0] ^ 0x40]);
        let name = leaf.name();
        let what =
            format!("file {}, block {}: byte {at} of {name} has rotten", place.ino, place.block);
        self.world.trace(|| what.clone());
        self.must_notice(place, (true, right), &what)
    }

    /// Mounts the volume, reads the block and scrubs twice. `left`: something is left that is right, and begins with that byte.
    fn must_notice(
        &mut self,
        place: &Place,
        (left, right): (bool, [u8; 1]),
        what: &str,
    ) -> Result<(), Over> {
        let Mounting { later, machine, arrays, .. } = self.begin_mount(1);
        let volume = match wait(&machine, "the mount of a volume with rot", &later)? {
            Ok(volume) => volume,
            Err(error) => return self.fail("mounts", error.to_string()),
        };
        let own: Rc<Volume> = Rc::clone(&volume);
        let (ino, offset) = (place.ino, place.block * BLOCK);
        let later = machine.begin(async move {
            let read = own.read(ino, offset, 1).await.map(|bytes| bytes.to_vec());
            let inside = own.attr(ino).await.is_ok_and(|attr| attr.size > offset);
            let mut ends = Vec::new();
            for _ in 0..2 {
                own.start_scrub()?;
                own.wait_check().await;
                ends.push(own.last_check());
            }
            let _ = own.close().await;
            Ok::<_, braid_volume::VolumeError>((read, inside, ends))
        });
        let (read, inside, ends) = match wait(&machine, "a scrub of a volume with rot", &later)? {
            Ok(found) => found,
            Err(error) => return self.fail("scrub_finds_rot", error.to_string()),
        };
        let wanted = if left { Ok(right.to_vec()) } else { Err(Errno::Io) };
        if inside && read != wanted {
            return self.fail("rot_is_not_read", format!("{what}; it is read: {read:?}"));
        }
        let mut is_mended = false;
        for (scrub, end) in ends.into_iter().enumerate() {
            let Some(CheckEnd::Done(report)) = end else {
                return self.fail("scrub_finds_rot", format!("{what}; the scrub ended: {end:?}"));
            };
            let named = |list: &[Lost]| -> Vec<_> {
                list.iter().map(|file| (file.ino, file.ranges.clone())).collect()
            };
            let of =
                |(ino, block): &(Ino, u64)| (*ino, vec![(block * BLOCK, block * BLOCK + BLOCK)]);
            let here: Vec<_> = place.files.iter().map(of).collect();
            let (rotten, mended) = (named(&report.rotten), named(&report.mended));
            // A read of the rotten copy has put it right before. Of an array each scrub reads one copy, and the rest is
            // the array's own business.
            let may_mend = !is_mended && (scrub == 0 || !self.plan.arrays.all.is_empty());
            let is_right = match left {
                true => {
                    rotten.is_empty()
                        && (mended.is_empty()
                            || may_mend && mended.iter().all(|one| here.contains(one)))
                }
                false => rotten == here && mended.is_empty(),
            };
            is_mended |= !mended.is_empty();
            if inside && !is_right {
                let text = format!("{what}; scrub {scrub} names {rotten:?}, and mended {mended:?}");
                return self.fail("scrub_finds_rot", text);
            }
        }
        self.over_arrays.stop(&machine, &arrays)
    }

    /// The device of a brick, and the byte of it where a block of its data area begins.
    fn place_of(&self, brick: u16, block: u64) -> Option<(Rc<Member>, u64)> {
        let record = self.metadata.pairs().get(&keys::brick(brick))?;
        let uuid = BrickRecord::parse(brick, record).ok()?.uuid;
        let mut all = self.plan.all_bricks().enumerate();
        let (index, plan) = all.find(|(at, _)| uuid_of(*at) == uuid)?;
        let member = self.world.members.borrow().get(index).cloned()?;
        Some((member, plan.data_offset + block * BLOCK))
    }
}

/// Some block of a file that is written and has a checksum.
fn some_place(rng: &Rng, pairs: &Pairs, stripe: u64) -> Option<Place> {
    let all: Vec<_> = pairs.range(b"H".to_vec()..b"I".to_vec()).collect();
    let (key, value) = *all.get(rng.below(all.len()))?;
    let (ino, window) = (keys::ino_of(key)?, keys::second_of(key)?);
    // The last crash left it in doubt, and the mounts since were too short to end that.
    if pairs.contains_key(&keys::intent(ino, window / PER_REGION)) {
        return None;
    }
    let known = sums::parse(ino, window, value).ok()?;
    let first = rng.below(known.len());
    let in_window = (0..known.len()).map(|at| (first + at) % known.len());
    let geometry = Geometry::new(stripe);
    in_window.filter(|at| known[*at] != UNKNOWN).find_map(|at| {
        let block = window * PER_WINDOW + at as u64;
        let within = block * BLOCK % stripe;
        let copies = copies_of(pairs, ino, block * BLOCK / stripe, stripe).into_iter();
        let copies = copies.filter(|extent| geometry.is_written(*extent, within));
        let copies: Vec<(u16, u64)> =
            copies.map(|extent| (extent.brick, extent.start + within / BLOCK)).collect();
        let files = files_with(pairs, (ino, block), stripe)?;
        (!copies.is_empty()).then_some(Place { ino, block, copies, files })
    })
}

/// The files that have the same extents as a file has for a block, and the blocks that those are of them. `None`: some have
/// only a part of the copies, or it is in a snapshot that one has it.
fn files_with(pairs: &Pairs, (ino, block): (Ino, u64), bytes: u64) -> Option<Vec<(Ino, u64)>> {
    let per = bytes / BLOCK;
    let own = copies_of(pairs, ino, block / per, bytes);
    let mut files = vec![(ino, block)];
    let owners = own.iter().flat_map(|extent| {
        let from = keys::owner(extent.place(), (0, 0));
        pairs.range(from..keys::after(&keys::common(extent.place())))
    });
    for (key, _) in owners {
        let (_, owner) = keys::owner_of(key)?;
        let (other, number) = owner?;
        let other = (other, stripe_of(number) * per + block % per);
        let places = |extents: &[Extent]| -> Vec<_> { extents.iter().map(Extent::place).collect() };
        let theirs = copies_of(pairs, other.0, other.1 / per, bytes);
        if places(&theirs) != places(&own) {
            return None;
        }
        if !files.contains(&other) {
            files.push(other);
        }
    }
    files.sort_unstable();
    Some(files)
}
