//! The single array of runs that are about one thing and meet little else: its members are alike, have room on either side of the
//! data, and do what they are told.

use super::plan::{Plan, Streams};
use crate::member::MemberKind;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::settings;
use crate::world::Manners;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
use braid_device::DeviceInfo;
use braid_format::superblock::Version;
use braid_layout::Level;

const KIB: u64 = 1 << 10;

/// See the module's documentation. Sizes in bytes.
pub(super) struct Calm<'a> {
    pub(super) seed: u64,
    /// The stream of the array and its members; the next one is that of its settings.
    pub(super) stream: u64,
    pub(super) rng: &'a Rng,
    /// Level, md's number of the layout, and slots.
    pub(super) shape: (Level, Option<u32>, usize),
    /// Room on either side of the data.
    pub(super) room: u64,
    /// Members that may be added, beside those that hold slots.
    pub(super) more: usize,
}

impl Calm<'_> {
    /// The plan of a run whose components have `component` bytes; `create` has the last word on the array.
    pub(super) fn plan(
        self,
        component: impl FnOnce(&Rng) -> u64,
        create: impl FnOnce(&Rng, &mut CreateOptions),
        streams: Streams,
    ) -> Plan {
        let Calm { seed, stream, rng, shape: (level, layout, disks), room, more } = self;
        let chunk = *rng.pick(&[4 * KIB, 8 * KIB, 16 * KIB]);
        let component = component(rng);
        let (block, volatile, zeroes) = (*rng.pick(&[512, 4096]), rng.percent(70), rng.percent(75));
        let shards = *rng.pick(&[1, 1, 2, 3]);
        let members = (0..disks + more).map(|index| {
            let mut info = DeviceInfo::plain(format!("m{index}"), component + 2 * room);
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
        let mut options = CreateOptions::new("sim", level, disks);
        options.layout = layout;
        options.chunk_size = (level != Level::Raid1).then_some(chunk);
        options.version = *rng.pick(&[Version::V1_2, Version::V1_2, Version::V1_1]);
        options.size = level.has_redundancy().then_some(component);
        options.data_offset = Some(room);
        options.assume_clean = zeroes && rng.percent(50);
        create(rng, &mut options);
        let has_bitmap = matches!(options.bitmap, CreateBitmap::Internal { .. });
        let drawn = settings::draw(&Rng::new(seed, stream + 1), level, chunk, block, shards);
        let assemble = AssembleOptions {
            bitmap_daemon_sleep_ms: has_bitmap.then_some(20),
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
            create: options,
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
        Plan { streams, ..Plan::alone(scenario) }
    }
}
