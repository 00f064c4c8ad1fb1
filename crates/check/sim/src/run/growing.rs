//! Runs of a single array that grows, and meets little else: one of level 10 gets more members, fewer, other chunks or another
//! layout, and one with a bitmap larger components. Power fails, members fail. What other runs do before they come to that
//! seldom leaves an array that may.

use super::Run;
use super::calm::Calm;
use super::plan::{Plan, Streams};
use crate::rng::Rng;
use crate::verdict::Report;
use crate::waiting::Over;
use braid_array::options::CreateBitmap;
use braid_layout::Level;

const KIB: u64 = 1 << 10;
/// Room for what the data has to move by on either side of it, and for larger components.
const ROOM: u64 = 512 * KIB;
/// The stream of the array and its members.
const ARRAY: u64 = 1010;
/// Members that may be added, beside those that hold slots.
const MORE: usize = 4;
/// Near and offset, of two copies and of three.
const LAYOUTS_10: [u32; 4] = [0x102, 0x1_0201, 0x103, 0x1_0301];

/// Carries out a run.
pub fn run(seed: u64, verbose: bool) -> Report {
    super::carry_out(plan(seed), false, verbose, Run::grows)
}

impl Run {
    fn grows(&mut self) -> Result<(), Over> {
        self.first_life()?;
        self.wait_for_jobs()?;
        let moves = !self.plan.scenario.has_bitmap();
        for _ in 0..1 + self.rng.below(3) {
            self.quiet_round()?;
            if self.promises.excused {
                break;
            }
            match self.rng.percent(40) {
                _ if !moves => self.components_grow()?,
                true => self.gets_more_members()?,
                false => self.gets_another_shape()?,
            }
        }
        self.ending()
    }
}

/// Level, layout and slots; `moves`: data is to be moved.
fn shape(rng: &Rng, moves: bool) -> (Level, Option<u32>, usize) {
    let disks = 3 + rng.below(4);
    match rng.below(4) {
        _ if moves => (Level::Raid10, Some(*rng.pick(&LAYOUTS_10)), disks),
        0 => (Level::Raid1, None, 2 + disks % 2),
        1 => (Level::Raid5, Some(rng.below(6) as u32), disks),
        2 => (Level::Raid6, Some(*rng.pick(&[0, 2, 5, 8, 16, 18, 20])), disks.max(4)),
        _ => (Level::Raid10, Some(*rng.pick(&LAYOUTS_10)), disks),
    }
}

fn plan(seed: u64) -> Plan {
    let rng = &Rng::new(seed, ARRAY);
    let moves = rng.percent(70);
    let calm = Calm { seed, stream: ARRAY, rng, shape: shape(rng, moves), room: ROOM, more: MORE };
    calm.plan(
        // An odd number of chunks, too: the last row may be partly in use.
        |rng| (6 + rng.range(0..24)) * 48 * KIB,
        |rng, create| {
            create.bad_block_log = rng.percent(30);
            create.bitmap = match moves {
                true => CreateBitmap::None,
                false => CreateBitmap::Internal { chunk: Some(16 * KIB) },
            };
        },
        Streams::GROWING,
    )
}
