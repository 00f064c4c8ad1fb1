//! Random requests against a model: power cuts with torn writes, processes that die, legs that fail and others that join,
//! growth, and resyncs that are cut short. Every choice comes from the seed.

use super::rig::{commit, flush, late, open, read, shard};
use crate::region::BLOCK;
use crate::{LEGS_MAX, Mirror, MirrorError, Open, ROOT, Region};
use braid_device::volatile::{Fuse, VolatileDisk};
use braid_device::{Device, IoSets, Op, Request};
use braid_shard::Shard;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const DISK: usize = 2 << 20;

/// The areas of a region, one more after each growth.
const AREAS: [(u64, u64); 3] = [(4096, 600 << 10), (1 << 20, 500 << 10), (1600 << 10, 300 << 10)];

/// Bytes that reach a disk as a whole.
const SECTOR: usize = 512;
const PER_BLOCK: u64 = (BLOCK / SECTOR) as u64;

/// The versions that a sector, or the root, may hold; 0 stands for anything.
#[derive(Clone)]
struct Known {
    /// As it is read.
    now: BTreeSet<u64>,
    /// After a crash.
    old: BTreeSet<u64>,
}

impl Default for Known {
    fn default() -> Known {
        Known { now: BTreeSet::from([0]), old: BTreeSet::from([0]) }
    }
}

/// The bytes of a version of a sector: nothing else has them.
fn content(sector: u64, version: u64) -> Vec<u8> {
    [sector.to_le_bytes(), version.to_le_bytes()].concat().repeat(SECTOR / 16)
}

/// The version that a sector holds; `None` where it is no whole one.
fn version_of(sector: u64, bytes: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    (bytes == content(sector, version)).then_some(version)
}

/// Blocks to write: the first, their number, and the version that they get.
#[derive(Clone, Copy)]
struct Write {
    first: u64,
    count: u64,
    version: u64,
}

impl Write {
    fn sectors(&self) -> std::ops::Range<u64> {
        self.first * PER_BLOCK..(self.first + self.count) * PER_BLOCK
    }

    fn bytes(&self) -> Vec<u8> {
        self.sectors().flat_map(|sector| content(sector, self.version)).collect()
    }
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    shard: Shard,
    fuse: Fuse,
    /// The disks whose legs are current, as their owner has recorded it.
    current: Rc<RefCell<Vec<VolatileDisk>>>,
    /// The disk of each leg.
    legs: [Option<VolatileDisk>; LEGS_MAX],
    /// The most legs that it is given.
    most: usize,
    /// A disk fails, and the mirror may not know yet.
    fails: bool,
    areas: usize,
    sectors: BTreeMap<u64, Known>,
    root: Known,
    last: u64,
    disks: u64,
}

impl World {
    fn new(seed: u64, most: usize) -> World {
        World {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            shard: shard(),
            fuse: Fuse::default(),
            current: Rc::default(),
            legs: [const { None }; LEGS_MAX],
            most,
            fails: false,
            areas: 1,
            sectors: BTreeMap::new(),
            root: Known::default(),
            last: 0,
            disks: 0,
        }
    }

    /// A disk with anything on it.
    fn new_disk(&mut self) -> VolatileDisk {
        self.disks += 1;
        let disk = VolatileDisk::new(&format!("disk-{}", self.disks), DISK, &self.fuse);
        if self.rng.bool() {
            disk.set_bytes(vec![self.rng.u8(..); DISK]);
        }
        disk
    }

    fn region(&mut self, disk: &VolatileDisk) -> Region {
        let device = late(&self.shard, disk, self.rng.u64(..));
        Region::of_ranges(device, &AREAS[..self.areas]).unwrap()
    }

