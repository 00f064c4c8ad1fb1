//! What a run of a volume is about, drawn from its seed: the bricks and how they behave.

use super::array_bricks::Arrays;
use super::copies_plan::CopiesPlan;
use super::snapshots_plan::SnapshotsPlan;
use crate::member::MemberKind;
use crate::rng::Rng;
use crate::world::Manners;
use braid_device::DeviceInfo;
use braid_format::volume::BLOCK;

const MIB: u64 = 1 << 20;
/// Room for metadata, where it has an end. What takes none is held back for it, and has to do for all jobs.
const METADATA: std::ops::Range<u64> = 512 << 10..2 << 20;

/// One brick. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct BrickPlan {
    /// The device.
    pub kind: MemberKind,
    /// First byte of its data area.
    pub data_offset: u64,
    /// Its part in placement.
    pub weight: u64,
}

impl BrickPlan {
    /// Blocks of its data area.
    pub fn blocks(&self) -> u64 {
        (self.kind.info.size - self.data_offset) / BLOCK
    }
}

/// A brick of random size; `volatile` 0: all have caches, 1: some, 2: none.
fn brick(rng: &Rng, index: usize, volatile: u64, by_size: bool) -> BrickPlan {
    let size = rng.log_range(8..65) * MIB / if rng.percent(20) { 4 } else { 1 };
    let size = size + rng.range(0..64) * BLOCK;
    let mut info = DeviceInfo::plain(format!("b{index}"), size);
    info.volatile_cache = volatile == 0 || volatile == 1 && rng.percent(50);
    info.logical_block = if rng.percent(30) { 4096 } else { 512 };
    let data_offset = rng.range(0..17) * BLOCK;
    let kind = MemberKind { index, array: 0, info, tear: 512, lies: false, garbage: None };
    let weight = if by_size { size } else { rng.log_range(1..1000) };
    BrickPlan { kind, data_offset, weight }
}

fn finished(rng: &Rng, mut brick: BrickPlan, seed: u64) -> BrickPlan {
    brick.kind.tear = u64::from(brick.kind.info.logical_block);
    brick.kind.garbage = rng.percent(70).then_some(seed);
    brick
}

/// How much is drawn of what there is: each kind of run is what it was before there was the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Nothing is done on purpose, and bricks are disks.
    Plain,
    /// Some things are done on purpose (`aimed`), and bricks may be arrays.
    Aimed,
    /// The calls that came last are made, too (`later`).
    Calls,
    /// Files have copies, too (`copies`).
    Copies,
    /// Snapshots are taken, too (`snapshots`); files have copies in some.
    Snapshots,
    /// Ranges of files are copied to others, too, which may have extents in common then.
    Common,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// The bricks that there are at the start.
    pub bricks: Vec<BrickPlan>,
    /// Bricks that can be added.
    pub spares: Vec<BrickPlan>,
    /// Bricks come and go, jobs run, and the volume checks itself.
    pub commands: bool,
    /// Of 1000 steps of a round, before how many there is a command.
    pub commands_often: u64,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// How bricks behave.
    pub manners: Manners,
    /// The longest that the store takes for a commit, in nanoseconds.
    pub commit_time: u64,
    /// Requests in flight at once, at most.
    pub depth: usize,
    /// Rounds.
    pub rounds: u64,
    /// Requests of a round.
    pub requests: u64,
    /// Of 1000 steps of a round, before how many a brick fails.
    pub faults: u64,
    /// Bytes of metadata that there is room for; none: no end.
    pub metadata: Option<u64>,
    /// Some things are done on purpose that chance alone seldom does just so (`aimed`).
    pub aimed: bool,
    /// Bricks that are arrays.
    pub arrays: Arrays,
    /// The calls that came last are drawn, too.
    pub calls: bool,
    /// Projects get limits, too: in some of the runs with all calls.
    pub limits: bool,
    /// Files have copies.
    pub copies: Option<CopiesPlan>,
    /// Snapshots are taken.
    pub snapshots: Option<SnapshotsPlan>,
    /// Ranges of files are copied to others.
    pub common: bool,
    /// Bricks are added in the place of others, too. Runs of odd seeds are what they were before there was that.
    pub replaces: bool,
}

