//! Members in memory beside a loop that only moves and combines the same bytes: what the engine
//! costs by itself.

use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_layout::Level;
use braid_load::{Options, Pattern, megabytes, run, thousands};

/// A load and the least part of the bare loop's speed that is demanded, if any is.
type Line = (&'static str, Level, usize, Pattern, u64, Option<f64>);

const LINES: [Line; 9] = [
    ("P1: RAID5 4+1, 4K random write", Level::Raid5, 5, Pattern::RandWrite, 4 << 10, Some(0.80)),
    ("P2: RAID5 4+1, 1M write", Level::Raid5, 5, Pattern::Write, 1 << 20, Some(0.90)),
    ("P3: RAID5 4+1, 4K random read", Level::Raid5, 5, Pattern::RandRead, 4 << 10, Some(0.75)),
    ("P3: RAID5 4+1, 1M read", Level::Raid5, 5, Pattern::Read, 1 << 20, Some(0.95)),
    ("RAID6 4+2, 4K random write", Level::Raid6, 6, Pattern::RandWrite, 4 << 10, None),
    ("RAID6 4+2, 1M write", Level::Raid6, 6, Pattern::Write, 1 << 20, None),
    ("RAID5 4+1, 64K random write", Level::Raid5, 5, Pattern::RandWrite, 64 << 10, None),
    ("RAID10 of 4, 4K random write", Level::Raid10, 4, Pattern::RandWrite, 4 << 10, None),
    ("RAID1 of 2, 4K random write", Level::Raid1, 2, Pattern::RandWrite, 4 << 10, None),
];

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let rows = LINES.iter().map(|line| row(effort, line)).collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "Members in memory: the engine beside a bare loop".to_owned(),
        about: "One shard, 256 MiB members, 64 KiB chunks, depth 32 (4 for 1 MiB requests). *Bare* is a loop on \
                plain memory that only copies and XORs what the load must move; *raw ideal* is what an array \
                without any cost of its own would reach on these members, through the same device code; \
                *device* is one plain RAM device under the same load. All contenders run in turn in one \
                process, on the same shard, with the same buffers in the same order."
            .to_owned(),
        headings: vec![
            "load",
            "array ÷ bare",
            "demand",
            "array ÷ raw ideal",
            "array ÷ device",
            "array IOPS",
            "array MB/s",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, line: &Line) -> anyhow::Result<Row> {
    let (load, level, members, pattern, block, least) = *line;
    let options = Options {
        depth: if block >= 1 << 20 { 4 } else { 32 },
        ..effort.on_memory(level, members, pattern, block)
    };
    let report = run(&options).with_context(|| format!("running {load:?}"))?;
    let bare = report.ratio("array", "bare");
    let raw = report.ratio("array", "raw ideal").or(report.ratio("array", "raw"));
    let array = report.absolute("array");
    let cells = vec![
        spread(bare),
        least.map_or("–".to_owned(), |least| demand(least, bare)),
        spread(raw),
        spread(report.ratio("array", "device")),
        array.map_or_else(String::new, |array| thousands(array.iops.median)),
        array.map_or_else(String::new, |array| megabytes(array.bytes_per_second.median)),
    ];
    Ok(Row { load: load.to_owned(), cells, report })
}
