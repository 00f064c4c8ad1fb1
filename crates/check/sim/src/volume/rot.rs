//! A block of a file that rots after the last stop: a scrub must name it and nothing else, and it is not read as if it were right.

use super::ledger::Pairs;
use super::run::{Mounting, VolumeRun, uuid_of};
use crate::rng::Rng;
use crate::waiting::{Over, wait};
use braid_filesystem::{Errno, FileSystem, Ino};
use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::extent::{self, PER_GROUP};
use braid_format::volume::sums::{self, PER_REGION, PER_WINDOW, UNKNOWN};
use braid_format::volume::{BLOCK, keys};
use braid_volume::{CheckEnd, Geometry, Volume};
use std::rc::Rc;

/// A block of a file that has a checksum.
struct Place {
    ino: Ino,
    /// Counted from the start of the file.
    block: u64,
    brick: u16,
    /// Its block of the brick's data area.
    at: u64,
}

impl VolumeRun {
    /// Changes a byte of a block that has a checksum, and looks whether it is noticed. The volume has been stopped.
    pub(super) fn rot(&mut self) -> Result<(), Over> {
        let rng = Rng::new(self.world.seed, 78);
        if self.plan.faults > 0 || !self.plan.arrays.all.is_empty() || !rng.percent(50) {
            return Ok(());
        }
        let Some(place) = some_place(&rng, self.metadata.pairs(), self.plan.stripe) else {
            return Ok(());
        };
        let record = self.metadata.pairs().get(&keys::brick(place.brick));
        let record = record.and_then(|bytes| BrickRecord::parse(place.brick, bytes).ok());
        let uuid = record.map(|record| record.uuid);
        let found = self.plan.all_bricks().enumerate().find(|(at, _)| Some(uuid_of(*at)) == uuid);
        let Some((index, brick)) = found else { return Ok(()) };
        let at = brick.data_offset + place.at * BLOCK + rng.range(0..BLOCK);
        let Some(member) = self.world.members.borrow().get(index).cloned() else { return Ok(()) };
        let mut byte = [0];
        if member.read(at, &mut byte).is_err() {
            return Ok(());
        }
        self.world.trace(|| {
            format!("rot: file {}, block {}: byte {at} of brick {index}", place.ino, place.block)
        });
        member.rot(at, &[byte[0] ^ 0x40]);
        let Mounting { later, machine, .. } = self.begin_mount(1);
        let volume = match wait(&machine, "the mount of a volume with rot", &later)? {
            Ok(volume) => volume,
            Err(error) => return self.fail("mounts", error.to_string()),
        };
        let own: Rc<Volume> = Rc::clone(&volume);
        let (ino, offset) = (place.ino, place.block * BLOCK);
        let later = machine.begin(async move {
            let read = own.read(ino, offset, 1).await.map(drop);
            let inside = own.attr(ino).await.is_ok_and(|attr| attr.size > offset);
            own.start_scrub()?;
            own.wait_check().await;
            let end = own.last_check();
            let _ = own.close().await;
            Ok::<_, braid_volume::VolumeError>((read, inside, end))
        });
        let (read, inside, end) = match wait(&machine, "a scrub of a volume with rot", &later)? {
            Ok(found) => found,
            Err(error) => return self.fail("scrub_finds_rot", error.to_string()),
        };
        let what = format!("block {} of file {} has rotten", place.block, place.ino);
        if inside && read != Err(Errno::Io) {
            return self.fail("rot_is_not_read", format!("{what}; it is read: {read:?}"));
        }
        let Some(CheckEnd::Done(report)) = end else {
            return self.fail("scrub_finds_rot", format!("{what}; the scrub ended: {end:?}"));
        };
        let named: Vec<_> = report.rotten.iter().map(|file| (file.ino, &file.ranges[..])).collect();
        let right = [(offset, offset + BLOCK)];
        if inside && named != [(place.ino, &right[..])] {
            return self.fail("scrub_finds_rot", format!("{what}; the scrub names {named:?}"));
        }
        Ok(())
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
        let number = block * BLOCK / stripe;
        let within = block * BLOCK % stripe;
        let value = pairs.get(&keys::extents(ino, number / PER_GROUP))?;
        let group = extent::parse(ino, number / PER_GROUP, stripe, value).ok()?;
        let extent = group[(number % PER_GROUP) as usize];
        geometry.is_written(extent, within).then_some(Place {
            ino,
            block,
            brick: extent.brick,
            at: extent.start + within / BLOCK,
        })
    })
}
