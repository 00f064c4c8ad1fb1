//! What a run is about, drawn from its seed: the array, its members, how they behave.

use crate::machine::NAMESPACE;
use crate::member::MemberKind;
use crate::rng::Rng;
use crate::settings;
use crate::world::Manners;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, Host, SyncSpeed};
use braid_array::state::flags::MemberFlags;
use braid_device::DeviceInfo;
use braid_format::heartbeat::Process;
use braid_format::superblock::Version;
use braid_layout::Level;

/// See the module's documentation. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// How the array is created.
    pub create: CreateOptions,
    /// How it is assembled.
    pub assemble: AssembleOptions,
    /// Number of shards.
    pub shards: usize,
    /// The members: slots first, then spares, then devices that may be added later.
    pub members: Vec<MemberKind>,
    /// The device of the write journal, whose index is behind theirs.
    pub journal: Option<MemberKind>,
    /// The array's logical block.
    pub block: u64,
    /// Members start as zeroes.
    pub zeroes: bool,
    /// Some member loses completed writes at a power cut.
    pub volatile: bool,
    /// Some member lies about flushes.
    pub lies: bool,
    /// How members behave.
    pub manners: Manners,
    /// Requests in flight at once, at most.
    pub depth: u64,
    /// Rounds of workload.
    pub phases: u64,
    /// Requests in a round, at most.
    pub requests: u64,
    /// Of 1000 requests, before how many something fails.
    pub faults: u64,
    /// Of 1000 requests, before how many settings are changed.
    pub changes: u64,
    /// Bitmaps are added and removed while the array runs.
    pub bitmap_changes: bool,
    /// Partial parity logs are.
    pub ppl_changes: bool,
    /// More members may fail than the level survives.
    pub beyond: bool,
    /// Bytes of the array that most requests go to.
    pub hot: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Where data starts on the members, unless mdadm's place is taken.
const DATA_OFFSETS: [u64; 3] = [64 * KIB, 128 * KIB, MIB];

/// Where it does with a partial parity log, which has a mebibyte before that.
const PPL_DATA_OFFSET: u64 = 2 * MIB;

/// What logs are drawn from: streams in which none of the saved seeds draws one.
const PPL: u64 = 76;
/// What write journals are drawn from: as for logs.
const JOURNAL: u64 = 929_118;
/// The stream that heartbeats are drawn from: as for logs.
const HEARTBEAT: u64 = 1007;
/// The stream by which another process of the host could have the members, too, or not.
const LOCKS: u64 = 1008;
/// What flags are drawn from, and whether members have heads.
const FLAGS: u64 = 9;

const RAID5_LAYOUTS: u32 = 6;
const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

