//! What short histories are of: every kind of array whose redundancy a power cut could harm, small.

use crate::member::MemberKind;
use crate::rng::Rng;
use crate::run::plan::Plan;
use crate::scenario::Scenario;
use crate::settings;
use crate::world::Manners;
use braid_array::control::reshaping::WantedShape;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
use braid_device::DeviceInfo;
use braid_format::superblock::Version;
use braid_layout::{Level, Slot, default_layout};
use clap::ValueEnum;
use std::ops::Range;

const KIB: u64 = 1 << 10;
/// Chunk of every array.
const CHUNK: u64 = 16 * KIB;
/// The chunk that one is given.
const NEW_CHUNK: u64 = 32 * KIB;
/// Level 10 with two copies, each in the row behind the other.
const OFFSET_2: u32 = 0x1_0201;
/// Stripes of every array.
const STRIPES: u64 = 4;
/// Where data starts; with a partial parity log, which has a mebibyte before that.
const DATA_OFFSET: u64 = 1024 * KIB;
const PPL_DATA_OFFSET: u64 = 2048 * KIB;
/// Bytes of a journal's device before its log.
const JOURNAL_BEFORE: u64 = 32 * KIB;
/// Logical block of members and arrays.
const BLOCK: u64 = 512;
/// Writes of each history.
const WRITES: u64 = 3;
/// What a history does is drawn from this stream.
const HISTORY: u64 = 121;

/// What protects redundancy across a power cut, or what is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Protection {
    /// Everything is resynced.
    Resync,
    /// A write-intent bitmap.
    Bitmap,
    /// A partial parity log.
    Ppl,
    /// One more member, or two, while no policy but a resync helps.
    Reshape,
    /// A write journal.
    Journal,
    /// Other chunks, while no policy but a resync helps.
    Chunk,
    /// Another shape of level 10, while no policy but a resync helps: one more member, other chunks, or another layout.
    Copies,
}

impl Protection {
    /// All of them.
    pub const ALL: [Protection; 7] = [
        Protection::Resync,
        Protection::Bitmap,
        Protection::Ppl,
        Protection::Reshape,
        Protection::Journal,
        Protection::Chunk,
        Protection::Copies,
    ];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Resync => "resync",
            Protection::Bitmap => "bitmap",
            Protection::Ppl => "ppl",
            Protection::Reshape => "reshape",
            Protection::Journal => "journal",
            Protection::Chunk => "chunk",
            Protection::Copies => "copies",
        }
    }

    /// The layout at first of history number `turn` of those with one shape, and the shape that the array, of so many members,
    /// is given meanwhile.
    fn reshaped(self, turn: u64, level: Level, disks: usize) -> (u32, Option<WantedShape>) {
        let by = |more| WantedShape { raid_disks: Some(disks + more), ..WantedShape::default() };
        let more = by(1);
        let chunk = WantedShape { chunk_size: Some(NEW_CHUNK), ..WantedShape::default() };
        let offset = WantedShape { layout: Some(OFFSET_2), ..WantedShape::default() };
        let layout = default_layout(level);
        match self {
            // More than the level can do without, too.
            Protection::Reshape => (layout, Some(by(1 + (turn % 2) as usize))),
            Protection::Chunk => (layout, Some(chunk)),
            Protection::Copies => match turn % 4 {
                0 => (layout, Some(more)),
                1 => (layout, Some(chunk)),
                2 => (layout, Some(offset)),
                _ => (OFFSET_2, Some(more)),
            },
            _ => (layout, None),
        }
    }

    fn shapes(self) -> &'static [(Level, usize)] {
        match self {
            Protection::Resync | Protection::Bitmap => &[
                (Level::Raid5, 3),
                (Level::Raid5, 4),
                (Level::Raid6, 4),
                (Level::Raid6, 5),
                (Level::Raid4, 3),
                (Level::Raid1, 2),
                (Level::Raid1, 3),
                (Level::Raid10, 4),
            ],
            Protection::Ppl => &[(Level::Raid5, 3), (Level::Raid5, 4), (Level::Raid5, 5)],
            Protection::Journal => &[
                (Level::Raid5, 3),
                (Level::Raid6, 4),
                (Level::Raid4, 3),
                (Level::Raid5, 4),
                (Level::Raid6, 5),
            ],
            Protection::Reshape | Protection::Chunk => {
                &[(Level::Raid5, 3), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid4, 3)]
            }
            Protection::Copies => &[(Level::Raid10, 4), (Level::Raid10, 3), (Level::Raid10, 2)],
        }
    }
}