    fn open(&mut self, how: Open) -> Result<Rc<Mirror>, MirrorError> {
        self.fails = false;
        let mut disks = self.current.borrow().clone();
        self.rng.shuffle(&mut disks);
        let regions = disks.iter().map(|disk| self.region(disk)).collect();
        let mut disks = disks.into_iter();
        self.legs = std::array::from_fn(|_| disks.next());
        let mirror = open(&self.shard, regions, how)?;
        let (fuse, current, legs) =
            (self.fuse.clone(), Rc::clone(&self.current), self.legs.clone());
        mirror.on_detached(move |detached| {
            // Without power nothing can be recorded.
            let disk = &legs[detached.leg];
            if !fuse.is_blown() && disk.is_some() {
                current.borrow_mut().retain(|disk| disk.name() != detached.name);
            }
        });
        Ok(mirror)
    }

    fn blocks(&self, mirror: &Mirror) -> u64 {
        mirror.info().size / BLOCK as u64
    }

    fn some_write(&mut self, mirror: &Mirror) -> Write {
        self.last += 1;
        let blocks = self.blocks(mirror);
        // Mostly near each other, so that they overlap.
        let within = if self.rng.u8(..4) == 0 { blocks } else { 40.min(blocks) };
        let first = self.rng.u64(..within);
        let count = self.rng.u64(1..=12).min(blocks - first);
        Write { first, count, version: self.last }
    }

    /// The write is under way: until it has ended each sector may have it, or not.
    fn begin(&mut self, write: &Write) {
        for sector in write.sectors() {
            let known = self.sectors.entry(sector).or_default();
            known.old.insert(write.version);
            known.now.insert(write.version);
        }
    }

    /// Writes that were under way together have ended.
    fn end(&mut self, writes: &[Write]) {
        for sector in writes.iter().flat_map(Write::sectors) {
            let covers = |write: &&Write| write.sectors().contains(&sector);
            let now = writes.iter().filter(covers).map(|write| write.version).collect();
            self.sectors.entry(sector).or_default().now = now;
        }
    }

    /// A flush has ended that began while the content was as `before`, with `writes` under way.
    fn durable(&mut self, before: &BTreeMap<u64, Known>, writes: &[Write]) {
        for (sector, known) in &mut self.sectors {
            let under_way = writes.iter().filter(|write| write.sectors().contains(sector));
            known.old = before.get(sector).cloned().unwrap_or_default().now;
            known.old.extend(under_way.map(|write| write.version));
        }
        self.root.old = self.root.now.clone();
    }

    /// Requests at the same time, some of which overlap.
    fn some_requests(&mut self, mirror: &Rc<Mirror>) {
        let count = self.rng.u64(1..=5);
        let writes: Vec<Write> = (0..count).map(|_| self.some_write(mirror)).collect();
        let flushes = self.rng.usize(..6).saturating_sub(3);
        let fua = self.rng.u8(..3) == 0;
        let reads = self.rng.usize(..3);
        let before: BTreeMap<u64, Known> = self.sectors.clone();
        writes.iter().for_each(|write| self.begin(write));
        let mut requests: Vec<Request> = writes
            .iter()
            .map(|write| {
                let buf = self.shard.pool().copy_of(&write.bytes()).freeze();
                Request::write(write.first * BLOCK as u64, buf, fua)
            })
            .collect();
        for _ in 0..reads {
            let Write { first, count, .. } = writes[0];
            let buf = self.shard.pool().get(count as usize * BLOCK);
            requests.push(Request::read(first * BLOCK as u64, buf));
        }
        requests.extend((0..flushes).map(|_| Request::flush()));
        self.rng.shuffle(&mut requests);
        let (sets, own) = (IoSets::new(&self.shard), Rc::clone(mirror));
        let outcomes = self.shard.block_on(async move {
            let mut set = sets.start();
            requests.into_iter().for_each(|request| set.submit(0, &*own, request));
            set.finish().await.collect::<Vec<_>>()
        });
        if self.fuse.is_blown() {
            return;
        }
        for (_, outcome) in outcomes {
            assert_eq!(outcome.result, Ok(()), "seed {}", self.seed);
            if let Op::Read(bufs) = outcome.op {
                let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                self.check_torn(writes[0].first, &bytes);
            }
        }
        self.end(&writes);
        if flushes > 0 {
            self.durable(&before, &writes);
        }
        if fua {
            for sector in writes.iter().flat_map(Write::sectors) {
                let known = self.sectors.entry(sector).or_default();
                known.old = known.now.clone();
            }
        }
        writes.iter().for_each(|write| self.look(mirror, write.first, write.count));
        // A block is of one of the writes, never of two.
        for block in writes.iter().flat_map(|write| write.first..write.first + write.count) {
            let sectors = self.sectors.range(block * PER_BLOCK..(block + 1) * PER_BLOCK);
            let versions: BTreeSet<_> = sectors.map(|(_, known)| &known.now).collect();
            let is_whole = versions.len() == 1 || self.fuse.is_blown();
            assert!(is_whole, "seed {}: block {block}: {versions:?}", self.seed);
        }
    }

