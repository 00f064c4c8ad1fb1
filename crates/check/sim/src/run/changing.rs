//! Runs of a single array that gets one level and shape after another, and meets little else: power fails, members fail. What
//! other runs do before they come to that seldom leaves an array that may.

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
    let (level, layout, disks) = level(rng);
    let chunk = *rng.pick(&[4 * KIB, 8 * KIB, 16 * KIB]);
    let component = (4 + rng.range(0..12)) * 16 * KIB;
    let (block, volatile, zeroes) = (*rng.pick(&[512, 4096]), rng.percent(70), rng.percent(75));
    let shards = *rng.pick(&[1, 1, 2, 3]);
    let redundant = level.has_redundancy();
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
    create.size = redundant.then_some(component);
    create.data_offset = Some(ROOM);
    create.assume_clean = zeroes && rng.percent(50);
    let bitmap = redundant && rng.percent(30);
    create.bitmap = match bitmap {
        true => CreateBitmap::Internal { chunk: Some(4 * KIB) },
        false => CreateBitmap::None,
    };
    let drawn = settings::draw(&Rng::new(seed, ARRAY + 1), level, chunk, block, shards);
    let assemble = AssembleOptions {
        bitmap_daemon_sleep_ms: bitmap.then_some(20),
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
    Plan { streams: Streams::CHANGING, ..Plan::alone(scenario) }
}
