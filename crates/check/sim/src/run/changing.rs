//! Runs of a single array that gets one level and shape after another, and meets little else: power fails, members fail. What
//! other runs do before they come to that seldom leaves an array that may.

use super::Run;
use super::calm::Calm;
use super::plan::{Plan, Streams};
use crate::rng::Rng;
use crate::verdict::Report;
use crate::waiting::Over;
use braid_array::options::CreateBitmap;
use braid_layout::Level;

const KIB: u64 = 1 << 10;
/// Room for a chunk and more on either side of the data.
const ROOM: u64 = 256 * KIB;
/// The stream of the array and its members.
const ARRAY: u64 = 116;
/// Members that may be added, beside those that hold slots.
const MORE: usize = 5;

/// Carries out a run.
pub fn run(seed: u64, verbose: bool) -> Report {
    super::carry_out(plan(seed), false, verbose, Run::changes)
}

impl Run {
    fn changes(&mut self) -> Result<(), Over> {
        self.first_life()?;
        self.wait_for_jobs()?;
        for _ in 0..1 + self.rng.below(3) {
            self.quiet_round()?;
            match self.rng.below(3) {
                0 => self.level_changes()?,
                1 => self.level_steps()?,
                _ => self.stripes_and_copies()?,
            }
        }
        if self.chances.level_0.on {
            self.level_0_at_last()?;
        }
        self.ending()
    }
}

/// A level that has others to become, its layout, and slots.
fn level(rng: &Rng) -> (Level, Option<u32>, usize) {
    let disks = 2 + rng.below(4);
    match rng.below(10) {
        0..=2 => (Level::Raid0, Some(1), disks),
        3 => (Level::Raid10, Some(0x102), if rng.percent(50) { 4 } else { 6 }),
        4 => (Level::Raid4, None, disks.max(3)),
        5 => (Level::Raid1, None, 2),
        6 | 7 => (Level::Raid5, Some(rng.below(6) as u32), disks.max(3)),
        _ => (Level::Raid6, Some(*rng.pick(&[0, 2, 5, 8, 16, 18, 20])), disks.max(4)),
    }
}

fn plan(seed: u64) -> Plan {
    let rng = &Rng::new(seed, ARRAY);
    let shape = level(rng);
    let calm = Calm { seed, stream: ARRAY, rng, shape, room: ROOM, more: MORE };
    calm.plan(
        |rng| (4 + rng.range(0..12)) * 16 * KIB,
        |rng, create| {
            create.bitmap = match create.level.has_redundancy() && rng.percent(30) {
                true => CreateBitmap::Internal { chunk: Some(4 * KIB) },
                false => CreateBitmap::None,
            };
        },
        Streams::CHANGING,
    )
}