/// What all cuts of one history have in common.
#[derive(Clone, Debug)]
pub struct Case {
    /// The number that it was drawn from.
    pub history: u64,
    /// See there.
    pub protection: Protection,
    /// The level.
    pub level: Level,
    /// Its layout at first, md's number.
    layout: u32,
    /// Slots.
    pub disks: usize,
    /// Members that have failed before.
    pub failed: Vec<Slot>,
    /// The shape that it is given meanwhile.
    pub wanted: Option<WantedShape>,
    /// What is asked; a flush has no blocks.
    pub requests: Vec<(Range<u64>, bool)>,
    /// Redundancy does not hold at first: members hold anything, and the first resync is under way.
    pub fresh: bool,
    shards: usize,
    volatile: bool,
}

impl Case {
    /// History number `history` of this kind.
    pub fn of(protection: Protection, history: u64) -> Case {
        let rng = Rng::new(history, HISTORY + protection as u64);
        let shapes = protection.shapes();
        let (level, disks) = shapes[(history % shapes.len() as u64) as usize];
        let tolerance = match level {
            Level::Raid1 => disks - 1,
            Level::Raid6 => 2,
            _ => 1,
        };
        // As many as there can be, fewer, or none; a reshape begins with all.
        let turn = history / shapes.len() as u64;
        let (layout, wanted) = protection.reshaped(turn, level, disks);
        let reshapes = wanted.is_some();
        let count = match reshapes {
            true => 0,
            false => (turn % (tolerance as u64 + 1)) as usize,
        };
        let first = rng.below(disks);
        let failed = (0..count).map(|nr| (first + nr) % disks).collect();
        let data = match level {
            Level::Raid1 => 1,
            Level::Raid10 => disks as u64 / 2,
            level => (disks - level.parity_count()) as u64,
        };
        let blocks = STRIPES * data * CHUNK / BLOCK;
        let mut requests = Vec::new();
        for _ in 0..WRITES {
            let most =
                *rng.pick(&[1, CHUNK / BLOCK, data * CHUNK / BLOCK, 2 * data * CHUNK / BLOCK]);
            let len = 1 + rng.range(0..most);
            let start = rng.range(0..blocks - len + 1);
            requests.push((start..start + len, rng.percent(25)));
            if rng.percent(25) {
                requests.push((0..0, false));
            }
        }
        let shards = if rng.percent(25) { 2 } else { 1 };
        let volatile = rng.percent(75);
        // What fails before the first resync takes with it what was there.
        let fresh = count == 0 && !reshapes && rng.percent(40);
        Case {
            history,
            protection,
            level,
            layout,
            disks,
            failed,
            wanted,
            requests,
            fresh,
            shards,
            volatile,
        }
    }

    /// Slots of which one can still be lost, each alone, with nothing that level and policy promise.
    pub fn may_lose(&self) -> Vec<Slot> {
        let survives = match self.level {
            Level::Raid1 => self.failed.len() + 1 < self.disks,
            Level::Raid6 => self.failed.len() < 2,
            _ => self.failed.is_empty(),
        };
        if survives {
            (0..self.disks).filter(|slot| !self.failed.contains(slot)).collect()
        } else {
            Vec::new()
        }
    }

