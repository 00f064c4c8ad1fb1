//! Members that are files on a disk, beside fio with io_uring on the same files.

use crate::fio::Fio;
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Contender, Length, Options, Pattern, megabytes, raw_load, run_beside, thousands};
use std::path::PathBuf;

/// Bytes of a member.
const MEMBER: u64 = 256 << 20;

const LINES: [(&str, Pattern, u64); 4] = [
    ("P4: 4K random read", Pattern::RandRead, 4 << 10),
    ("P4: 1M read", Pattern::Read, 1 << 20),
    ("P4: 4K random write", Pattern::RandWrite, 4 << 10),
    ("P4: 1M write", Pattern::Write, 1 << 20),
];

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let rows = LINES.iter().map(|line| row(effort, line)).collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "Members that are files, beside fio".to_owned(),
        about: "RAID5 of five 256 MiB files on one disk, 64 KiB chunks, depth 32 (8 for 1 MiB requests), O_DIRECT, \
                one shard. fio runs with io_uring on the same files, in the same rounds, with the requests that \
                the load must cost the members at least (a small random write: two reads and two writes of its \
                size); *fio ideal* is what an array without any cost of its own would make of fio's rate, *raw \
                ideal* the same of the members through braid's own device code."
            .to_owned(),
        headings: vec![
            "load",
            "array ÷ fio ideal",
            "demand",
            "array ÷ raw ideal",
            "array IOPS",
            "array MB/s",
            "fio MB/s",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, line: &(&str, Pattern, u64)) -> anyhow::Result<Row> {
    let (load, pattern, block) = *line;
    let folder = match &effort.disk {
        Some(disk) => tempfile::tempdir_in(disk),
        None => tempfile::tempdir(),
    };
    let folder = folder.context("making a folder for the members")?;
    let paths: Vec<PathBuf> = (0..5).map(|nr| folder.path().join(format!("member-{nr}"))).collect();
    for path in &paths {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(MEMBER));
        made.with_context(|| format!("making the member {}", path.display()))?;
    }
    let members = paths.iter().cloned().map(MemberSpec::Path).collect();
    let mut options = Options {
        depth: if block >= 1 << 20 { 8 } else { 32 },
        length: Length::Seconds(if effort.quick { 1.5 } else { 7.5 }),
        ..Options::new(Level::Raid5, members, pattern, block)
    };
    options.beside.bare = false;
    options.beside.device = false;
    let mut fio = Fio::new(&paths, MEMBER, raw_load(&options)?);
    let others: &mut [&mut dyn Contender] = &mut [&mut fio];
    let report = run_beside(&options, others).with_context(|| format!("running {load:?}"))?;
    let of = |name: &str| {
        report.ratio("array", &format!("{name} ideal")).or_else(|| report.ratio("array", name))
    };
    let array = report.absolute("array");
    let fio_rate = report.absolute("fio").map(|fio| megabytes(fio.bytes_per_second.median));
    let cells = vec![
        spread(of("fio")),
        demand(0.90, of("fio")),
        spread(of("raw")),
        array.map_or_else(String::new, |array| thousands(array.iops.median)),
        array.map_or_else(String::new, |array| megabytes(array.bytes_per_second.median)),
        fio_rate.unwrap_or_default(),
    ];
    Ok(Row { load: load.to_owned(), cells, report })
}
