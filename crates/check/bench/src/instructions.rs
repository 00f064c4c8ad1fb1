//! Instructions per request, counted by valgrind: a figure that no other load on the machine disturbs.
//!
//! This program is run again under callgrind with two numbers of requests; what both have in common, the
//! start and the end, cancels out in the difference.

use crate::loads::counted::{Counted, count_requests};
use crate::tables::{Effort, Row, Table};
use anyhow::{Context, bail};
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Clock, Machine, Options, Pattern, Report};
use std::process::Command;

/// Bytes of a member: the count does not depend on it.
const MEMBER: u64 = 64 << 20;
/// The two numbers of requests.
const FEW: u64 = 5_000;
const MANY: u64 = 15_000;
/// What valgrind 3.19 knows; newer instructions would be refused.
const SIMD: &str = "avx2";

const LINES: [(&str, Pattern, u64); 4] = [
    ("4K random read", Pattern::RandRead, 4096),
    ("4K random write", Pattern::RandWrite, 4096),
    ("512-byte random read", Pattern::RandRead, 512),
    ("512-byte random write", Pattern::RandWrite, 512),
];

/// The words for [`Counted`] on the command line.
const WORDS: [(&str, Counted); 2] = [("member", Counted::Member), ("array", Counted::Array)];

/// Measures it.
pub fn table(_: &Effort) -> anyhow::Result<Table> {
    let rows = LINES.iter().map(row).collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "Instructions per request".to_owned(),
        about: format!(
            "RAID5 4+1, 64 KiB chunks, 64 MiB members, depth 32, one shard without io_uring, \
             stripe_cache_size=256, parity by {SIMD}. The requests of 512 bytes show what is left when hardly any data is moved. \
             Counted by valgrind's callgrind: the difference of runs with {MANY} and {FEW} requests, divided by \
             the {} between. The array's figures are without those of one *plain member* under the same load, \
             which has the load generator and a copy of the data in it; the copies that the members make of what the \
             array asks of them are in the array's.",
            MANY - FEW
        ),
        headings: vec!["load", "array", "plain member"],
        rows,
        plots: Vec::new(),
    })
}

fn row(line: &(&str, Pattern, u64)) -> anyhow::Result<Row> {
    let (load, pattern, block) = *line;
    let mut counts = [0.0; WORDS.len()];
    for (count, (word, _)) in counts.iter_mut().zip(WORDS) {
        let run = |requests| {
            instructions(pattern, block, word, requests)
                .with_context(|| format!("counting instructions of {load}, {word}"))
        };
        *count = run(MANY)?.saturating_sub(run(FEW)?) as f64 / (MANY - FEW) as f64;
    }
    let [member, array] = counts;
    let cells = [array - member, member].map(|count| format!("{count:.0}"));
    let report = Report {
        load: options(pattern, block).describe(),
        machine: Machine { parity: SIMD.to_owned(), ..Machine::here() },
        rounds: 0,
        processor_time: false,
        virtual_time: false,
        ratios: Vec::new(),
        absolutes: Vec::new(),
        notes: Vec::new(),
    };
    Ok(Row { load: load.to_owned(), cells: cells.to_vec(), report })
}

fn options(pattern: Pattern, block: u64) -> Options {
    Options {
        // valgrind hides the page of the kernel that a look at the processor's clock goes through.
        clock: Clock::Wall,
        ..Options::new(Level::Raid5, vec![MemberSpec::Ram(MEMBER); 5], pattern, block)
    }
}

/// Instructions of this program's run of [`requests`].
fn instructions(pattern: Pattern, block: u64, on: &str, requests: u64) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["requests", &pattern.to_string(), &block.to_string(), on, &requests.to_string()])
        .env("BRAID_SIMD", SIMD)
        .output()
        .context("running valgrind; install it, or leave the instructions table out")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind ended with {}: {said}", output.status);
    }
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count.with_context(|| format!("valgrind did not tell a count: {said}"))
}

/// Carries out `count` requests: what is counted.
pub fn requests(pattern: Pattern, block: u64, on: &str, count: u64) -> anyhow::Result<()> {
    let Some((_, on)) = WORDS.iter().find(|(word, _)| *word == on) else {
        bail!("{on:?}: give member or array");
    };
    count_requests(&options(pattern, block), *on, count)?;
    Ok(())
}
