//! Very many files in one directory: made, listed and removed, on a mounted volume and on ext4.

use super::figures::{Figures, faster};
use super::loads::drop_caches;
use super::memory::report;
use super::mounts::{Loop, Mounted, missing};
use super::way::Way;
use crate::programs::tool;
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_load::{Slice, significant, thousands};
use std::path::Path;
use std::time::Instant;

/// Files of the directory.
const FILES: usize = 1_000_000;
/// The part of the files that is the start, and the end.
const EDGE: usize = 20;
/// Bytes of a device: as much as the metadata of so many files asks for.
const DEVICE: u64 = 32 << 30;
/// Creates at the end in proportion to those at the start that are demanded.
const STEADY: f64 = 0.9;
/// Listing and removing in proportion to ext4 that are demanded.
const BESIDE_EXT4: f64 = 0.5;

/// The steps on one mount.
struct Steps {
    start: Figures,
    end: Figures,
    list: Figures,
    remove: Figures,
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    missing(&["mkfs.ext4", "losetup", "ls", "rm"])?;
    let files = if effort.quick { FILES / 10 } else { FILES };
    let memory = tempfile::tempdir_in("/dev/shm").context("making a folder in memory")?;
    let folder = tempfile::tempdir().context("making a folder for the mounts")?;
    let on_volume = {
        let device = Loop::new(memory.path(), "volume", DEVICE)?;
        let volume = Mounted::volume(folder.path(), "volume", &device.path, Way::best())?;
        steps(&volume, files).context("on the volume")?
    };
    let on_ext4 = {
        let device = Loop::new(memory.path(), "ext4", DEVICE)?;
        let ext4 = Mounted::ext4(folder.path(), &device)?;
        steps(&ext4, files).context("on ext4")?
    };
    let edge = files / EDGE;
    let rows = vec![
        row(format!("create, the first {edge}"), &on_volume.start, &on_ext4.start, None),
        row(
            format!("create, the last {edge}"),
            &on_volume.end,
            &on_ext4.end,
            Some(&on_volume.start),
        ),
        row("ls -f".to_owned(), &on_volume.list, &on_ext4.list, None),
        row("rm -r".to_owned(), &on_volume.remove, &on_ext4.remove, None),
    ];
    Ok(Table {
        title: "A directory of very many files on a mounted volume and on ext4".to_owned(),
        about: format!(
            "{files} empty files in one directory, made one after the other by one thread, listed by `ls -f` and removed by `rm \
             -r`, on a volume on a loop device over a file in memory (stripes of 128 KiB, durable metadata; FUSE {}), and on ext4 on \
             another. All is synced and caches are dropped before `ls` and before `rm`. *Steady*: the rate at the end in \
             proportion to that at the start on the same mount.",
            Way::best().words()
        ),
        headings: vec![
            "step",
            "volume ÷ ext4",
            "demand",
            "steady, volume",
            "demand",
            "volume",
            "ext4",
            "server",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(load: String, volume: &Figures, ext4: &Figures, before: Option<&Figures>) -> Row {
    let (on_volume, on_ext4) = (std::slice::from_ref(volume), std::slice::from_ref(ext4));
    let beside = Some(faster(on_volume, on_ext4));
    let is_create = load.starts_with("create");
    let steady = before.map(|before| faster(on_volume, std::slice::from_ref(before)));
    let rate = |of: &Figures| of.slice.requests as f64 / of.slice.seconds.max(1e-9);
    let dash = || "–".to_owned();
    let server = volume.server.map(|seconds| seconds * 1e6 / volume.slice.requests as f64);
    let cells = vec![
        spread(beside),
        if is_create { dash() } else { demand(BESIDE_EXT4, beside) },
        steady.map_or_else(dash, |steady| spread(Some(steady))),
        steady.map_or_else(dash, |steady| demand(STEADY, Some(steady))),
        format!("{} files/s", thousands(rate(volume))),
        format!("{} files/s", thousands(rate(ext4))),
        server.map_or_else(dash, |us| format!("{} µs/file", significant(us))),
    ];
    let all = [("volume", on_volume), ("ext4", on_ext4)];
    Row { load: load.clone(), cells, report: report(load, 1, &all) }
}

fn steps(mount: &Mounted, files: usize) -> anyhow::Result<Steps> {
    let folder = mount.dir.join("folder");
    std::fs::create_dir(&folder).context("making the directory")?;
    let edge = files / EDGE;
    let start = step(mount, edge, || create(&folder, 0..edge))?;
    create(&folder, edge..files - edge)?;
    let end = step(mount, edge, || create(&folder, files - edge..files))?;
    let text = folder.to_str().context("a path that is not text")?;
    drop_caches()?;
    let list = step(mount, files, || tool("ls", &["-f", text]).map(|_| ()))?;
    drop_caches()?;
    let remove = step(mount, files, || tool("rm", &["-r", text]).map(|_| ()))?;
    Ok(Steps { start, end, list, remove })
}

fn create(folder: &Path, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    for number in numbers {
        let path = folder.join(format!("file-{number}"));
        std::fs::File::create_new(&path).with_context(|| format!("making {}", path.display()))?;
    }
    Ok(())
}

fn step(
    mount: &Mounted,
    files: usize,
    doing: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Figures> {
    let before = mount.processor_seconds()?;
    let start = Instant::now();
    doing()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = mount.processor_seconds()?;
    let server = after.zip(before).map(|(after, before)| after - before);
    let slice = Slice { requests: files as u64, bytes: 0, seconds, latency: None };
    Ok(Figures { slice, server })
}
