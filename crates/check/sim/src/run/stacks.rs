//! Stacks, drawn from a seed: which array stands on which, their leaves, how they behave.

use super::plan::{ArrayPlan, Below, DATA_OFFSET, KIB, Odds, Plan, Streams};
use crate::member::MemberKind;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::settings;
use crate::world::Manners;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
use braid_device::DeviceInfo;
use braid_format::superblock::Version;
use braid_layout::Level;

struct Draw<'a> {
    rng: &'a Rng,
    seed: u64,
    block: u64,
    volatile: bool,
    can_zero: bool,
    plug: bool,
    zeroes: bool,
    shards: usize,
    version: Version,
    arrays: Vec<ArrayPlan>,
    members: Vec<MemberKind>,
}

/// The levels of one stack: of the top, and of each array below it.
fn shape(rng: &Rng) -> (Level, Vec<Level>) {
    let redundant = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];
    let any = [Level::Raid1, Level::Raid5, Level::Raid0, Level::Raid10, Level::Linear];
    let some = |levels: &[Level], count| (0..count).map(|_| *rng.pick(levels)).collect();
    match rng.range(0..16) {
        0..5 => {
            let level = *rng.pick(&redundant);
            (Level::Raid0, vec![level; 2 + rng.below(2)])
        }
        5 => (Level::Raid0, some(&redundant, 2)),
        6 | 7 => (Level::Linear, some(&redundant, 2 + rng.below(2))),
        8 => (Level::Raid1, vec![Level::Raid0; 2 + rng.below(2)]),
        9 => (Level::Raid1, vec![Level::Raid5; 2]),
        10 => (Level::Raid1, some(&any, 2)),
        11 | 12 => (Level::Raid5, vec![Level::Raid1; 3]),
        13 => (Level::Raid10, vec![Level::Raid0; 2 + rng.below(3)]),
        14 => (Level::Raid6, some(&[Level::Raid0, Level::Raid1, Level::Linear], 4)),
        _ => (Level::Raid5, some(&any, 3)),
    }
}

impl Draw<'_> {
    fn options(&self, level: Level, disks: usize) -> (CreateOptions, AssembleOptions) {
        let rng = self.rng;
        let mut create = CreateOptions::new(format!("a{}", self.arrays.len()), level, disks);
        create.layout = match level {
            Level::Raid5 => Some(rng.range(0..6) as u32),
            Level::Raid10 => Some(*rng.pick(&[0x102, 0x201, 0x1_0201])),
            Level::Raid0 => Some(1 + rng.below(2) as u32),
            _ => None,
        };
        let chunk = ((4 * KIB) << rng.range(0..5)).max(self.block);
        create.chunk_size = (level != Level::Raid1).then_some(chunk);
        create.version = self.version;
        create.data_offset = (self.version != Version::V1_0).then_some(DATA_OFFSET);
        let redundant = level.has_redundancy();
        create.bad_block_log = redundant && rng.percent(40);
        create.assume_clean = self.zeroes && rng.percent(50);
        let bits = *rng.pick(&[4 * KIB, 16 * KIB, 64 * KIB, 1 << 20]);
        let bitmap = redundant && rng.percent(40);
        create.bitmap =
            if bitmap { CreateBitmap::Internal { chunk: Some(bits) } } else { CreateBitmap::None };
        let assemble = AssembleOptions {
            bitmap_daemon_sleep_ms: bitmap.then(|| *rng.pick(&[1, 20, 200, 5000])),
            safe_mode_delay_ms: *rng.pick(&[1, 20, 200]),
            sync_speed: SyncSpeed { min_kib: 1000, max_kib: *rng.pick(&[u64::MAX, 10_000_000]) },
            settings: settings::draw(rng, level, chunk, self.block, self.shards),
            ..AssembleOptions::default()
        };
        (create, assemble)
    }

    /// An array of leaves.
    fn of_leaves(&mut self, level: Level) -> usize {
        let rng = self.rng;
        let disks = match level {
            Level::Raid5 => 3 + rng.below(2),
            Level::Raid6 => 4,
            Level::Raid10 => 2 + rng.below(3),
            _ => 2 + usize::from(rng.percent(20)),
        };
        let (mut create, assemble) = self.options(level, disks);
        let redundant = level.has_redundancy();
        let (spares, extra) = if redundant { (rng.below(2), 1) } else { (0, 0) };
        create.spares = spares;
        let unit = create.chunk_size.unwrap_or(4 * KIB).max(4 * KIB);
        let component = (256 * KIB + rng.range(0..8) * 64 * KIB) / unit * unit;
        create.size = redundant.then_some(component);
        let array = self.arrays.len();
        let mut leaves = Vec::new();
        for _ in 0..disks + spares + extra {
            let index = self.members.len();
            let size = (DATA_OFFSET + component + 64 * KIB).next_multiple_of(4 * KIB);
            let mut info = DeviceInfo::plain(format!("m{index}"), size);
            info.logical_block = self.block as u32;
            info.volatile_cache = self.volatile && rng.percent(80);
            info.writes_zeroes = self.can_zero;
            info.wants_plug = self.plug;
            let garbage = (!self.zeroes).then_some(self.seed);
            let tear = self.block;
            self.members.push(MemberKind { index, array, info, tear, lies: false, garbage });
            leaves.push(index);
        }
        let below = Below::Leaves(leaves);
        self.arrays.push(ArrayPlan { create, assemble, below, above: None });
        array
    }

    /// An array of arrays.
    fn of_arrays(&mut self, level: Level, below: Vec<usize>) -> usize {
        let (create, assemble) = self.options(level, below.len());
        let array = self.arrays.len();
        for member in &below {
            self.arrays[*member].above = Some(array);
        }
        let below = Below::Arrays(below);
        self.arrays.push(ArrayPlan { create, assemble, below, above: None });
        array
    }
}

