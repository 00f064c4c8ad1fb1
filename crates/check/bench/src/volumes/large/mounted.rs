//! The process that mounts a large volume and measures itself.

use super::making::{
    BRICK, BRICKS, FIRST_INO, STRIPES_OF_FILE, open_bricks, open_store, region_path,
};
use anyhow::{Context, bail};
use braid_filesystem::{Errno, FileSystem, Time};
use braid_format::volume::BLOCK;
use braid_kv::KvStore;
use braid_mirror::Open;
use braid_shard::Shard;
use braid_shard::sync::promise;
use braid_volume::{BrickDevice, BrickToAdd, MountOf, NewJob, Volume, noted_nowhere};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of a stripe.
const STRIPE: u64 = 128 << 10;
/// Bytes of a read.
const READ: u64 = 4096;
/// Nanoseconds without a request after which a volume is at rest.
const REST: u64 = 12_000_000_000;
/// Volumes of up to so many stripes are checked in the end, to see that their records are right.
const CHECKED: u64 = 1_000_000;

/// The measured values: times in seconds, latencies in nanoseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub bytes: u64,
    pub metadata: u64,
    pub mount: f64,
    pub plan: f64,
    pub to_move: u64,
    pub memory_mounted: u64,
    pub memory_most: u64,
    pub alone_median: u64,
    pub alone_p99: u64,
    pub beside_median: u64,
    pub beside_p99: u64,
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> anyhow::Error {
    move |errno| anyhow::anyhow!("{doing}: {errno}")
}

/// A line of /proc/self/status that is in kilobytes, in bytes.
fn memory(line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading own memory")?;
    let found = status.lines().find_map(|one| one.strip_prefix(line));
    let kilobytes = found.and_then(|rest| rest.split_whitespace().nth(1));
    let kilobytes: u64 = kilobytes.context("the kernel does not tell own memory")?.parse()?;
    Ok(kilobytes << 10)
}

/// Opens the store and mounts the volume: seconds, and both.
fn mount(shard: &Shard, folder: &Path, how: Open) -> anyhow::Result<(f64, KvStore, Rc<Volume>)> {
    let devices = open_bricks(shard, folder, 0..BRICKS)?;
    let start = Instant::now();
    let store = open_store(shard, &region_path(folder), how)?;
    let devices = devices.into_iter();
    let from = MountOf {
        devices: devices
            .map(|(uuid, device)| BrickDevice { uuid, device, data_offset: 0 })
            .collect(),
        store: Rc::new(store.clone()),
        note_lost: noted_nowhere(),
        clock: Rc::new(Time::default),
        read_only: false,
    };
    let own = shard.clone();
    let volume = shard.block_on(async move { Volume::mount(&own, from).await })?;
    Ok((start.elapsed().as_secs_f64(), store, volume))
}

/// Reads anywhere in any of the files, one after the other, until `over`.
async fn read_anywhere(
    shard: &Shard,
    volume: &Volume,
    files: u64,
    over: &Cell<bool>,
) -> anyhow::Result<Histogram<u64>> {
    let mut latency = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?;
    let mut random = fastrand::Rng::with_seed(7);
    while !over.get() {
        let ino = FIRST_INO + random.u64(0..files);
        let at = random.u64(0..STRIPES_OF_FILE * STRIPE / READ) * READ;
        let start = shard.now();
        volume.read(ino, at, READ as usize).await.map_err(failed("reading a file"))?;
        latency.saturating_record((shard.now() - start).max(1));
    }
    Ok(latency)
}

/// Reads for as long as `doing` takes.
fn beside<T: 'static>(
    shard: &Shard,
    volume: &Rc<Volume>,
    files: u64,
    doing: impl Future<Output = anyhow::Result<T>> + 'static,
) -> anyhow::Result<(Histogram<u64>, T)> {
    let over = Rc::new(Cell::new(false));
    let (promise, promised) = promise(shard);
    let (own, reader, ended) = (shard.clone(), Rc::clone(volume), Rc::clone(&over));
    shard.spawn(async move {
        promise.fulfil(read_anywhere(&own, &reader, files, &ended).await);
    });
    shard.block_on(async move {
        let done = doing.await;
        over.set(true);
        let latency = promised.await.context("the reader is gone")??;
        Ok((latency, done?))
    })
}

