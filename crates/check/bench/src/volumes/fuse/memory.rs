//! P14: a file of a volume in memory beside a file in memory that fuser alone answers.

use super::loads::{self, Fio};
use super::mounts::Mounted;
use super::{Figures, Load, faster, in_turn, missing, server_us};
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_load::{Measured, Ratio, Report, Slice, megabytes, significant, thousands};

/// Bytes of the file.
const SIZE: u64 = 512 << 20;
/// Bytes of the volume's brick.
const BRICK: &str = "ram:1G";

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    missing(&["fio"])?;
    let (rounds, millis) = if effort.quick { (1, 300) } else { (3, 800) };
    let folder = tempfile::tempdir().context("making a folder for the mounts")?;
    let volume = Mounted::volume(folder.path(), BRICK)?;
    let bare = Mounted::memory_file(folder.path(), SIZE)?;
    for mounted in [&volume, &bare] {
        Fio::lay_out(SIZE).run(&mounted.dir)?;
    }
    let mut rows = Vec::new();
    for load in loads::all(SIZE, millis) {
        let measured = in_turn(&load, &[&volume, &bare], rounds)
            .with_context(|| format!("measuring {}", load.name()))?;
        if let [volume, bare] = measured.as_slice() {
            rows.push(row(&load, volume, bare, rounds));
        }
    }
    Ok(Table {
        title: "A mounted volume beside a bare file of FUSE".to_owned(),
        about: format!(
            "fio on one file of {} MiB: of a volume on one brick in memory ({BRICK}), and of a file system that is one file in \
             memory, answered by the crate fuser alone with the same capabilities, sizes and threads; both by a process of \
             their own. Cached: through the page cache, the whole file once, from dropped caches and with an fsync at the \
             end; direct: O_DIRECT for {millis} ms, depth 1 by pread and pwrite, 16 by Linux's asynchronous I/O. Server: \
             processor time of the process that answers, the kernel's part in its calls included, for each MiB or request.",
            SIZE >> 20
        ),
        headings: vec![
            "load",
            "volume ÷ bare",
            "P14",
            "volume",
            "bare",
            "server, volume",
            "server, bare",
        ],
        rows,
        plots: Vec::new(),
    })
}

/// A rate with its unit.
pub(super) fn rate(load: &Fio, figures: &[Figures]) -> String {
    let measured = measured("", figures);
    if load.is_small() {
        format!("{} IOPS", thousands(measured.iops().median))
    } else {
        format!("{} MB/s", megabytes(measured.bytes_per_second().median))
    }
}

/// The server's time with its unit.
pub(super) fn server(load: &Fio, figures: &[Figures]) -> String {
    let requests = |slice: &Slice| slice.requests as f64;
    let us = server_us(figures, requests);
    let unit = if load.is_small() { "request" } else { "MiB" };
    us.map_or("–".to_owned(), |us| format!("{} µs/{unit}", significant(us.median)))
}

pub(super) fn measured(name: &str, figures: &[Figures]) -> Measured {
    let slices = figures.iter().map(|one| one.slice.clone()).collect();
    Measured { name: name.to_owned(), worth: None, slices }
}

/// The first beside each of the others.
pub(super) fn report(load: String, rounds: usize, all: &[(&str, &[Figures])]) -> Report {
    let measured: Vec<Measured> = all.iter().map(|(name, all)| measured(name, all)).collect();
    let mut report = Report::of(load, rounds, &measured, Vec::new());
    if let Some(((first, own), others)) = all.split_first() {
        let ratio = |(name, figures): &(&str, &[Figures])| Ratio {
            of: (*first).to_owned(),
            by: (*name).to_owned(),
            ratio: faster(own, figures),
        };
        report.ratios = others.iter().map(ratio).collect();
    }
    report
}

fn row(load: &Fio, volume: &[Figures], bare: &[Figures], rounds: usize) -> Row {
    let ratio = Some(faster(volume, bare));
    let least = if load.is_small() { 0.75 } else { 0.85 };
    let cells = vec![
        spread(ratio),
        demand(least, ratio),
        rate(load, volume),
        rate(load, bare),
        server(load, volume),
        server(load, bare),
    ];
    let all = [("volume", volume), ("bare", bare)];
    Row { load: load.name(), cells, report: report(load.name(), rounds, &all) }
}