impl Plan {
    /// The stack of a seed.
    pub fn stack(seed: u64) -> Plan {
        // Streams of their own: a single array of the same seed is another run.
        let rng = &Rng::new(seed, 32);
        let mut draw = Draw {
            rng,
            seed,
            block: *rng.pick(&[512, 512, 4096]),
            volatile: rng.percent(60),
            can_zero: rng.percent(70),
            plug: rng.percent(60),
            zeroes: rng.percent(70),
            shards: *rng.pick(&[1, 1, 2, 2, 3, 4]),
            version: *rng.pick(&[Version::V1_2, Version::V1_2, Version::V1_1, Version::V1_0]),
            arrays: Vec::new(),
            members: Vec::new(),
        };
        if rng.percent(6) {
            // Three layers, of which the middle one keeps what the lowest may lose.
            let top = *rng.pick(&[Level::Raid0, Level::Linear]);
            let middle = (0..2).map(|_| {
                let lowest = (0..2).map(|_| draw.of_leaves(Level::Raid0)).collect();
                draw.of_arrays(Level::Raid1, lowest)
            });
            let middle = middle.collect();
            draw.of_arrays(top, middle);
        } else {
            let (top, below) = shape(rng);
            let below = below.into_iter().map(|level| draw.of_leaves(level)).collect();
            draw.of_arrays(top, below);
        }
        if draw.volatile && rng.percent(3) {
            let liar = rng.below(draw.members.len());
            draw.members[liar].lies = true;
            draw.members[liar].info.volatile_cache = true;
        }
        let scenario = draw.scenario();
        let layers = draw.arrays.len() + 1;
        Plan { scenario, arrays: draw.arrays, layers, odds: Odds::STACK, streams: Streams::STACK }
    }
}

impl Draw<'_> {
    fn scenario(&self) -> Scenario {
        let rng = self.rng;
        let top = &self.arrays[self.arrays.len() - 1];
        Scenario {
            seed: self.seed,
            create: top.create.clone(),
            assemble: top.assemble.clone(),
            shards: self.shards,
            members: self.members.clone(),
            block: self.block,
            zeroes: self.zeroes,
            volatile: self.volatile,
            lies: self.members.iter().any(|member| member.lies),
            manners: Manners {
                inline: *rng.pick(&[0, 0, 0, 30, 90]),
                latency: *rng.pick(&[20_000, 200_000, 2_000_000]),
                slow: *rng.pick(&[0, 10, 300]),
                hang: *rng.pick(&[0, 0, 50]),
                unsupported: if self.can_zero && rng.percent(10) { 10 } else { 0 },
            },
            depth: rng.log_range(1..33),
            phases: 2 + rng.range(0..4),
            requests: 20 + rng.range(0..100),
            faults: *rng.pick(&[0, 10, 30, 60]),
            changes: *rng.pick(&[0, 10, 50]),
            bitmap_changes: rng.percent(15),
            ppl_changes: false,
            journal: None,
            beyond: false,
            hot: rng.log_range(4..256) * top.create.chunk_size.unwrap_or(4096).max(4096),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_all_tops_come_up_and_every_array_stands_on_earlier_ones() {
        let mut tops = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let plan = Plan::stack(seed);
            tops.insert(plan.scenario.create.level);
            for (nr, array) in plan.arrays.iter().enumerate() {
                if let Below::Arrays(below) = &array.below {
                    assert!(below.iter().all(|lower| *lower < nr));
                }
                assert_eq!(array.above.is_none(), nr + 1 == plan.arrays.len());
            }
        }
        assert_eq!(tops.len(), 6);
    }
}