    /// Compares what was read with what may be there, and notes it: from now on it is that.
    fn check(&mut self, first: u64, bytes: &[u8], after_crash: bool) {
        for (sector, bytes) in (first * PER_BLOCK..).zip(bytes.chunks_exact(SECTOR)) {
            let Some(known) = self.sectors.get_mut(&sector) else { continue };
            let allowed = if after_crash { &known.old } else { &known.now };
            match version_of(sector, bytes).filter(|version| allowed.contains(version)) {
                Some(version) => known.now = BTreeSet::from([version]),
                None => {
                    let seed = self.seed;
                    let found = version_of(sector, bytes);
                    assert!(
                        allowed.contains(&0),
                        "seed {seed}: sector {sector}: {found:?} and not {allowed:?}"
                    );
                    known.now = BTreeSet::from([0]);
                }
            }
        }
    }

    /// Compares what was read while writes were under way.
    fn check_torn(&self, first: u64, bytes: &[u8]) {
        for (sector, bytes) in (first * PER_BLOCK..).zip(bytes.chunks_exact(SECTOR)) {
            let Some(Known { now, .. }) = self.sectors.get(&sector) else { continue };
            let is_allowed = version_of(sector, bytes).is_some_and(|found| now.contains(&found));
            assert!(is_allowed || now.contains(&0), "seed {}: sector {sector}: {now:?}", self.seed);
        }
    }

    /// Reads blocks while nothing is under way.
    fn look(&mut self, mirror: &Rc<Mirror>, first: u64, count: u64) {
        let len = count as usize * BLOCK;
        match read(&self.shard, mirror, first * BLOCK as u64, len) {
            Ok(bytes) => self.check(first, &bytes, false),
            Err(error) => assert!(self.fuse.is_blown(), "seed {}: {error}", self.seed),
        }
    }

    fn some_commit(&mut self, mirror: &Rc<Mirror>) {
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..self.rng.u8(..4) {
            let write = self.some_write(mirror);
            let range = write.sectors();
            let overlaps = |other: &Write| {
                other.sectors().end > range.start && other.sectors().start < range.end
            };
            if !writes.iter().any(overlaps) {
                writes.push(write);
            }
        }
        writes.iter().for_each(|write| self.begin(write));
        self.last += 1;
        let root = self.rng.bool().then_some(self.last);
        self.root.old.extend(root);
        let pieces = writes.iter().map(|write| (write.first * BLOCK as u64, write.bytes()));
        let bytes = root.map(|version| version.to_le_bytes().to_vec());
        let done = commit(&self.shard, mirror, pieces.collect(), bytes);
        if self.fuse.is_blown() {
            return;
        }
        assert_eq!(done, Ok(()), "seed {}", self.seed);
        self.end(&writes);
        if let Some(version) = root {
            self.root.now = BTreeSet::from([version]);
        }
        let now = self.sectors.clone();
        self.durable(&now, &[]);
    }

