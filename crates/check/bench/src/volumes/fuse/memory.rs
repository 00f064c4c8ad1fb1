//! P14: a file of a volume in memory, its requests over io_uring and through /dev/fuse, beside a file in memory that fuser
//! alone answers.

use super::figures::{Figures, Load, faster, in_turn, server_us};
use super::loads::{self, Fio};
use super::mounts::{Mounted, missing};
use super::way::Way;
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
    let over_ring = match Way::best() {
        Way::IoUring => Some(Mounted::volume(folder.path(), "ring", BRICK, Way::IoUring)?),
        Way::Device => None,
    };
    let through_device = Mounted::volume(folder.path(), "device", BRICK, Way::Device)?;
    let bare = Mounted::memory_file(folder.path(), SIZE)?;
    let mut mounts = vec![&bare, &through_device];
    mounts.extend(&over_ring);
    for mounted in &mounts {
        Fio::lay_out(SIZE).run(&mounted.dir)?;
    }
    let mut rows = Vec::new();
    for load in loads::all(SIZE, millis) {
        let measured = in_turn(&load, &mounts, rounds)
            .with_context(|| format!("measuring {}", load.name()))?;
        if let [bare, device, ring @ ..] = measured.as_slice() {
            rows.push(row(&load, ring.first().map(Vec::as_slice), device, bare, rounds));
        }
    }
    Ok(Table {
        title: "A mounted volume beside a bare file of FUSE".to_owned(),
        about: format!(
            "fio on one file of {} MiB: of a volume on one brick in memory ({BRICK}), mounted once with FUSE over io_uring and once \
             through /dev/fuse, and of a file system that is one file in memory, answered by the crate fuser alone (two \
             threads on /dev/fuse) with the same capabilities and sizes; each by a process of its own. Cached: through the page \
             cache, the whole file once, from dropped caches and with an fsync at the end; direct: O_DIRECT for {millis} ms, \
             depth 1 by pread and pwrite, 16 by Linux's asynchronous I/O. P14 asks for what the kernel offers at its best. \
             Server: processor time of the process that answers, the kernel's part in its calls included, for each MiB or \
             request.",
            SIZE >> 20
        ),
        headings: vec![
            "load",
            "io_uring ÷ bare",
            "P14",
            "/dev/fuse ÷ bare",
            "io_uring",
            "/dev/fuse",
            "bare",
            "server, io_uring",
            "server, /dev/fuse",
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

/// `ring`: where the kernel has it.
fn row(
    load: &Fio,
    ring: Option<&[Figures]>,
    device: &[Figures],
    bare: &[Figures],
    rounds: usize,
) -> Row {
    let ratio = |volume: &[Figures]| faster(volume, bare);
    let none = || "–".to_owned();
    let least = if load.is_small() { 0.75 } else { 0.85 };
    let cells = vec![
        ring.map_or_else(none, |ring| spread(Some(ratio(ring)))),
        demand(least, Some(ratio(ring.unwrap_or(device)))),
        spread(Some(ratio(device))),
        ring.map_or_else(none, |ring| rate(load, ring)),
        rate(load, device),
        rate(load, bare),
        ring.map_or_else(none, |ring| server(load, ring)),
        server(load, device),
        server(load, bare),
    ];
    let mut all = vec![("volume, /dev/fuse", device), ("bare", bare)];
    all.extend(ring.map(|ring| ("volume, io_uring", ring)));
    if ring.is_some() {
        // The others are compared with the first.
        all.rotate_right(1);
    }
    Row { load: load.name(), cells, report: report(load.name(), rounds, &all) }
}
