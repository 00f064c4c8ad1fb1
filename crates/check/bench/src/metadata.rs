//! What requests to a volume's metadata store cost, with one copy and with two.

use crate::tables::{Effort, Row, Table};
use anyhow::{Context, anyhow};
use braid_device::Opener;
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_kv::{KvStore, Store};
use braid_load::{Report, Spread};
use braid_mirror::{Mirror, Open, Region};
use braid_shard::Shard;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a region.
const REGION: u64 = 256 << 20;
/// Bytes that the store keeps in memory.
const CACHE: usize = 64 << 20;
/// Bytes of a value: a small record.
const VALUE: usize = 64;
/// Keys that are read.
const READ: u64 = 1000;
/// Reads that are asked for together.
const TOGETHER: u64 = 64;
/// Pairs of each kind of commit, and how often it is made in a round.
const COMMITS: [(u64, u64); 3] = [(1, 100), (100, 40), (10_000, 4)];

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let folder = match &effort.disk {
        Some(disk) => tempfile::tempdir_in(disk),
        None => tempfile::tempdir(),
    };
    let folder = folder.context("making a folder for the regions")?;
    let rounds = if effort.quick { 1 } else { 5 };
    let rows = [1, 2].into_iter().map(|copies| row(folder.path(), copies, rounds));
    Ok(Table {
        title: "The metadata store".to_owned(),
        about: format!(
            "Requests to the store of a volume's metadata, whose regions are files of {} MiB on one disk, in \
             microseconds. *Commit*: new pairs of a key of 8 bytes and a value of {VALUE}, each commit durable before \
             the next. *Get*: one value that is in the store's memory; alone, or {TOGETHER} asked for together, of each.",
            REGION >> 20
        ),
        headings: vec![
            "regions",
            "commit of 1",
            "commit of 100",
            "commit of 10,000",
            "get, alone",
            "get, of 64",
        ],
        rows: rows.collect::<anyhow::Result<_>>()?,
        plots: Vec::new(),
    })
}

fn row(folder: &Path, copies: usize, rounds: usize) -> anyhow::Result<Row> {
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for _ in 0..rounds {
        let times = round(folder, copies).with_context(|| format!("on {copies} regions"))?;
        columns.resize(times.len(), Vec::new());
        for (column, time) in columns.iter_mut().zip(times) {
            column.push(time.as_secs_f64() * 1e6);
        }
    }
    let cell = |values: Vec<f64>| {
        let Spread { median, min, max } = Spread::of(values);
        format!("{median:.1} ({min:.1}–{max:.1})")
    };
    let report =
        Report { rounds, ..Report::without_figures(format!("metadata store on {copies} regions")) };
    Ok(Row { load: copies.to_string(), cells: columns.into_iter().map(cell).collect(), report })
}

/// What each kind of request took, in the order of the columns.
fn round(folder: &Path, copies: usize) -> anyhow::Result<Vec<Duration>> {
    let folder = tempfile::tempdir_in(folder).context("making a folder for the regions")?;
    let shard = Shard::with_ring(0).context("starting a shard")?;
    let region = |copy| region(&shard, &folder.path().join(format!("region-{copy}")));
    let regions = (0..copies).map(region);
    let regions = regions.collect::<anyhow::Result<Vec<_>>>()?;
    let home = shard.clone();
    let mirror = async move { Mirror::open(&home, regions, Open::Create).await };
    let mirror = shard.block_on(mirror)?;
    let store = shard.block_on(KvStore::open(&shard, mirror, CACHE))?;
    let key = |n: u64| (n * 7919).to_be_bytes().to_vec();
    let mut times = Vec::new();
    let mut next = 0;
    for (count, often) in COMMITS {
        let start = Instant::now();
        for _ in 0..often {
            let changes = (next..next + count).map(|n| (key(n), Some(vec![n as u8; VALUE])));
            shard.block_on(store.commit(changes.collect()))?;
            next += count;
        }
        times.push(per(start, often));
    }
    let found = |value: Option<Vec<u8>>| value.ok_or_else(|| anyhow!("a pair is not there"));
    let alone = 5_000;
    let start = Instant::now();
    for n in 0..alone {
        found(shard.block_on(store.get(&key(n % READ)))?)?;
    }
    times.push(per(start, alone));
    let often = 200;
    let start = Instant::now();
    for n in 0..often {
        let answers: Vec<_> = (0..TOGETHER).map(|k| store.get(&key((n + k) % READ))).collect();
        shard.block_on(async move {
            for answer in answers {
                found(answer.await?)?;
            }
            anyhow::Ok(())
        })?;
    }
    times.push(per(start, often * TOGETHER));
    shard.block_on(store.stop())?;
    Ok(times)
}

fn region(shard: &Shard, path: &Path) -> anyhow::Result<Region> {
    create_sparse(path, REGION).with_context(|| format!("making {}", path.display()))?;
    let device = FileMember::open(path, Mode::ReadWrite)?.open(shard)?;
    Region::new(device, 0, REGION).with_context(|| format!("opening {}", path.display()))
}

fn per(start: Instant, count: u64) -> Duration {
    start.elapsed().div_f64(count as f64)
}