    fn some_flush(&mut self, mirror: &Rc<Mirror>) {
        let done = flush(&self.shard, mirror);
        if self.fuse.is_blown() {
            return;
        }
        assert_eq!(done, Ok(()), "seed {}", self.seed);
        let now = self.sectors.clone();
        self.durable(&now, &[]);
    }

    /// Makes a leg fail, or has another one join while requests are made: true.
    fn change_legs(&mut self, mirror: &Rc<Mirror>) -> bool {
        let held: Vec<usize> = mirror.held().collect();
        if held.len() > 1 && self.fails {
            return false;
        }
        if held.len() == self.most || held.len() > 1 && self.rng.bool() {
            let leg = held[self.rng.usize(..held.len())];
            self.fails = self.rng.bool();
            match self.fails {
                true => self.legs[leg].as_ref().unwrap().fail(),
                false => mirror.detach(leg, "it was asked for").unwrap(),
            }
            return false;
        }
        let disk = self.new_disk();
        let region = self.region(&disk);
        let joining = mirror.join(region).unwrap();
        let joined = Rc::new(RefCell::new(None));
        let done = Rc::clone(&joined);
        self.shard.spawn(async move {
            *done.borrow_mut() = Some(joining.run().await);
        });
        while joined.borrow().is_none() && !self.fuse.is_blown() {
            self.some_requests(mirror);
            let shard = self.shard.clone();
            self.shard.block_on(async move { shard.sleep(50_000).await });
        }
        // The reporter of this life does not know the new disk, so this life ends.
        if joined.take().is_some_and(|done| done.is_ok()) && !self.fuse.is_blown() {
            self.current.borrow_mut().push(disk);
            self.check_alone(mirror);
        }
        true
    }

    /// Flushes, and looks at each leg as it is then.
    fn check_alone(&mut self, mirror: &Rc<Mirror>) {
        self.some_flush(mirror);
        if self.fuse.is_blown() {
            return;
        }
        let forks: Vec<VolatileDisk> =
            self.current.borrow().iter().map(VolatileDisk::fork).collect();
        for disk in forks {
            let region = self.region(&disk);
            let alone = open(&self.shard, vec![region], Open::AfterStop).unwrap();
            self.check_all(&alone);
        }
    }

    fn grow(&mut self, mirror: &Rc<Mirror>) {
        self.areas = AREAS.len().min(self.areas + 1);
        let legs = self.legs.clone();
        let regions: Vec<(usize, Region)> =
            mirror.held().map(|leg| (leg, self.region(legs[leg].as_ref().unwrap()))).collect();
        let own = Rc::clone(mirror);
        let done = self.shard.block_on(async move { own.prepare_growth(regions).await });
        if self.fuse.is_blown() {
            return;
        }
        let before = self.blocks(mirror);
        assert_eq!(mirror.take_growth(), done.unwrap());
        assert!(self.blocks(mirror) >= before);
    }

    /// Makes requests until the power is cut, or the mirror is to be opened again. True: it was stopped in order.
    fn live(&mut self, mirror: Rc<Mirror>) -> bool {
        while !self.fuse.is_blown() {
            match self.rng.u8(..40) {
                0 if self.change_legs(&mirror) => return false,
                0 => {}
                1 => self.grow(&mirror),
                2 => {
                    self.some_flush(&mirror);
                    return !self.fuse.is_blown();
                }
                3..10 => self.some_flush(&mirror),
                10..18 => self.some_commit(&mirror),
                18..22 => {
                    let first = self.rng.u64(..self.blocks(&mirror));
                    let count = self.rng.u64(1..=60).min(self.blocks(&mirror) - first);
                    self.look(&mirror, first, count);
                }
                _ => self.some_requests(&mirror),
            }
        }
        false
    }

