//! Shares of a plain RAM device, beside those that SPDK's RAID modules have on this kind of machine.
//!
//! Its figures were measured once with SPDK v26.05's bdevperf on one quiet core, malloc bdevs whose pages had been touched
//! before, and 64 KiB strips; they are quoted, not measured again. Its plain device made 1509k reads and 1084k writes of 4 KiB
//! a second, 9429 MB/s of 128 KiB reads and 8417 MB/s of 256 KiB writes. A share (array ÷ that engine's own plain RAM
//! device) depends little on the machine; the absolutes beside it, which are the share of that plain device, do.

use crate::loads::rebuild::rebuild;
use crate::tables::{Effort, Row, Table, spread};
use anyhow::Context;
use braid_layout::Level;
use braid_load::{Options, Pattern, megabytes, run, thousands};

/// A load, and SPDK's share of its own plain device and its absolute figure.
struct Line {
    load: &'static str,
    level: Level,
    members: usize,
    pattern: Pattern,
    block: u64,
    failed: usize,
    spdk: (&'static str, &'static str),
}

const fn line(
    load: &'static str,
    (level, members, failed): (Level, usize, usize),
    (pattern, block): (Pattern, u64),
    spdk: (&'static str, &'static str),
) -> Line {
    Line { load, level, members, pattern, block, failed, spdk }
}

use Level::{Raid0, Raid1, Raid5};
use Pattern::{RandRead, RandWrite, Read, Write};

const LINES: [Line; 9] = [
    line("4K random read, RAID0 of 4", (Raid0, 4, 0), (RandRead, 4096), (".72", "1090k IOPS")),
    line("4K random read, RAID5 of 5", (Raid5, 5, 0), (RandRead, 4096), (".72", "1090k IOPS")),
    line("4K random write, RAID0 of 4", (Raid0, 4, 0), (RandWrite, 4096), (".78", "850k IOPS")),
    line("4K random write, RAID1 of 2", (Raid1, 2, 0), (RandWrite, 4096), (".44", "480k IOPS")),
    line("4K random write, RAID5 of 5", (Raid5, 5, 0), (RandWrite, 4096), ("refused", "–")),
    line("128K read, RAID5 of 5", (Raid5, 5, 0), (Read, 128 << 10), (".97", "9150 MB/s")),
    line("full-stripe write, RAID5 of 5", (Raid5, 5, 0), (Write, 256 << 10), (".55", "4630 MB/s")),
    line("full-stripe write, RAID5 of 4", (Raid5, 4, 0), (Write, 192 << 10), ("–", "–")),
    line(
        "degraded 4K random read, RAID5 of 5",
        (Raid5, 5, 1),
        (RandRead, 4096),
        (".42", "630k IOPS"),
    ),
];

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let mut rows =
        LINES.iter().map(|line| row(effort, line)).collect::<anyhow::Result<Vec<_>>>()?;
    rows.push(rebuild_row(effort)?);
    Ok(Table {
        title: "Shares of a plain RAM device, beside SPDK's".to_owned(),
        about: "One shard, 256 MiB RAM members, 64 KiB chunks, depth 32; buffers as bdevperf has them, one per \
                request in flight. A share is the array's rate divided by that of one plain RAM device under the \
                same load in the same run. SPDK's figures (v26.05, bdevperf, one core, malloc bdevs of the same \
                size) are quoted from an earlier measurement on a machine of this kind, not measured again; MB \
                are 10^6 bytes; pages of its members had been touched before, and its absolutes are its shares of its plain \
                device. SPDK's raid5f takes no write that is not a full stripe."
            .to_owned(),
        headings: vec!["load", "braid's share", "SPDK's share", "braid", "SPDK", "braid's plain device"],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, line: &Line) -> anyhow::Result<Row> {
    let Line { load, level, members, pattern, block, failed, spdk } = line;
    let mut options =
        Options { failed: *failed, ..effort.on_memory(*level, *members, *pattern, *block) };
    options.payload = u64::from(options.depth) * block;
    options.beside.raw = false;
    options.beside.bare = false;
    let report = run(&options).with_context(|| format!("running {load:?}"))?;
    let figure = |name: &str| match report.absolute(name) {
        Some(found) if *block <= 4096 => format!("{} IOPS", thousands(found.iops.median)),
        Some(found) => format!("{} MB/s", megabytes(found.bytes_per_second.median)),
        None => "–".to_owned(),
    };
    let cells = vec![
        spread(report.ratio("array", "device")),
        spdk.0.to_owned(),
        figure("array"),
        spdk.1.to_owned(),
        figure("device"),
    ];
    Ok(Row { load: (*load).to_owned(), cells, report })
}

fn rebuild_row(effort: &Effort) -> anyhow::Result<Row> {
    let options = effort.on_memory(Level::Raid5, 5, Pattern::Write, 4096);
    let report = rebuild(&options).context("running the rebuild")?;
    let figure = |name: &str| match report.absolute(name) {
        Some(found) => format!("{} MB/s", megabytes(found.bytes_per_second.median)),
        None => "–".to_owned(),
    };
    let cells = vec![
        spread(report.ratio("rebuild", "device")),
        ".18".to_owned(),
        figure("rebuild"),
        "1480 MB/s".to_owned(),
        figure("device"),
    ];
    Ok(Row { load: "rebuild, RAID5 of 5".to_owned(), cells, report })
}
