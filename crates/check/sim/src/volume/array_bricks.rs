//! Which bricks of a volume are arrays, drawn from the run's seed, and how those are made and assembled.

use crate::member::MemberKind;
use crate::rng::Rng;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::DeviceInfo;
use braid_layout::Level;

const KIB: u64 = 1 << 10;
/// Where data starts on leaves.
pub const DATA_OFFSET: u64 = 1 << 20;
/// Of 100 runs in which no brick fails, how many have arrays.
const RUNS: u64 = 25;
/// Of 100 bricks of those, how many are arrays.
const BRICKS: u64 = 60;
/// Of 1000 steps of a round, before how many something befalls a leaf, at most.
const LEAF_FAULTS: u64 = 30;

/// A brick that is an array.
#[derive(Clone, Debug)]
pub struct BrickArray {
    /// The brick's index.
    pub brick: usize,
    /// Options that it is made with.
    pub create: CreateOptions,
    /// Options that it is assembled with.
    pub assemble: AssembleOptions,
    /// Its members.
    pub leaves: Vec<MemberKind>,
}

/// The arrays of a run.
#[derive(Clone, Debug)]
pub struct Arrays {
    /// Each with its brick.
    pub all: Vec<BrickArray>,
    /// Shards of the machine.
    pub shards: usize,
    /// Of 1000 steps of a round, before how many something befalls a leaf.
    pub faults: u64,
}

impl Arrays {
    /// A run without any.
    pub fn none() -> Arrays {
        Arrays { all: Vec::new(), shards: 1, faults: 0 }
    }

    /// Those of `seed` for these bricks; `first_leaf` is the index of the first leaf among all simulated members.
    pub fn of(seed: u64, bricks: &[&MemberKind], first_leaf: usize) -> Arrays {
        let rng = &Rng::new(seed, 28);
        let mut arrays = Arrays::none();
        if !rng.percent(RUNS) {
            return arrays;
        }
        arrays.shards = 1 + rng.below(3);
        arrays.faults = *rng.pick(&[0, rng.log_range(1..LEAF_FAULTS)]);
        let mut next = first_leaf;
        for (brick, disk) in bricks.iter().enumerate() {
            if !rng.percent(BRICKS) {
                continue;
            }
            let array = array(rng, brick, disk, next, arrays.all.len() + 1);
            next += array.leaves.len();
            arrays.all.push(array);
        }
        arrays
    }

    /// In a few words; nothing when there is none.
    pub fn describe(&self) -> String {
        let one = |array: &BrickArray| {
            format!("{} is {} of {}", array.brick, array.create.level, array.leaves.len())
        };
        let all: Vec<String> = self.all.iter().map(one).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(", arrays on {} shards [{}]", self.shards, all.join(", ")),
        }
    }
}

fn array(rng: &Rng, brick: usize, disk: &MemberKind, first: usize, number: usize) -> BrickArray {
    let levels = [Level::Raid1, Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid0];
    let level = *rng.pick(&levels);
    let (count, data) = match level {
        Level::Raid1 => (2 + rng.below(2), 1),
        Level::Raid10 => (4, 2),
        Level::Raid5 => (3, 2),
        _ => (2, 2),
    };
    let chunk = (4 * KIB) << rng.range(0..5);
    let mut create = CreateOptions::new(format!("brick{brick}"), level, count);
    create.chunk_size = (level != Level::Raid1).then_some(chunk);
    create.layout = (level == Level::Raid0).then_some(2);
    create.data_offset = Some(DATA_OFFSET);
    // All leaves are zeroes.
    create.assume_clean = level.has_redundancy();
    create.bad_block_log = level.has_redundancy() && rng.percent(40);
    create.bitmap = match level.has_redundancy() && rng.percent(60) {
        true => CreateBitmap::Internal { chunk: Some(64 * KIB) },
        false => CreateBitmap::None,
    };
    let brick_info = &disk.info;
    let size = DATA_OFFSET + brick_info.size.div_ceil(data * chunk) * chunk + 64 * KIB;
    let leaf = |nr: usize| {
        let mut info = DeviceInfo::plain(format!("b{brick}l{nr}"), size);
        info.volatile_cache = brick_info.volatile_cache;
        info.logical_block = brick_info.logical_block;
        let tear = u64::from(info.logical_block);
        MemberKind { index: first + nr, array: number, info, tear, lies: false, garbage: None }
    };
    let leaves = (0..count).map(leaf).collect();
    let assemble = AssembleOptions {
        safe_mode_delay_ms: *rng.pick(&[1, 20, 200]),
        ..AssembleOptions::default()
    };
    BrickArray { brick, create, assemble, leaves }
}
