//! Runs of a single array that grows, and meets little else: one of level 10 gets more members, fewer, other chunks or another
//! layout, and one with a bitmap larger components. Power fails, members fail. What other runs do before they come to that
//! seldom leaves an array that may.

use super::Run;
use super::plan::{Plan, Streams};
use crate::member::MemberKind;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::settings;
use crate::verdict::Report;
use crate::waiting::Over;
use crate::world::Manners;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
use braid_device::DeviceInfo;
use braid_format::superblock::Version;
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
    let (level, layout, disks) = shape(rng, moves);
    let chunk = *rng.pick(&[4 * KIB, 8 * KIB, 16 * KIB]);
    // An odd number of chunks, too: the last row may be partly in use.
    let component = (6 + rng.range(0..24)) * 48 * KIB;
    let (block, volatile, zeroes) = (*rng.pick(&[512, 4096]), rng.percent(70), rng.percent(75));
    let shards = *rng.pick(&[1, 1, 2, 3]);
    let members = (0..disks + MORE).map(|index| {
        let mut info = DeviceInfo::plain(format!("m{index}"), component + 2 * ROOM);
        info.logical_block = block as u32;
        info.volatile_cache = volatile;
        MemberKind {
            index,
            array: 0,
            info,
            tear: block,
            lies: false,
            garbage: (!zeroes).then_some(seed),
        }
    });
    let mut create = CreateOptions::new("sim", level, disks);
    create.layout = layout;
    create.chunk_size = (level != Level::Raid1).then_some(chunk);
    create.version = *rng.pick(&[Version::V1_2, Version::V1_2, Version::V1_1]);
    create.size = Some(component);
    create.data_offset = Some(ROOM);
    create.assume_clean = zeroes && rng.percent(50);
    create.bad_block_log = rng.percent(30);
    create.bitmap = match moves {
        true => CreateBitmap::None,
        false => CreateBitmap::Internal { chunk: Some(16 * KIB) },
    };
    let drawn = settings::draw(&Rng::new(seed, ARRAY + 1), level, chunk, block, shards);
    let assemble = AssembleOptions {
        bitmap_daemon_sleep_ms: (!moves).then_some(20),
        safe_mode_delay_ms: *rng.pick(&[1, 20, 200]),
        sync_speed: SyncSpeed { min_kib: 1000, max_kib: u64::MAX },
        settings: drawn,
        ..AssembleOptions::default()
    };
    let manners = Manners {
        inline: *rng.pick(&[0, 0, 30]),
        latency: *rng.pick(&[20_000, 200_000]),
        slow: 0,
        hang: 0,
        unsupported: 0,
    };
    let scenario = Scenario {
        seed,
        create,
        assemble,
        shards,
        members: members.collect(),
        journal: None,
        block,
        zeroes,
        volatile,
        lies: false,
        manners,
        depth: 1 + rng.range(0..12),
        phases: 1,
        requests: 20 + rng.range(0..60),
        faults: 0,
        changes: 0,
        bitmap_changes: false,
        ppl_changes: false,
        beyond: false,
        hot: 16 * chunk,
    };
    Plan { streams: Streams::GROWING, ..Plan::alone(scenario) }
}