fn level_and_layout(rng: &Rng, disks: &mut usize) -> (Level, Option<u32>) {
    match rng.range(0..20) {
        0 => (Level::Linear, None),
        1 | 2 => (Level::Raid0, Some(1 + rng.below(2) as u32)),
        3..=5 => {
            *disks = 2 + *disks % 3;
            (Level::Raid1, None)
        }
        6 => {
            *disks = (*disks).max(3);
            (Level::Raid4, None)
        }
        7..=11 => {
            *disks = (*disks).max(3);
            (Level::Raid5, Some(rng.range(0..u64::from(RAID5_LAYOUTS)) as u32))
        }
        12..=16 => {
            *disks = (*disks).max(4);
            (Level::Raid6, Some(*rng.pick(&RAID6_LAYOUTS)))
        }
        _ => {
            let copies = if *disks >= 3 && rng.percent(25) { 3 } else { 2 };
            let layout = match rng.range(0..3) {
                0 => 0x100 + copies,
                1 => 0x001 + (copies << 8),
                _ => 0x1_0001 + (copies << 8),
            };
            (Level::Raid10, Some(layout))
        }
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Scenario {
        let (rng, settings_rng) = (&Rng::new(seed, 0), &Rng::new(seed, 4));
        let mut disks = 2 + rng.below(7);
        let (level, layout) = level_and_layout(rng, &mut disks);
        let redundant = level.has_redundancy();
        let spares = if redundant { rng.below(3) } else { 0 };
        let extra = if redundant { 1 } else { 0 };
        let chunk = (4 * KIB) << rng.range(0..5);
        let shards = *rng.pick(&[1, 1, 2, 3, 4]);
        let component = component(rng, level, chunk, shards, disks);
        let version = *rng.pick(&[Version::V1_2, Version::V1_2, Version::V1_1, Version::V1_0]);
        let bitmap = bitmap(seed, redundant);
        let ppl = level == Level::Raid5 && bitmap.is_none() && Rng::new(seed, PPL).percent(75);
        let journaled =
            level.is_parity() && bitmap.is_none() && !ppl && Rng::new(seed, JOURNAL).percent(70);
        let drawn = *rng.pick(&DATA_OFFSETS);
        let data_offset = if ppl { PPL_DATA_OFFSET } else { drawn };

        let kinds: [&[u32]; 4] = [&[512], &[512], &[4096], &[512, 4096]];
        let blocks = *rng.pick(&kinds);
        let volatile = rng.percent(60);
        let lies = volatile && redundant && rng.percent(3);
        let zeroes = rng.percent(75);
        let (can_zero, plug) = (rng.percent(70), rng.percent(50));
        let unequal = level.uses_member_sizes() || rng.percent(20);
        let count = disks + spares + extra;
        let liar = rng.below(count);
        let mut block = 512;
        let mut members = Vec::new();
        for index in 0..count {
            let more = if unequal { rng.range(0..4) * component / 2 / chunk * chunk } else { 0 };
            let size = data_offset + component + more + 64 * KIB;
            let mut info = DeviceInfo::plain(format!("m{index}"), size.next_multiple_of(4096));
            info.logical_block = *rng.pick(blocks);
            block = block.max(info.logical_block);
            info.volatile_cache = volatile && (lies || rng.percent(80));
            info.writes_zeroes = can_zero;
            info.wants_plug = plug;
            let garbage = (!zeroes).then_some(seed);
            members.push(MemberKind {
                index,
                array: 0,
                info,
                tear: 0,
                lies: lies && index == liar,
                garbage,
            });
        }
        let rotational = Rng::new(seed, FLAGS).percent(50);
        for member in &mut members {
            member.tear = block.into();
            member.info.rotational = rotational;
        }

        let shape = (count, chunk, disks);
        let journal = journaled.then(|| journal(seed, shape, blocks, volatile));
        let mut create = CreateOptions::new("sim", level, disks);
        create.layout = layout;
        create.chunk_size = (level != Level::Raid1).then_some(chunk);
        create.spares = spares;
        create.version = version;
        create.size = redundant.then_some(component);
        create.data_offset = (version != Version::V1_0).then_some(data_offset);
        create.bad_block_log = bad_block_log(seed, redundant);
        create.flags = flags(seed, level, count);
        create.assume_clean = zeroes && rng.percent(50);
        create.ppl = ppl;
        create.write_journal = journaled;
        create.bitmap = bitmap
            .map_or(CreateBitmap::None, |(chunk, _)| CreateBitmap::Internal { chunk: Some(chunk) });
        // Old content before the superblock of a member stays there, so it has no place for a heartbeat.
        let heart = Rng::new(seed, HEARTBEAT);
        let beats = zeroes && version == Version::V1_2 && heart.percent(15);
        let host = Host {
            name: "here".to_string(),
            // Kernels are known or not.
            boot: if heart.percent(50) { [1; 16] } else { [0; 16] },
            process: Some(Process { namespace: NAMESPACE, id: 1 }),
            locks: Rng::new(seed, LOCKS).percent(50),
        };
        let assemble = AssembleOptions {
            heartbeat_ms: beats.then(|| 1000 * heart.range(1..5) as u32),
            host,
            bitmap_daemon_sleep_ms: bitmap.map(|(_, sleep)| sleep),
            safe_mode_delay_ms: *rng.pick(&[1, 20, 200]),
            sync_speed: SyncSpeed { min_kib: 1000, max_kib: *rng.pick(&[u64::MAX, 10_000_000]) },
            settings: settings::draw(settings_rng, level, chunk, block.into(), shards),
            ..AssembleOptions::default()
        };
        let manners = Manners {
            inline: *rng.pick(&[0, 0, 0, 30, 90]),
            latency: *rng.pick(&[20_000, 200_000, 2_000_000]),
            slow: *rng.pick(&[0, 10, 300]),
            hang: *rng.pick(&[0, 0, 50]),
            unsupported: if can_zero && rng.percent(10) { 10 } else { 0 },
        };
        Scenario {
            seed,
            create,
            assemble,
            shards,
            members,
            journal,
            block: block.into(),
            zeroes,
            volatile,
            lies,
            manners,
            depth: rng.log_range(1..33),
            phases: 2 + rng.range(0..4),
            requests: 20 + rng.range(0..130),
            faults: *rng.pick(&[0, 10, 30, 60]),
            changes: *settings_rng.pick(&[0, 10, 50]),
            // Drawn apart, as bitmaps are.
            bitmap_changes: redundant && !ppl && !journaled && Rng::new(seed, 6).percent(15),
            ppl_changes: ppl && Rng::new(seed, PPL + 1).percent(25),
            beyond: rng.percent(6),
            hot: rng.log_range(4..256) * chunk.max(4096),
        }
    }

    /// The array has a write-intent bitmap.
    pub fn has_bitmap(&self) -> bool {
        matches!(self.create.bitmap, CreateBitmap::Internal { .. })
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let create = &self.create;
        format!(
            "{} layout {:?}, chunk {:?}, {} slots, {} spares, {} shards, block {}, component {:?}, metadata {}{}{}{}{}{}{}{}{}{}{}{}{}",
            create.level,
            create.layout,
            create.chunk_size,
            create.raid_disks,
            create.spares,
            self.shards,
            self.block,
            create.size,
            create.version,
            if self.volatile { ", volatile caches" } else { "" },
            if self.zeroes { "" } else { ", garbage at first" },
            if create.assume_clean { ", assumed clean" } else { "" },
            if self.lies { ", a member lies" } else { "" },
            match create.bitmap {
                CreateBitmap::Internal { chunk } =>
                    format!(", bitmap chunk {}", chunk.unwrap_or(0)),
                _ => String::new(),
            },
            if create.ppl { ", partial parity log" } else { "" },
            match &self.journal {
                Some(journal) => format!(", write journal of {} bytes", journal.info.size),
                None => String::new(),
            },
            if self.ppl_changes { " that comes and goes" } else { "" },
            if self.bitmap_changes { ", bitmaps come and go" } else { "" },
            if create.bad_block_log { ", bad-block logs" } else { "" },
            if create.flags.is_empty() { "" } else { ", members with flags" },
            if self.assemble.heartbeat_ms.is_some() { ", heartbeat" } else { "" },
        )
    }
}

/// Of arrays with redundancy more than half have a bitmap: the bytes for each bit, and how often bits are
/// cleared, in milliseconds. Drawn apart from everything else, so that the other half is what it was
/// before there were bitmaps.
fn bitmap(seed: u64, redundant: bool) -> Option<(u64, u64)> {
    let rng = &Rng::new(seed, 3);
    let chunk = *rng.pick(&[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 64 * MIB]);
    let sleep = *rng.pick(&[1, 20, 200, 5000]);
    (redundant && rng.percent(60)).then_some((chunk, sleep))
}

/// The device of a write journal: room for one stripe or a few of them.
fn journal(
    seed: u64,
    (index, chunk, disks): (usize, u64, usize),
    blocks: &[u32],
    volatile: bool,
) -> MemberKind {
    let rng = &Rng::new(seed, JOURNAL + 1);
    let stripe = chunk / 4096 * (disks as u64 + 1) + 2;
    let ring = (stripe * (1 + rng.range(0..4)) + rng.range(0..8)).max(60);
    let mut info = DeviceInfo::plain(format!("m{index}"), (64 + ring * 8) * 512);
    info.logical_block = *rng.pick(blocks);
    info.volatile_cache = volatile && rng.percent(80);
    let tear = info.logical_block.into();
    MemberKind {
        index,
        array: 0,
        info,
        tear,
        lies: false,
        garbage: rng.percent(50).then_some(seed),
    }
}

/// Of arrays with redundancy less than half have bad-block logs. Drawn apart, like the bitmap.
fn bad_block_log(seed: u64, redundant: bool) -> bool {
    redundant && Rng::new(seed, 4).percent(40)
}

/// Of arrays with copies half have members that are write-mostly or are to fail fast. Drawn apart, like the
/// bitmap.
fn flags(seed: u64, level: Level, members: usize) -> Vec<MemberFlags> {
    let rng = &Rng::new(seed, FLAGS + 1);
    if !matches!(level, Level::Raid1 | Level::Raid10) || rng.percent(50) {
        return Vec::new();
    }
    let flag = |_| MemberFlags { write_mostly: rng.percent(40), failfast: rng.percent(30) };
    (0..members).map(flag).collect()
}

/// Bytes of each component: large enough, now and then, for several shards and several windows of a
/// job.
fn component(rng: &Rng, level: Level, chunk: u64, shards: usize, disks: usize) -> u64 {
    let large = rng.percent(if shards > 1 { 60 } else { 25 });
    let most = if disks > 5 { 3 } else { 4 };
    let bytes = if large {
        MIB + rng.range(0..most * 8) * MIB / 8
    } else {
        128 * KIB + rng.range(0..16) * 32 * KIB
    };
    let unit = if level == Level::Raid1 { 4096 } else { chunk.max(4096) };
    (bytes / unit * unit).max(4 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_saved_seed_draws_a_log() {
        use crate::seeds::{Kind, saved};
        let saved = saved().unwrap();
        // These had a log when they failed.
        let with_log = [
            207,
            710_708,
            30_000_980,
            54_002_390,
            700_019_857,
            700_024_067,
            700_047_427,
            700_062_718,
            700_067_273,
            1_002_922,
            2_014_699,
            3_003_373,
            4_003_037,
            9_702_270,
            9_303_959,
            880_000_003_633,
        ];
        let arrays = saved.iter().filter(|seed| seed.kind == Kind::Array);
        let mut arrays = arrays.filter(|seed| !with_log.contains(&seed.seed));
        // They would be other runs than those that failed.
        let logged = |create: &CreateOptions| create.ppl || create.write_journal;
        assert!(arrays.all(|seed| !logged(&Scenario::of(seed.seed).create)));
    }

    #[test]
    fn no_saved_seed_draws_a_heartbeat() {
        use crate::seeds::{Kind, saved};
        let saved = saved().unwrap();
        // These had a heartbeat when they failed.
        let with_heartbeat = [700_000_179, 700_024_067, 700_049_068, 9_701_161, 9_303_959];
        let arrays = saved.iter().filter(|seed| seed.kind == Kind::Array);
        let mut arrays = arrays.filter(|seed| !with_heartbeat.contains(&seed.seed));
        assert!(arrays.all(|seed| Scenario::of(seed.seed).assemble.heartbeat_ms.is_none()));
        let beats = |seed| Scenario::of(seed).assemble.heartbeat_ms.is_some();
        assert!((0..500).any(beats));
    }

    #[test]
    fn a_seed_gives_one_scenario_and_all_levels_come_up() {
        let levels: std::collections::BTreeSet<Level> =
            (0..500).map(|seed| Scenario::of(seed).create.level).collect();
        assert_eq!(levels.len(), Level::ALL.len());
        assert_eq!(Scenario::of(77).describe(), Scenario::of(77).describe());
    }
}
