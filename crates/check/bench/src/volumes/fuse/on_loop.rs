//! fio and dbench on a volume, on ext4, and on ext4 passed through, all on loop devices over files in memory.

use super::figures::{Figures, Load, faster, in_turn, server_us};
use super::loads::{self, Dbench, Fio};
use super::memory::{rate, report, server};
use super::mounts::{Loop, Mounted, missing};
use super::way::Way;
use crate::tables::{Effort, Row, Table, spread};
use anyhow::Context;
use braid_load::{Slice, Spread, megabytes, significant};
use std::path::Path;

/// Bytes of a device.
const DEVICE: u64 = 4 << 30;
/// Bytes of fio's file.
const SIZE: u64 = 512 << 20;
/// Clients of dbench.
const CLIENTS: u32 = 4;

/// The three, on two devices.
pub(super) struct Three {
    pub volume: Mounted,
    pub passthrough: Mounted,
    pub ext4: Mounted,
    /// What the passthrough passes through; taken down after it.
    _below: Mounted,
    _devices: [Loop; 2],
    _folders: [tempfile::TempDir; 2],
}

impl Three {
    /// Mounted, nothing on them.
    pub(super) fn new() -> anyhow::Result<Three> {
        let memory = tempfile::tempdir_in("/dev/shm").context("making a folder in memory")?;
        let folder = tempfile::tempdir().context("making a folder for the mounts")?;
        let devices = [
            Loop::new(memory.path(), "volume", DEVICE)?,
            Loop::new(memory.path(), "ext4", DEVICE)?,
        ];
        let below = Mounted::ext4(folder.path(), &devices[1])?;
        let ext4 = below.directory("plain")?;
        let passed = below.directory("passed")?;
        Ok(Three {
            volume: Mounted::volume(folder.path(), "volume", &devices[0].path, Way::best())?,
            passthrough: Mounted::passthrough(folder.path(), &passed.dir)?,
            ext4,
            _below: below,
            _devices: devices,
            _folders: [memory, folder],
        })
    }

    pub(super) fn all(&self) -> [&Mounted; 3] {
        [&self.volume, &self.passthrough, &self.ext4]
    }
}

/// What the three are, for the sentences above a table.
pub(super) fn three() -> String {
    format!(
        "a volume on a loop device over a file in memory (O_DIRECT, stripes of 128 KiB, durable metadata; FUSE {}), ext4 on \
         another, and a directory of that ext4 passed through by the crate fuser alone (two threads on /dev/fuse), with the \
         capabilities and sizes of the volume's mount",
        Way::best().words()
    )
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    missing(&["fio", "dbench", "mkfs.ext4", "losetup"])?;
    let (rounds, millis, seconds) = if effort.quick { (1, 300, 2) } else { (3, 800, 5) };
    let three = Three::new()?;
    for mounted in three.all() {
        Fio::lay_out(SIZE).run(&mounted.dir)?;
    }
    let mut rows = Vec::new();
    for load in loads::all(SIZE, millis) {
        let name = format!("fio {}", load.name());
        let measured = measure(&load, &three, rounds).with_context(|| name.clone())?;
        let figure = |figures: &[Figures]| rate(&load, figures);
        rows.push(row(name, rounds, &measured, figure, |figures| server(&load, figures)));
    }
    for mounted in three.all() {
        remove(&mounted.file)?;
    }
    let load = Dbench { clients: CLIENTS, seconds };
    let measured = measure(&load, &three, rounds).context("dbench")?;
    let name = format!("dbench, {CLIENTS} clients");
    let figure = |figures: &[Figures]| {
        let rates = figures.iter().map(|one| one.slice.bytes as f64 / one.slice.seconds.max(1e-9));
        format!("{} MB/s", megabytes(Spread::of(rates).median))
    };
    let mib = |slice: &Slice| slice.bytes as f64 / f64::from(1 << 20);
    rows.push(row(name, rounds, &measured, figure, |figures| {
        let us = server_us(figures, mib);
        us.map_or("–".to_owned(), |us| format!("{} µs/MiB", significant(us.median)))
    }));
    Ok(Table {
        title: "A mounted volume beside ext4 and a passthrough".to_owned(),
        about: format!(
            "One file of {} MiB, and dbench 4.0 with {CLIENTS} clients for {seconds} s, on {}. Cached: through the page cache, the \
             whole file once, from dropped caches and with an fsync at the end; direct: O_DIRECT for {millis} ms. Server: \
             processor time of the process that answers, the kernel's part in its calls included; what the kernel's own \
             threads do for ext4 and the loop devices is in none of them.",
            SIZE >> 20,
            self::three(),
        ),
        headings: HEADINGS.to_vec(),
        rows,
        plots: Vec::new(),
    })
}

/// Of tables of the three.
pub(super) const HEADINGS: [&str; 8] = [
    "load",
    "volume ÷ passthrough",
    "volume ÷ ext4",
    "volume",
    "passthrough",
    "ext4",
    "server, volume",
    "server, passthrough",
];

fn measure(load: &impl Load, three: &Three, rounds: usize) -> anyhow::Result<Vec<Vec<Figures>>> {
    in_turn(load, &three.all(), rounds)
}

/// A line of the volume, the passthrough and ext4, in this order.
pub(super) fn row(
    name: String,
    rounds: usize,
    measured: &[Vec<Figures>],
    figure: impl Fn(&[Figures]) -> String,
    server: impl Fn(&[Figures]) -> String,
) -> Row {
    let of = |at: usize| measured.get(at).map_or(&[][..], Vec::as_slice);
    let (volume, passthrough, ext4) = (of(0), of(1), of(2));
    let cells = vec![
        spread(Some(faster(volume, passthrough))),
        spread(Some(faster(volume, ext4))),
        figure(volume),
        figure(passthrough),
        figure(ext4),
        server(volume),
        server(passthrough),
    ];
    let all = [("volume", volume), ("passthrough", passthrough), ("ext4", ext4)];
    Row { load: name.clone(), cells, report: report(name, rounds, &all) }
}

fn remove(file: &Path) -> anyhow::Result<()> {
    std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))
}
