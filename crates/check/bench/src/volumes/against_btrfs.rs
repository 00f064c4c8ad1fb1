//! Adding and removing devices: a volume and btrfs in turn on the same loop devices, slowed down alike.
//!
//! The devices are held to a rate (`loops`), so that what is compared is what each moves and how well
//! it keeps the devices busy. Root only.

use super::loops::{Devices, Mounted, tool};
use super::rig::{Clock, Medium, Rig, Step};
use super::verdict::{measured, ratio, verdict};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_load::{Report, Spread, megabytes};
use braid_volume::NewJob;
use std::path::PathBuf;

/// Steps with the parts of the file that must move.
type Steps = Vec<(&'static str, f64, Step)>;

fn btrfs(size: u64) -> anyhow::Result<Steps> {
    let devices = Devices::new()?;
    tool(
        "mkfs.btrfs",
        &["-q", "-f", "-m", "raid1", "-d", "raid0", devices.path(0)?, devices.path(1)?],
    )?;
    let place = devices.folder.path().join("mount");
    std::fs::create_dir(&place).context("making a mount point")?;
    let dir = place.to_str().context("a path that is not text")?;
    tool("btrfs", &["device", "scan", devices.path(0)?, devices.path(1)?])?;
    tool("mount", &["-t", "btrfs", devices.path(0)?, dir])?;
    let mounted = Mounted(place.clone());
    let file = format!("of={dir}/file");
    let count = format!("count={}", size >> 20);
    // Not zeroes, which some file system may treat in its own way.
    tool("dd", &["if=/dev/urandom", &file, "bs=1M", &count, "conv=fsync", "status=none"])?;
    let sync = || tool("sync", &["--file-system", dir]).map(|_| ());
    sync()?;
    let add = |nr: usize| {
        devices.step(|| {
            tool("btrfs", &["device", "add", "-f", "-K", devices.path(nr)?, dir])?;
            tool("btrfs", &["balance", "start", "--full-balance", dir])?;
            sync()
        })
    };
    let remove = |nr: usize| {
        devices.step(|| {
            tool("btrfs", &["device", "remove", devices.path(nr)?, dir])?;
            sync()
        })
    };
    let steps = vec![
        ("add device 3", 1.0 / 3.0, add(2)?),
        ("add device 4", 0.25, add(3)?),
        ("remove device 4", 0.25, remove(3)?),
        ("remove device 3", 1.0 / 3.0, remove(2)?),
    ];
    drop(mounted);
    Ok(steps)
}

fn braid(size: u64) -> anyhow::Result<Steps> {
    let devices = Devices::new()?;
    let path = |nr: usize| anyhow::Ok(Medium::Path(PathBuf::from(devices.path(nr)?)));
    let mut rig = Rig::on(Clock::Wall, vec![path(0)?, path(1)?], size)?;
    rig.write()?;
    let mut steps = Vec::new();
    for (nr, name, part) in [(2, "add device 3", 1.0 / 3.0), (3, "add device 4", 0.25)] {
        let step = devices.step(|| {
            rig.add(path(nr)?, false)?;
            rig.job(NewJob::Balance).map(|_| ())
        })?;
        rig.verify()?;
        steps.push((name, part, step));
    }
    for (brick, name, part) in [(3, "remove device 4", 0.25), (2, "remove device 3", 1.0 / 3.0)] {
        let step = devices.step(|| rig.job(NewJob::Remove { brick }).map(|_| ()))?;
        rig.verify()?;
        steps.push((name, part, step));
    }
    rig.end()?;
    Ok(steps)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size: u64 = if effort.quick { 128 << 20 } else { 384 << 20 };
    let rounds = if effort.quick { 1 } else { 3 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(braid(size).context("a volume on loop devices")?);
        theirs.push(btrfs(size).context("btrfs on loop devices")?);
    }
    let at = |all: &[Steps], nr: usize| -> Vec<Step> {
        all.iter().filter_map(|steps| Some(steps.get(nr)?.2)).collect()
    };
    let mut rows = Vec::new();
    for (nr, (step, part, _)) in ours.first().context("no round")?.iter().enumerate() {
        let least = part * size as f64;
        let moved = |steps: &[Step]| Spread::of(steps.iter().map(|one| one.written as f64 / least));
        let rate = |steps: &[Step]| Spread::of(steps.iter().map(|one| size as f64 / one.seconds));
        let (ours, theirs) = (at(&ours, nr), at(&theirs, nr));
        let faster = rate(&ours).median / rate(&theirs).median.max(1e-9);
        let busy = |steps: &[Step]| Spread::of(steps.iter().map(|one| one.busiest / one.seconds));
        let cells = vec![
            format!("{:.2}", moved(&ours).median),
            format!("{:.2}", moved(&theirs).median),
            megabytes(rate(&ours).median),
            megabytes(rate(&theirs).median),
            format!("{faster:.2}"),
            crate::tables::spread(Some(busy(&ours))),
            crate::tables::spread(Some(busy(&theirs))),
            verdict(faster >= 1.0).to_owned(),
        ];
        let seconds = |steps: &[Step]| steps.iter().map(|one| one.seconds).collect::<Vec<f64>>();
        let all =
            [measured("braid", size, seconds(&ours)), measured("btrfs", size, seconds(&theirs))];
        let mut report = Report::of((*step).to_owned(), rounds, &all, Vec::new());
        report.ratios = vec![
            ratio("braid's bytes written", "minimum", moved(&ours)),
            ratio("btrfs's bytes written", "minimum", moved(&theirs)),
        ];
        rows.push(Row { load: (*step).to_owned(), cells, report });
    }
    Ok(Table {
        title: "Volumes: devices added and removed, beside btrfs".to_owned(),
        about: format!(
            "One file of {} MiB on two, three and four loop devices over files in memory, which the kernel holds to {} MB/s \
             of reads and {} of writes each; a volume (stripes of 128 KiB, metadata in a model of the store) and btrfs (data raid0, \
             metadata raid1; `device add` and `balance start --full-balance`, `device remove`) in turn. Written ÷ minimum: bytes that \
             the kernel counted at the devices in proportion to what must move so that each has its fair share. MB/s: \
             all data of the file divided by the time until it is durable. Busiest: the time that the busiest device \
             needs for its bytes divided by the time taken; what a loop device lets through beyond its rate at the start of a burst makes it \
             more than 1.",
            size >> 20,
            megabytes(Clock::Wall.read_rate() as f64),
            megabytes(Clock::Wall.write_rate() as f64),
        ),
        headings: vec![
            "step",
            "written ÷ minimum",
            "btrfs",
            "MB/s",
            "btrfs",
            "braid ÷ btrfs",
            "busiest device",
            "btrfs",
            "≥ 1.0",
        ],
        rows,
        plots: Vec::new(),
    })
}
