//! A volume over modelled devices, one file on it, and somebody who reads and writes that from start to end.
//!
//! Owns the shard, the volume and what is to be read back. Does not know which steps are measured.

use crate::loads::virtual_time::VirtualClock;
use anyhow::{Context, bail};
use braid_device::meter::Metered;
use braid_device::plug::Plug;
use braid_device::spec::MemberSpec;
use braid_device::{Device, IoSets, Op, Request};
use braid_filesystem::{Caller, Errno, FileSystem, Ino, Kind, NewNode, ROOT, Time, Writing};
use braid_format::volume::BLOCK;
use braid_kv::Store;
use braid_kv::model::ModelStore;
use braid_shard::sync::promise;
use braid_shard::{Buf, Shard};
use braid_volume::{
    Brick, BrickCounts, BrickDevice, BrickToAdd, CheckEnd, Format, MountOf, NewBrick, NewJob,
    Volume, first_records, noted_nowhere,
};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;
use uuid::Uuid;

/// Bytes of a request, as FUSE's readahead and writeback send them.
pub const REQUEST: u64 = 1 << 20;
/// Requests in flight: 8 MiB, what the kernel reads ahead through FUSE at most.
pub const DEPTH: usize = 8;
/// Bytes of a stripe.
pub const STRIPE: u64 = 128 << 10;
/// Payloads that are written in turn: more of them than a cache holds, and a number that no layout has.
const PAYLOADS: u64 = 61;
/// Readers beside a balance.
const READERS: u64 = 4;
/// Writers of blocks here and there.
const WRITERS: u64 = 16;
/// What a commit of metadata takes, in nanoseconds.
const COMMIT_NANOS: u64 = 1_000_000;

/// Whose seconds are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Those of the machine: the engine and the copying of bytes are in them.
    Wall,
    /// Those of the devices: the engine takes no time, and every run is like every other.
    Devices,
}

/// What a brick lies on.
#[derive(Clone, Debug, PartialEq)]
pub enum Medium {
    /// A modelled SSD.
    Ssd,
    /// Memory.
    Ram,
    /// A block device of this machine.
    Path(PathBuf),
}

impl Clock {
    /// Bytes per second that a modelled SSD reads. On the wall clock a quarter, so that what is measured is not how
    /// fast one core copies the bytes into and out of the memory behind the devices.
    pub fn read_rate(self) -> u64 {
        match self {
            Clock::Devices => 500_000_000,
            Clock::Wall => 125_000_000,
        }
    }

    /// The same for writes.
    pub fn write_rate(self) -> u64 {
        self.read_rate() / 10 * 9
    }
}

/// What a step took.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Seconds.
    pub seconds: f64,
    /// Bytes written to all bricks.
    pub written: u64,
    /// Seconds that the busiest device needs at its rate for the bytes that it was asked for.
    pub busiest: f64,
}

/// A mounted volume.
pub struct Rig {
    pub shard: Shard,
    pub volume: Rc<Volume>,
    pub file: Ino,
    clock: Clock,
    size: u64,
    payloads: Rc<Vec<Buf>>,
    kinds: BTreeMap<Uuid, Medium>,
    next: u128,
    brick_size: u64,
    store: ModelStore,
    devices: Vec<(Uuid, Rc<dyn Device>)>,
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> anyhow::Error {
    move |errno| anyhow::anyhow!("{doing}: {errno}")
}

fn device(
    shard: &Shard,
    clock: Clock,
    kind: &Medium,
    size: u64,
) -> anyhow::Result<(Rc<dyn Device>, Rc<dyn Device>)> {
    let text = match kind {
        Medium::Ssd => {
            let (read, write) = (clock.read_rate(), clock.write_rate());
            format!("model:sata-ssd,{size},read={read},write={write}")
        }
        Medium::Ram => format!("ram:{size}"),
        Medium::Path(path) => path.to_string_lossy().into_owned(),
    };
    let spec: MemberSpec = text.parse().context("naming a modelled device")?;
    let bare = spec.prepare().and_then(|opener| opener.open(shard)).context("making a device")?;
    let plugged: Rc<dyn Device> = match bare.info().wants_plug {
        true => Plug::metered(shard, Metered::new(shard, Rc::clone(&bare))),
        false => Rc::clone(&bare),
    };
    Ok((bare, plugged))
}

pub fn shard(clock: Clock) -> anyhow::Result<Shard> {
    match clock {
        Clock::Wall => Shard::with_ring(0).context("setting an io_uring up"),
        Clock::Devices => Ok(Shard::with_reactor(0, Rc::new(VirtualClock::default()))),
    }
}

fn mount(
    shard: &Shard,
    store: &ModelStore,
    devices: &[(Uuid, Rc<dyn Device>)],
) -> anyhow::Result<Rc<Volume>> {
    let devices = devices.iter().map(|(uuid, device)| BrickDevice {
        uuid: *uuid,
        device: Rc::clone(device),
        data_offset: 0,
    });
    let from = MountOf {
        devices: devices.collect(),
        store: Rc::new(store.clone()),
        note_lost: noted_nowhere(),
        clock: Rc::new(Time::default),
        read_only: false,
    };
    let own = shard.clone();
    Ok(shard.block_on(async move { Volume::mount(&own, from).await })?)
}

impl Rig {
    /// A volume over `bricks` modelled SSDs, each with room for a whole file of `size` bytes.
    pub fn new(clock: Clock, bricks: usize, size: u64) -> anyhow::Result<Rig> {
        Rig::on(clock, vec![Medium::Ssd; bricks], size)
    }