    /// The array and its members.
    pub fn plan(&self) -> Plan {
        let grown = self.wanted.and_then(|wanted| wanted.raid_disks);
        let spares = grown.map_or(0, |disks| disks - self.disks);
        let component = STRIPES * CHUNK;
        let ppl = self.protection == Protection::Ppl;
        let data_offset = if ppl { PPL_DATA_OFFSET } else { DATA_OFFSET };
        let members = (0..self.disks + spares).map(|index| {
            let size = data_offset + component + 64 * KIB;
            let mut info = DeviceInfo::plain(format!("m{index}"), size);
            info.logical_block = BLOCK as u32;
            info.volatile_cache = self.volatile;
            let garbage = self.fresh.then_some(self.history);
            MemberKind { index, array: 0, info, tear: BLOCK, lies: false, garbage }
        });
        let mut create = CreateOptions::new("short", self.level, self.disks);
        create.layout = Some(self.layout);
        create.chunk_size = (self.level != Level::Raid1).then_some(CHUNK);
        create.spares = spares;
        create.version = Version::V1_2;
        create.size = Some(component);
        create.data_offset = Some(data_offset);
        create.assume_clean = !self.fresh;
        create.ppl = ppl;
        create.bitmap = match self.protection {
            Protection::Bitmap => CreateBitmap::Internal { chunk: Some(4 * KIB) },
            _ => CreateBitmap::None,
        };
        let rng = Rng::new(self.history, HISTORY + 40);
        let assemble = AssembleOptions {
            bitmap_daemon_sleep_ms: Some(20),
            safe_mode_delay_ms: 20,
            sync_speed: SyncSpeed { min_kib: 1000, max_kib: u64::MAX },
            settings: settings::draw(&rng, self.level, CHUNK, BLOCK, self.shards),
            ..AssembleOptions::default()
        };
        let journal = (self.protection == Protection::Journal).then(|| {
            let index = self.disks + spares;
            let stripe = CHUNK / 4096 * (self.disks as u64 + 1) + 2;
            let mut info = DeviceInfo::plain(
                format!("m{index}"),
                JOURNAL_BEFORE + (2 * stripe).max(60) * 4096,
            );
            info.logical_block = BLOCK as u32;
            info.volatile_cache = self.volatile;
            MemberKind { index, array: 0, info, tear: BLOCK, lies: false, garbage: None }
        });
        create.write_journal = journal.is_some();
        let manners = Manners { inline: 0, latency: 200_000, slow: 0, hang: 0, unsupported: 0 };
        Plan::alone(Scenario {
            seed: self.history,
            create,
            assemble,
            shards: self.shards,
            members: members.collect(),
            journal,
            block: BLOCK,
            zeroes: !self.fresh,
            volatile: self.volatile,
            lies: false,
            manners,
            depth: WRITES + 1,
            phases: 1,
            requests: WRITES,
            faults: 0,
            changes: 0,
            bitmap_changes: false,
            ppl_changes: false,
            beyond: false,
            hot: STRIPES * CHUNK,
        })
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let Case { protection, level, disks, failed, shards, volatile, .. } = self;
        let failed =
            if failed.is_empty() { String::new() } else { format!(", without {failed:?}") };
        let caches = if *volatile { ", volatile caches" } else { "" };
        let fresh = if self.fresh { ", garbage at first" } else { "" };
        let wanted = self.wanted.map(|wanted| {
            let disks = wanted.raid_disks.map(|disks| format!(" of {disks}"));
            let chunk = wanted.chunk_size.map(|chunk| format!(" with chunks of {chunk} bytes"));
            let layout = wanted.layout.map(|layout| format!(" of layout {layout:#x}"));
            format!(
                ", becomes one{}",
                [disks, chunk, layout].into_iter().flatten().collect::<String>()
            )
        });
        format!(
            "{} {level} of {disks}{failed}, {shards} shards{caches}{fresh}{}",
            protection.name(),
            wanted.unwrap_or_default()
        )
    }
}