impl VolumePlan {
    /// That of `seed`.
    pub fn of(seed: u64, scope: Scope) -> VolumePlan {
        let (aimed, calls) = (scope >= Scope::Aimed, scope >= Scope::Calls);
        let rng = Rng::new(seed, 30);
        let count = rng.log_range(1..7) as usize;
        let copies =
            scope == Scope::Copies || scope >= Scope::Snapshots && SnapshotsPlan::with_copies(seed);
        let count = if copies { CopiesPlan::bricks(seed) } else { count };
        let stripe = *rng.pick(&[16 << 10, 32 << 10, 64 << 10, 128 << 10, 128 << 10, 512 << 10]);
        let volatile = rng.range(0..3);
        let by_size = rng.percent(70);
        let bricks = (0..count).map(|index| brick(&rng, index, volatile, by_size));
        let bricks: Vec<BrickPlan> = bricks.collect();
        let bricks: Vec<BrickPlan> =
            bricks.into_iter().map(|brick| finished(&rng, brick, seed)).collect();
        let more = Rng::new(seed, 36);
        let commands = more.percent(70);
        let spares = if commands { more.range(0..4) as usize } else { 0 };
        let spares = (count..count + spares)
            .map(|index| finished(&more, brick(&more, index, volatile, by_size), seed));
        let room = Rng::new(seed, 37);
        let metadata = room.percent(15).then(|| room.log_range(METADATA));
        let faults_often = room.log_range(2..40);
        let spares: Vec<BrickPlan> = spares.collect();
        let mut plan = VolumePlan {
            arrays: Arrays::none(),
            calls,
            limits: scope == Scope::Calls && Rng::new(seed, 54).percent(60),
            copies: None,
            snapshots: None,
            common: scope >= Scope::Common,
            replaces: scope >= Scope::Common && seed.is_multiple_of(2),
            aimed: aimed && Rng::new(seed, 48).percent(60),
            metadata,
            bricks,
            spares,
            commands,
            commands_often: more.log_range(4..120),
            stripe,
            manners: Manners {
                inline: *rng.pick(&[0, 0, 20, 100]),
                latency: *rng.pick(&[20_000, 200_000, 5_000_000]),
                slow: *rng.pick(&[0, 100]),
                hang: *rng.pick(&[0, 0, 20]),
                unsupported: *rng.pick(&[0, 30]),
            },
            commit_time: *rng.pick(&[1, 100_000, 30_000_000]),
            depth: *rng.pick(&[1, 3, 8]),
            rounds: 2 + rng.range(0..6),
            requests: rng.log_range(40..600),
            faults: *rng.pick(&[0, 0, 0, faults_often]),
        };
        if scope >= Scope::Snapshots && !SnapshotsPlan::with_faults(seed) {
            plan.faults = 0;
        }
        if copies && (scope == Scope::Copies || plan.faults > 0) {
            plan.faults = *Rng::new(seed, 55).pick(&[0, faults_often]);
        }
        if copies {
            plan.copies = Some(CopiesPlan::of(seed, count, plan.faults));
        }
        if scope >= Scope::Snapshots {
            let may_come_halfway = plan.faults > 0 || plan.metadata.is_some();
            plan.snapshots = Some(SnapshotsPlan::of(seed, may_come_halfway));
        }
        if aimed && plan.faults == 0 {
            let disks: Vec<&MemberKind> = plan.bricks.iter().map(|brick| &brick.kind).collect();
            plan.arrays = Arrays::of(seed, &disks, plan.all_bricks().count());
        }
        if calls {
            let rng = Rng::new(seed, 51);
            let often = *rng.pick(&[0, 100, 100, 50]);
            for brick in plan.bricks.iter_mut().chain(&mut plan.spares) {
                brick.kind.info.discards = rng.percent(often);
            }
        }
        plan
    }

    /// The bricks, and after them those that can be added.
    pub fn all_bricks(&self) -> impl Iterator<Item = &BrickPlan> {
        self.bricks.iter().chain(&self.spares)
    }

    /// All bricks can be told of free space, or none; `None`: some, or arrays may.
    pub fn trims(&self) -> Option<bool> {
        let mut discards = self.all_bricks().map(|brick| brick.kind.info.discards);
        let first = discards.next()?;
        (self.arrays.all.is_empty() && self.faults == 0 && discards.all(|one| one == first))
            .then_some(first)
    }

    /// The copies of files that are told nothing.
    pub fn default_copies(&self) -> u8 {
        self.copies.as_ref().map_or(1, |copies| copies.default)
    }

    /// Bytes of all data areas at the start.
    pub fn space(&self) -> u64 {
        self.bricks.iter().map(|brick| brick.blocks() * BLOCK).sum()
    }

    /// In a line.
    pub fn describe(&self) -> String {
        let bricks = self.bricks.iter().map(|brick| {
            let info = &brick.kind.info;
            let cache = if info.volatile_cache { "+cache" } else { "" };
            format!("{}K{cache} weight {}", info.size >> 10, brick.weight)
        });
        let commands = match self.commands {
            true => format!(", {} spare, commands", self.spares.len()),
            false => String::new(),
        };
        let faults = if self.faults > 0 { ", faults" } else { "" };
        let limits = if self.limits { ", limits" } else { "" };
        let copies = self.copies.as_ref().map_or(String::new(), CopiesPlan::describe);
        let snapshots = self.snapshots.as_ref().map_or(String::new(), SnapshotsPlan::describe);
        let common = if self.common { ", ranges copied" } else { "" };
        let aimed = match (self.aimed, self.calls) {
            (false, false) => "",
            (true, false) => ", aimed",
            (false, true) => ", all calls",
            (true, true) => ", aimed, all calls",
        };
        let metadata =
            self.metadata.map_or(String::new(), |room| format!(", metadata {}K", room >> 10));
        let arrays = self.arrays.describe();
        format!(
            "volume of {} bricks [{}]{}{arrays}{faults}{copies}{snapshots}{common}{aimed}{limits}{metadata}, stripe {}K, depth {}, {} rounds of {}",
            self.bricks.len(),
            bricks.collect::<Vec<_>>().join(", "),
            commands,
            self.stripe >> 10,
            self.depth,
            self.rounds,
            self.requests
        )
    }
}
