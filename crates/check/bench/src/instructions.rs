//! Instructions per request, counted by valgrind: a figure that no other load on the machine disturbs.
//!
//! This program is run again under callgrind with two numbers of requests; what both have in common, the
//! start and the end, cancels out in the difference.

use crate::callgrind::{Profile, SIMD};
use crate::loads::counted::{Counted, count_requests};
use crate::tables::{Effort, Row, Table};
use anyhow::{Context, bail};
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Clock, Machine, Options, Pattern, Report};

/// Bytes of a member: the count does not depend on it.
const MEMBER: u64 = 64 << 20;

/// One line of the table.
struct Line {
    load: &'static str,
    pattern: Pattern,
    /// Bytes of a request.
    block: u64,
    /// The two numbers of requests.
    requests: [u64; 2],
    /// Functions whose instructions are not counted, by parts of their names.
    without: &'static [&'static str],
    /// Counted for so many parts of a request.
    parts: u64,
    /// Instructions that the array may take.
    most: Option<u64>,
}

impl Line {
    const fn small(load: &'static str, pattern: Pattern, block: u64, most: Option<u64>) -> Line {
        Line { load, pattern, block, requests: [5_000, 15_000], without: &[], parts: 1, most }
    }
}

const LINES: [Line; 5] = [
    Line::small("4K random read", Pattern::RandRead, 4096, Some(500)),
    Line::small("4K random write", Pattern::RandWrite, 4096, Some(6500)),
    Line::small("512-byte random read", Pattern::RandRead, 512, None),
    Line::small("512-byte random write", Pattern::RandWrite, 512, Some(3500)),
    Line {
        load: "1M write, per 64K, beside copies and parity",
        pattern: Pattern::Write,
        block: 1 << 20,
        requests: [200, 600],
        without: &["memcpy", "memmove", "braid_parity::"],
        parts: 16,
        most: Some(2000),
    },
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
             Counted by valgrind's callgrind: the difference of two runs, one with three times as many requests, divided by \
             the requests between. The array's figures are without those of one *plain member* under the same load, \
             which has the load generator and a copy of the data in it; the copies that the members make of what the \
             array asks of them are in the array's. The last line has neither the instructions of copies nor those of \
             parity in it: they are as many as there are bytes."
        ),
        headings: vec!["load", "array", "demanded", "plain member"],
        rows,
        plots: Vec::new(),
    })
}

fn row(line: &Line) -> anyhow::Result<Row> {
    let Line { load, pattern, block, requests: [few, many], parts, .. } = *line;
    let mut counts = [0.0; WORDS.len()];
    for (count, (word, _)) in counts.iter_mut().zip(WORDS) {
        let run = |requests| {
            instructions(line, word, requests)
                .with_context(|| format!("counting instructions of {load}, {word}"))
        };
        *count = run(many)?.saturating_sub(run(few)?) as f64 / ((many - few) * parts) as f64;
    }
    let [member, array] = counts;
    let [array, member] = [array - member, member].map(|count| count.round());
    let demanded = line.most.map_or("–".to_owned(), |most| {
        format!("≤ {most} {}", if array <= most as f64 { "met" } else { "not met" })
    });
    let cells = vec![format!("{array}"), demanded, format!("{member}")];
    let report = Report {
        machine: Machine { parity: SIMD.to_owned(), ..Machine::here() },
        ..Report::without_figures(options(pattern, block).describe())
    };
    Ok(Row { load: load.to_owned(), cells, report })
}

fn options(pattern: Pattern, block: u64) -> Options {
    Options {
        // valgrind hides the page of the kernel that a look at the processor's clock goes through.
        clock: Clock::Wall,
        ..Options::new(Level::Raid5, vec![MemberSpec::Ram(MEMBER); 5], pattern, block)
    }
}

/// Instructions of this program's run of [`requests`].
fn instructions(line: &Line, on: &str, requests: u64) -> anyhow::Result<u64> {
    let profile = Profile::new()?;
    let output = profile
        .command()?
        .args(["requests", &line.pattern.to_string(), &line.block.to_string()])
        .args([on, &requests.to_string()])
        .output()
        .context("running valgrind; install it, or leave the instructions table out")?;
    profile.count(output.status, &String::from_utf8_lossy(&output.stderr), line.without)
}

/// Carries out `count` requests: what is counted.
pub fn requests(pattern: Pattern, block: u64, on: &str, count: u64) -> anyhow::Result<()> {
    let Some((_, on)) = WORDS.iter().find(|(word, _)| *word == on) else {
        bail!("{on:?}: give member or array");
    };
    count_requests(&options(pattern, block), *on, count)?;
    Ok(())
}