    /// The power goes; or only the process dies, and the disks' caches live on.
    fn stop(&mut self) {
        // Requests under way end first, one way or the other.
        let shard = self.shard.clone();
        self.shard.block_on(async move { shard.sleep(1_000_000_000).await });
        if self.rng.u8(..3) > 0 {
            let disks = self.current.borrow().clone();
            disks.iter().for_each(|disk| disk.cut(&mut |sides| self.rng.u64(..sides)));
        }
    }

    fn open_after_crash(&mut self) -> Result<Rc<Mirror>, String> {
        let mirror = self.open(Open::AfterCrash).map_err(|error| error.to_string())?;
        let own = Rc::clone(&mirror);
        let adopted = self.shard.block_on(async move { own.adopt_all().await });
        adopted.map_err(|error| error.to_string())?;
        Ok(mirror)
    }

    /// Everything is as it may be after a crash, and stays that.
    fn check_all(&mut self, mirror: &Rc<Mirror>) {
        let blocks = self.blocks(mirror);
        for first in (0..blocks).step_by(50) {
            let len = (blocks - first).min(50) as usize * BLOCK;
            let bytes = read(&self.shard, mirror, first * BLOCK as u64, len);
            let bytes = bytes.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            self.check(first, &bytes, true);
        }
        let own = Rc::clone(mirror);
        let root = self.shard.block_on(async move { own.root().await }).unwrap();
        assert_eq!(root.len(), ROOT);
        let version = u64::from_le_bytes(root[..8].try_into().unwrap());
        let (seed, old) = (self.seed, &self.root.old);
        assert!(old.contains(&version), "seed {seed}: root {version}: {old:?}");
        self.root.now = BTreeSet::from([version]);
    }
}

fn survives(seed: u64, most: usize) {
    let mut world = World::new(seed, most);
    let disks = (0..world.rng.usize(1..=most)).map(|_| world.new_disk()).collect();
    *world.current.borrow_mut() = disks;
    let mut mirror = world.open(Open::Create).unwrap();
    assert!(mirror.is_new());
    commit(&world.shard, &mirror, Vec::new(), Some(vec![0; 8])).unwrap();
    for _ in 0..world.rng.u8(1..6) {
        let most = if world.rng.bool() { 20 } else { 600 };
        world.fuse.set(world.rng.u64(1..most));
        if world.live(mirror) {
            world.fuse.mend();
            mirror = world.open(Open::AfterStop).unwrap();
            assert!(!mirror.must_verify(), "seed {seed}");
            world.check_all(&mirror);
            continue;
        }
        world.stop();
        // The power may go again before all is equal, and any leg may be the first.
        while world.rng.u8(..3) == 0 {
            world.fuse.set(world.rng.u64(1..60));
            drop(world.open_after_crash());
            world.stop();
        }
        world.fuse.mend();
        let opened = world.open_after_crash();
        mirror = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        world.check_all(&mirror);
    }
    world.some_flush(&mirror);
    drop(mirror);
    for disk in world.current.take() {
        *world.current.borrow_mut() = vec![disk];
        let alone = world.open(Open::AfterStop).unwrap();
        world.check_all(&alone);
        assert_eq!(alone.mended(), 0, "seed {seed}");
    }
}

#[test]
fn no_crash_costs_what_was_flushed_and_all_legs_are_the_same() {
    // The last one found that a block that was read after a crash, and had no checksum, was not copied to a leg that joined.
    (0..60).chain([2140]).for_each(|seed| survives(seed, 2));
    (0..60).for_each(|seed| survives(seed, 3));
}

/// Minutes: after a change of this crate, as CONTRIBUTING.md says. As many seeds as the variable `SEEDS` says.
#[test]
#[ignore = "takes minutes"]
fn many_histories() {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 60..60 + count.unwrap_or(5_000) {
        survives(seed, 2 + (seed % 2) as usize);
    }
}
