//! What readers of files notice of a balance, at several latencies that the pace of jobs is to keep.

use super::rig::{Clock, Medium, Rig};
use super::verdict::{ratio, verdict};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_load::{Measured, Report, Slice, Spread, megabytes, significant};
use braid_volume::NewJob;
use hdrhistogram::Histogram;
use std::rc::Rc;

/// Latencies that jobs are to leave room for, in microseconds; the first is what a volume of such bricks starts with, unset.
const TARGETS_US: [(Option<u64>, u64); 4] =
    [(None, 2_000), (Some(20_000), 20_000), (Some(5_000), 5_000), (Some(500), 500)];

struct Pair {
    without: (Histogram<u64>, f64),
    with: (Histogram<u64>, f64),
    moved: u64,
}

/// Readers on three bricks, alone and while a balance fills a fourth.
fn pair(target_us: Option<u64>, size: u64) -> anyhow::Result<Pair> {
    let mut rig = Rig::filled(Clock::Devices, 3, size)?;
    if let Some(target_us) = target_us {
        rig.volume.set_job_latency(Some(target_us * 1000));
    }
    let shard = rig.shard.clone();
    let without = rig.beside(async move {
        shard.sleep(1_000_000_000).await;
        Ok(())
    })?;
    rig.add(Medium::Ssd, false)?;
    let written = |rig: &Rig| -> u64 {
        rig.volume.bricks().iter().map(|brick| brick.counts().bytes_written).sum()
    };
    let before = written(&rig);
    let volume = Rc::clone(&rig.volume);
    let with = rig.beside(async move {
        volume.start_job(NewJob::Balance).await?;
        Ok(volume.wait_job().await?)
    })?;
    let moved = written(&rig) - before;
    rig.verify()?;
    rig.end()?;
    Ok(Pair { without, with, moved })
}

fn slice((latency, seconds): &(Histogram<u64>, f64)) -> Slice {
    let requests = latency.len();
    Slice { requests, bytes: requests * 4096, seconds: *seconds, latency: Some(latency.clone()) }
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size = if effort.quick { 128 << 20 } else { 512 << 20 };
    let mut rows = Vec::new();
    for (set, target) in TARGETS_US {
        let doing = || format!("a balance with a target of {target} µs");
        let pair = pair(set, size).with_context(doing)?;
        let us = |histogram: &Histogram<u64>, quantile| {
            histogram.value_at_quantile(quantile) as f64 / 1e3
        };
        let (without, with) = (&pair.without.0, &pair.with.0);
        let p99 = us(with, 0.99);
        let rate = pair.moved as f64 / pair.with.1.max(1e-9);
        let busiest = rate / Clock::Devices.write_rate() as f64;
        let cells = vec![
            significant(us(without, 0.5)),
            significant(us(without, 0.99)),
            significant(us(with, 0.5)),
            significant(p99),
            verdict(p99 <= target as f64).to_owned(),
            format!("{:.2}", p99 / us(without, 0.99).max(1e-9)),
            megabytes(rate),
            format!("{busiest:.2}"),
        ];
        let measured = |name: &str, slices| Measured { name: name.to_owned(), worth: None, slices };
        let all = [
            measured("balance under way", vec![slice(&pair.with)]),
            measured("alone", vec![slice(&pair.without)]),
        ];
        let unset = if set.is_none() { ", by default" } else { "" };
        let load = format!("target {} ms{unset}", target as f64 / 1e3);
        let report = Report::of(load.clone(), 1, &all, Vec::new());
        let ratios = vec![ratio("balance", "new brick's rate", Spread::of([busiest]))];
        rows.push(Row { load, cells, report: Report { virtual_time: true, ratios, ..report } });
    }
    Ok(Table {
        title: "Volumes: readers beside a balance".to_owned(),
        about: format!(
            "Four readers of 4 KiB here and there in a file of {} MiB on three modelled SSDs as in the table of volumes, in \
             the devices' time: alone for a second, then while a fourth device is filled by a balance, whose pace is set by \
             the latency that readers shall have: 2 ms, and 20 ms where a brick has heads; other targets are set by \
             `braid volume jobs --latency`. Moves are halved while any request takes longer.",
            size >> 20
        ),
        headings: vec![
            "job",
            "p50 alone, µs",
            "p99 alone, µs",
            "p50, µs",
            "p99, µs",
            "p99 ≤ target",
            "p99 ÷ alone",
            "balance, MB/s",
            "÷ new brick",
        ],
        rows,
        plots: Vec::new(),
    })
}