    /// A volume over bricks that lie on these, with a file that will have `size` bytes.
    pub fn on(clock: Clock, bricks: Vec<Medium>, size: u64) -> anyhow::Result<Rig> {
        Rig::with_copies(clock, bricks, size, 1)
    }

    /// The same of a volume whose files have so many copies.
    pub fn with_copies(
        clock: Clock,
        bricks: Vec<Medium>,
        size: u64,
        copies: u8,
    ) -> anyhow::Result<Rig> {
        Rig::of_format(clock, bricks, size, Format { stripe: STRIPE, checksums: true, copies })
    }

    /// The same of a volume of this format.
    pub fn of_format(
        clock: Clock,
        bricks: Vec<Medium>,
        size: u64,
        format: Format,
    ) -> anyhow::Result<Rig> {
        let shard = shard(clock)?;
        let brick_size = size + size / 8 + (64 << 20);
        let mut devices = Vec::new();
        let mut new = Vec::new();
        let mut kinds = BTreeMap::new();
        let next = bricks.len() as u128 + 1;
        for (kind, nr) in bricks.into_iter().zip(1..) {
            let uuid = Uuid::from_u128(nr);
            let (_, device) = device(&shard, clock, &kind, brick_size)?;
            new.push(NewBrick {
                domain: String::new(),
                uuid,
                weight: brick_size,
                blocks: device.info().size / BLOCK,
            });
            devices.push((uuid, device));
            kinds.insert(uuid, kind);
        }
        let store = ModelStore::new(&shard);
        let owner = Caller { uid: 0, gid: 0 };
        let records = first_records(Uuid::from_u128(99), format, &new, owner, Time::default())?;
        shard.block_on(store.commit(records)).context("making a volume")?;
        store.set_commit_time(COMMIT_NANOS);
        let volume = mount(&shard, &store, &devices)?;
        let made = Rc::clone(&volume);
        let file = shard.block_on(async move {
            let node = NewNode { kind: Kind::File, perm: 0o644, umask: 0, rdev: 0, target: b"" };
            made.make(owner, ROOT, b"file", node).await
        });
        let file = file.map_err(failed("making the file"))?.attr.ino;
        let payload = |nr: u64| shard.pool().copy_of(&payload_bytes(nr)).freeze();
        let payloads = Rc::new((0..PAYLOADS).map(payload).collect());
        Ok(Rig {
            shard,
            volume,
            file,
            clock,
            size,
            payloads,
            kinds,
            next,
            brick_size,
            store,
            devices,
        })
    }

    /// Mounts the volume again, without one of its bricks.
    pub fn lose(&mut self, brick: u16) -> anyhow::Result<()> {
        let volume = Rc::clone(&self.volume);
        let lost = volume.brick(brick).map(|brick| brick.uuid);
        let closed = self.shard.block_on(async move { volume.close().await });
        closed.map_err(failed("closing the volume"))?;
        self.devices.retain(|(uuid, _)| Some(*uuid) != lost);
        self.volume = mount(&self.shard, &self.store, &self.devices)?;
        Ok(())
    }

    /// Bytes that the file takes on a brick.
    pub fn used_on(&self, brick: u16) -> u64 {
        self.volume.brick(brick).map_or(0, |brick| brick.space.used() * BLOCK)
    }