/// Measures the volume of so many stripes in `folder`, and writes what was measured as JSON to the standard output.
///
/// # Errors
/// When it cannot be mounted, or something is wrong with it.
pub fn run(folder: &Path, stripes: u64) -> anyhow::Result<()> {
    let shard = Shard::with_ring(0).context("starting a shard")?;
    let (mounting, store, volume) = mount(&shard, folder, Open::AfterStop)?;
    let memory_mounted = memory("VmRSS")?;
    let metadata = braid_kv::Store::space(&store).used;
    // The last one may be shorter.
    let files = stripes / STRIPES_OF_FILE;
    let second = shard.clone();
    let alone = async move {
        second.sleep(1_000_000_000).await;
        Ok(())
    };
    let (alone, ()) = beside(&shard, &volume, files, alone)?;
    let (plan, beside, to_move) = plan(&shard, folder, &volume, files)?;
    let memory_most = memory("VmHWM")?;
    let checked = Rc::clone(&volume);
    let report = shard.block_on(async move {
        let report = match stripes <= CHECKED {
            true => Some(checked.check(false).await?),
            false => None,
        };
        checked.sync_all().await.map_err(failed("syncing the volume"))?;
        anyhow::Ok(report)
    })?;
    if let Some(report) = report.filter(|report| !report.is_clean()) {
        bail!("the volume is not clean: {report:?}");
    }
    let measured = Measured {
        bytes: stripes * STRIPE,
        metadata,
        mount: mounting,
        plan,
        to_move,
        memory_mounted,
        memory_most,
        alone_median: alone.value_at_quantile(0.5),
        alone_p99: alone.value_at_quantile(0.99),
        beside_median: beside.value_at_quantile(0.5),
        beside_p99: beside.value_at_quantile(0.99),
    };
    println!("{}", serde_json::to_string(&measured)?);
    // Nothing is closed, as in a crash.
    std::process::exit(0)
}

/// Mounts the volume in `folder` that a crash has left, and writes the seconds to the standard output. It ends as in a crash,
/// when the volume has been at rest for a while.
///
/// # Errors
/// When it cannot be mounted.
pub fn run_after_crash(folder: &Path) -> anyhow::Result<()> {
    let shard = Shard::with_ring(0).context("starting a shard")?;
    let (seconds, _store, _volume) = mount(&shard, folder, Open::AfterCrash)?;
    println!("{seconds}");
    let own = shard.clone();
    shard.block_on(async move { own.sleep(REST).await });
    std::process::exit(0)
}

/// Adds a brick and plans a balance beside reads: seconds of the plan, latencies of the reads, bytes to move.
fn plan(
    shard: &Shard,
    folder: &Path,
    volume: &Rc<Volume>,
    files: u64,
) -> anyhow::Result<(f64, Histogram<u64>, u64)> {
    let added = open_bricks(shard, folder, BRICKS..BRICKS + 1)?;
    let (uuid, device) = added.into_iter().next().context("no brick to add")?;
    let new = BrickToAdd {
        uuid,
        device,
        data_offset: 0,
        weight: BRICK,
        blocks: BRICK / BLOCK,
        proxy: false,
        domain: String::new(),
        in_place_of: None,
    };
    let planned = Rc::clone(volume);
    let planning = async move {
        planned.add_brick(new).await?;
        let start = Instant::now();
        planned.start_job(NewJob::Balance).await?;
        let seconds = start.elapsed().as_secs_f64();
        let total = planned.job().context("the balance is gone")?.total;
        planned.cancel_job();
        planned.wait_job().await?;
        Ok((seconds, total))
    };
    let (latency, (seconds, total)) = beside(shard, volume, files, planning)?;
    Ok((seconds, latency, total))
}
