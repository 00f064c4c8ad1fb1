//! A volume whose map of extents is large: the time that a mount and the plan of a balance take, and the memory of the process.
//!
//! The records are made without the data that they are about, so that the bricks are files without content. A child of
//! this process mounts them, so that nothing else is in its memory.

mod making;
mod mounted;

use super::verdict::verdict;
use crate::tables::{Effort, Row, Table};
use anyhow::{Context, bail};
use braid_load::{Report, significant};
use making::STRIPES_OF_FILE;
use mounted::Measured;
use std::path::Path;
use std::process::Command;

/// Stripes of the volumes.
const STRIPES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Bytes of memory that the largest may take.
const MEMORY_MAX: u64 = 2 << 30;
/// Seconds that its mount may take.
const MOUNT_MAX: f64 = 10.0;
/// Seconds that its plan may take.
const PLAN_MAX: f64 = 30.0;

/// Mounts the volume in `folder` in this process, and says what was measured.
///
/// # Errors
/// When it cannot be mounted.
pub fn process(folder: &Path, stripes: Option<u64>) -> anyhow::Result<()> {
    match stripes {
        Some(stripes) => mounted::run(folder, stripes),
        None => mounted::run_after_crash(folder),
    }
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let count = if effort.quick { 1 } else { STRIPES.len() };
    let largest = STRIPES.last().copied();
    let mut rows = Vec::new();
    for stripes in STRIPES.into_iter().take(count) {
        let doing = || format!("a volume of {stripes} stripes");
        let (of, after_crash, after_rest) = measure(effort, stripes).with_context(doing)?;
        let judged = |figure: String, met: bool| match Some(stripes) == largest {
            true => format!("{figure} {}", verdict(met)),
            false => figure,
        };
        let mib = |bytes: u64| format!("{}", bytes >> 20);
        let us = |nanos: u64| significant(nanos as f64 / 1e3);
        let cells = vec![
            mib(of.metadata),
            judged(format!("{:.2}", of.mount), of.mount <= MOUNT_MAX),
            judged(format!("{:.2}", after_crash), after_crash <= MOUNT_MAX),
            judged(format!("{:.2}", after_rest), after_rest <= MOUNT_MAX),
            judged(format!("{:.2}", of.plan), of.plan <= PLAN_MAX),
            format!("{:.3}", of.to_move as f64 / of.bytes as f64),
            mib(of.memory_mounted),
            judged(mib(of.memory_most), of.memory_most <= MEMORY_MAX),
            format!("{}, {}", us(of.alone_median), us(of.alone_p99)),
            format!("{}, {}", us(of.beside_median), us(of.beside_p99)),
        ];
        let bytes = of.bytes as f64 / (1u64 << 40) as f64;
        let load = format!("10^{} stripes, {bytes:.2} TiB", stripes.ilog10());
        let report = Report { rounds: 1, ..Report::without_figures(load.clone()) };
        rows.push(Row { load, cells, report });
    }
    Ok(Table {
        title: "Volumes: a large map of extents".to_owned(),
        about: format!(
            "Files of {STRIPES_OF_FILE} stripes of 128 KiB each on four bricks, which are files of 4 TiB without content; \
             the metadata is in a region of 8 GiB, of which the database keeps as much in memory as in `braid volume mount`. A \
             process mounts the volume after a stop in order and after a crash right behind a commit, adds a brick of 4 TiB and plans \
             the balance, up to the moment at which it is known how much has to move: a fifth of all bytes. *At rest*: the \
             crash comes when nothing was asked of the volume for some seconds. Its memory is what the kernel counts as resident, after the mount and at most. *Reads*: 4 KiB anywhere in any file, one after the \
             other, alone for a second and while the balance is planned. Demanded of the largest: {MOUNT_MAX:.0} s, \
             {PLAN_MAX:.0} s and {} MiB.",
            MEMORY_MAX >> 20
        ),
        headings: vec![
            "map",
            "metadata, MiB",
            "mount, s",
            "mount after a crash, s",
            "after one at rest, s",
            "plan, s",
            "part to move",
            "memory mounted, MiB",
            "memory at most, MiB",
            "reads alone: p50, p99, µs",
            "reads beside the plan",
        ],
        rows,
        plots: Vec::new(),
    })
}

/// The measured values, and the seconds of a mount after a crash and after one at rest.
fn measure(effort: &Effort, stripes: u64) -> anyhow::Result<(Measured, f64, f64)> {
    let folder = match &effort.disk {
        Some(disk) => tempfile::tempdir_in(disk),
        None => tempfile::tempdir(),
    };
    let folder = folder.context("making a folder for the bricks")?;
    making::make(folder.path(), stripes).context("making the metadata")?;
    let told = in_a_child(folder.path(), &[&stripes.to_string()])?;
    let measured = serde_json::from_str(&told).context("reading what was measured")?;
    let after_crash = || -> anyhow::Result<f64> {
        let told = in_a_child(folder.path(), &[])?;
        told.trim().parse().context("reading the seconds of a mount")
    };
    // The first of them ends at rest.
    Ok((measured, after_crash()?, after_crash()?))
}

/// The report of a process of its own about the volume in `folder`.
fn in_a_child(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut own = Command::new(std::env::current_exe().context("finding this program")?);
    let done = own.arg("large-volume").arg(folder).args(arguments).output();
    let done = done.context("starting the process that mounts")?;
    if !done.status.success() {
        bail!("the process that mounts: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).context("reading what the process that mounts says")
}