    /// The same with the file written.
    pub fn filled(clock: Clock, bricks: usize, size: u64) -> anyhow::Result<Rig> {
        let rig = Rig::new(clock, bricks, size)?;
        rig.write()?;
        Ok(rig)
    }

    fn bricks(&self) -> Vec<Rc<Brick>> {
        self.volume.bricks()
    }

    /// Measures what `doing` does.
    fn step(&self, doing: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Step> {
        let bricks = self.bricks();
        let before: Vec<BrickCounts> = bricks.iter().map(|brick| brick.counts()).collect();
        let start = self.shard.now();
        doing()?;
        let seconds = (self.shard.now() - start) as f64 / 1e9;
        let (mut written, mut busiest) = (0, 0.0f64);
        for (brick, before) in bricks.iter().zip(before) {
            let after = brick.counts();
            let reads = after.bytes_read - before.bytes_read;
            let writes = after.bytes_written - before.bytes_written;
            written += writes;
            if self.kinds.get(&brick.uuid) == Some(&Medium::Ssd) {
                let needs = (reads as f64 / self.clock.read_rate() as f64)
                    .max(writes as f64 / self.clock.write_rate() as f64);
                busiest = busiest.max(needs);
            }
        }
        Ok(Step { seconds, written, busiest })
    }

    /// Writes the whole file and makes it durable.
    pub fn write(&self) -> anyhow::Result<Step> {
        self.step(|| self.stream(true, false))
    }

    /// Reads the whole file.
    pub fn read(&self) -> anyhow::Result<Step> {
        self.step(|| self.stream(false, false))
    }

    /// Reads the whole file and compares.
    pub fn verify(&self) -> anyhow::Result<()> {
        self.stream(false, true)
    }

    fn stream(&self, write: bool, compare: bool) -> anyhow::Result<()> {
        let next = Rc::new(Cell::new(0u64));
        let count = self.size / REQUEST;
        let mut waiting = Vec::new();
        for _ in 0..DEPTH {
            let (promise, promised) = promise(&self.shard);
            let (volume, next, payloads) =
                (Rc::clone(&self.volume), Rc::clone(&next), Rc::clone(&self.payloads));
            let file = self.file;
            self.shard.spawn(async move {
                promise.fulfil(run(&volume, file, &next, count, &payloads, write, compare).await);
            });
            waiting.push(promised);
        }
        let (volume, file) = (Rc::clone(&self.volume), self.file);
        self.shard.block_on(async move {
            for promised in waiting {
                promised.await.context("a task is gone")??;
            }
            if write {
                volume.fsync(file, false).await.map_err(failed("making the file durable"))?;
            }
            anyhow::Ok(())
        })
    }

    /// Adds a brick, without moving anything.
    pub fn add(&mut self, kind: Medium, proxy: bool) -> anyhow::Result<u16> {
        self.add_in_place_of(kind, proxy, None)
    }

    /// Adds a brick in the place of another, which is to be removed then.
    pub fn add_in_place_of(
        &mut self,
        kind: Medium,
        proxy: bool,
        in_place_of: Option<u16>,
    ) -> anyhow::Result<u16> {
        let uuid = Uuid::from_u128(self.next);
        self.next += 1;
        let (_, device) = device(&self.shard, self.clock, &kind, self.brick_size)?;
        self.kinds.insert(uuid, kind);
        let blocks = device.info().size / BLOCK;
        let brick = BrickToAdd {
            uuid,
            device,
            data_offset: 0,
            weight: self.brick_size,
            blocks,
            proxy,
            domain: String::new(),
            in_place_of,
        };
        let volume = Rc::clone(&self.volume);
        Ok(self.shard.block_on(async move { volume.add_brick(brick).await })?)
    }

    /// Runs a job to its end.
    pub fn job(&self, job: NewJob) -> anyhow::Result<Step> {
        let volume = Rc::clone(&self.volume);
        self.step(|| {
            let done = self.shard.block_on(async move {
                volume.start_job(job).await?;
                volume.wait_job().await?;
                volume.sync_all().await.map_err(failed("making the volume durable"))
            });
            done.context("running a job")
        })
    }

    /// Ends the volume, after a look for anything wrong with it.
    pub fn end(self) -> anyhow::Result<()> {
        let volume = Rc::clone(&self.volume);
        let report = self.shard.block_on(async move {
            let report = volume.check(false).await?;
            volume.close().await.map_err(failed("closing the volume"))?;
            anyhow::Ok(report)
        })?;
        if !report.is_clean() {
            bail!("the volume is not clean after the steps: {report:?}");
        }
        self.shard.abandon();
        Ok(())
    }
}

async fn run(
    volume: &Volume,
    file: Ino,
    next: &Cell<u64>,
    count: u64,
    payloads: &[Buf],
    write: bool,
    compare: bool,
) -> anyhow::Result<()> {
    while next.get() < count {
        let at = next.replace(next.get() + 1);
        let payload = payloads.get((at % PAYLOADS) as usize).context("no payload")?;
        if write {
            let data = payload.slice(0..payload.len());
            let written = volume.write(file, at * REQUEST, data, Writing::default()).await;
            written.map_err(failed("writing the file"))?;
        } else {
            let read = volume.read(file, at * REQUEST, REQUEST as usize).await;
            let read = read.map_err(failed("reading the file"))?;
            if read.len() != payload.len() || compare && read[..] != payload[..] {
                bail!("what is read at {at} MiB is not what was written");
            }
        }
    }
    Ok(())
}

impl Rig {
    /// Readers of 4 KiB here and there, for as long as `doing` takes: their latencies in nanoseconds, and seconds.
    pub fn beside<F>(&self, doing: F) -> anyhow::Result<(Histogram<u64>, f64)>
    where
        F: Future<Output = anyhow::Result<()>> + 'static,
    {
        let latencies = Rc::new(RefCell::new(
            Histogram::new_with_bounds(1, 3_600_000_000_000, 3).context("making a histogram")?,
        ));
        let over = Rc::new(Cell::new(false));
        let mut waiting = Vec::new();
        for nr in 0..READERS {
            let (promise, promised) = promise(&self.shard);
            let (volume, shard, file) = (Rc::clone(&self.volume), self.shard.clone(), self.file);
            let (latencies, over) = (Rc::clone(&latencies), Rc::clone(&over));
            let (blocks, mut random) = (self.size / 4096, nr + 1);
            self.shard.spawn(async move {
                let mut result = Ok(());
                while !over.get() && result.is_ok() {
                    random = next_random(random);
                    let start = shard.now();
                    let read = volume.read(file, (random >> 33) % blocks * 4096, 4096).await;
                    result = read.map(|_| ()).map_err(failed("reading the file"));
                    latencies.borrow_mut().saturating_record((shard.now() - start).max(1));
                }
                promise.fulfil(result);
            });
            waiting.push(promised);
        }
        let start = self.shard.now();
        let ends = self.shard.clone();
        let end = self.shard.block_on(async move {
            let done = doing.await;
            let end = ends.now();
            over.set(true);
            for promised in waiting {
                promised.await.context("a task is gone")??;
            }
            done.map(|()| end)
        })?;
        let latencies = latencies.borrow().clone();
        Ok((latencies, (end - start) as f64 / 1e9))
    }
}

/// A generator of numbers by Knuth; the upper bits are the good ones.
fn next_random(random: u64) -> u64 {
    random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407)
}

/// The bytes of the request with this number, [`REQUEST`] of them.
pub fn payload_bytes(nr: u64) -> Vec<u8> {
    let words = (0..REQUEST / 8).map(|at| (nr % PAYLOADS) << 32 | at);
    words.flat_map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// The first words of the blocks of 4096 bytes of the payloads, but for zeroes, which blocks that nobody wrote have, too.
pub fn first_words() -> HashSet<[u8; 8]> {
    let payloads = (0..PAYLOADS).map(payload_bytes).collect::<Vec<_>>();
    let blocks = payloads.iter().flat_map(|payload| payload.chunks(4096));
    blocks.filter_map(|block| block.first_chunk().copied()).filter(|word| *word != [0; 8]).collect()
}

impl Rig {
    /// Reads all data and holds it against its checksums: bytes that were mended from another copy.
    ///
    /// # Errors
    /// When something is wrong that was not mended.
    pub fn scrub(&self) -> anyhow::Result<u64> {
        let volume = Rc::clone(&self.volume);
        let end = self.shard.block_on(async move {
            volume.start_scrub()?;
            volume.wait_check().await;
            anyhow::Ok(volume.last_check())
        })?;
        match end {
            Some(CheckEnd::Done(report)) if report.is_clean() => {
                let ranges = report.mended.iter().flat_map(|lost| &lost.ranges);
                Ok(ranges.map(|(start, end)| end - start).sum())
            }
            end => bail!("the scrub ended so: {end:?}"),
        }
    }

    /// Writes `count` blocks of 4096 bytes here and there in the file, as they are there, and makes them durable.
    pub fn scatter(&self, count: u64) -> anyhow::Result<Step> {
        self.step(|| {
            let mut waiting = Vec::new();
            for nr in 0..WRITERS {
                let (promise, promised) = promise(&self.shard);
                let (volume, file) = (Rc::clone(&self.volume), self.file);
                let (payloads, blocks) = (Rc::clone(&self.payloads), self.size / BLOCK);
                self.shard.spawn(async move {
                    let mut random = nr + 1;
                    let mut result = Ok(());
                    for _ in 0..count / WRITERS {
                        random = next_random(random);
                        let at = (random >> 33) % blocks * BLOCK;
                        let payload = &payloads[(at / REQUEST % PAYLOADS) as usize];
                        let start = (at % REQUEST) as usize;
                        let data = payload.slice(start..start + BLOCK as usize);
                        result = volume.write(file, at, data, Writing::default()).await.map(drop);
                        if result.is_err() {
                            break;
                        }
                    }
                    promise.fulfil(result.map_err(failed("writing a block of the file")));
                });
                waiting.push(promised);
            }
            let (volume, file) = (Rc::clone(&self.volume), self.file);
            self.shard.block_on(async move {
                for promised in waiting {
                    promised.await.context("a task is gone")??;
                }
                volume.fsync(file, false).await.map_err(failed("making the file durable"))
            })
        })
    }

    /// Makes so many empty files in folders of a hundred, and makes them durable.
    pub fn make_tree(&self, files: u64) -> anyhow::Result<()> {
        let volume = Rc::clone(&self.volume);
        self.shard.block_on(async move {
            let owner = Caller { uid: 0, gid: 0 };
            let node = |kind, perm| NewNode { kind, perm, umask: 0, rdev: 0, target: b"" };
            let mut folder = ROOT;
            for file in 0..files {
                if file % 100 == 0 {
                    let name = format!("d{file}");
                    let made =
                        volume.make(owner, ROOT, name.as_bytes(), node(Kind::Directory, 0o755));
                    folder = made.await.map_err(failed("making a folder"))?.attr.ino;
                }
                let name = format!("f{file}");
                let made = volume.make(owner, folder, name.as_bytes(), node(Kind::File, 0o644));
                made.await.map_err(failed("making a file"))?;
            }
            volume.sync_all().await.map_err(failed("making the tree durable"))
        })
    }

    /// Takes a snapshot of everything.
    pub fn snapshot(&self, name: &'static str) -> anyhow::Result<()> {
        let volume = Rc::clone(&self.volume);
        let taken = self.shard.block_on(async move { volume.take_snapshot(ROOT, name).await });
        taken.context("taking a snapshot").map(drop)
    }
}

/// Copies `size` bytes from one modelled SSD to another, past any volume: seconds.
pub fn copy(clock: Clock, size: u64) -> anyhow::Result<f64> {
    let shard = shard(clock)?;
    let (from, _) = device(&shard, clock, &Medium::Ssd, size)?;
    let (to, _) = device(&shard, clock, &Medium::Ssd, size)?;
    let (next, start) = (Rc::new(Cell::new(0u64)), shard.now());
    let sets = Rc::new(IoSets::new(&shard));
    let mut waiting = Vec::new();
    for _ in 0..DEPTH {
        let (promise, promised) = promise(&shard);
        let (from, to, next) = (Rc::clone(&from), Rc::clone(&to), Rc::clone(&next));
        let (pool, sets) = (shard.pool().clone(), Rc::clone(&sets));
        shard.spawn(async move {
            let mut result = Ok(());
            while next.get() < size / REQUEST && result.is_ok() {
                let offset = next.replace(next.get() + 1) * REQUEST;
                let read = Request::read(offset, pool.get(REQUEST as usize));
                let read = sets.one(&*from, read).await;
                result = read.result;
                if let (Op::Read(bufs), Ok(())) = (read.op, result) {
                    let bufs = bufs.into_iter().map(|buf| buf.freeze()).collect();
                    let write = Request { offset, op: Op::Write { bufs, fua: false } };
                    result = sets.one(&*to, write).await.result;
                }
            }
            promise.fulfil(result);
        });
        waiting.push(promised);
    }
    shard.block_on(async move {
        for promised in waiting {
            promised.await.context("a task is gone")??;
        }
        anyhow::Ok(())
    })?;
    let seconds = (shard.now() - start) as f64 / 1e9;
    shard.abandon();
    Ok(seconds)
}
