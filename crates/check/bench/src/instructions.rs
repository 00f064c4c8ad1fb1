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
/// valgrind 3.19 refuses newer instructions.
const SIMD: &str = "avx2";

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
    let profile = tempfile::NamedTempFile::new().context("making a file for the profile")?;
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.path().display()))
        .arg(program)
        .args(["requests", &line.pattern.to_string(), &line.block.to_string()])
        .args([on, &requests.to_string()])
        .env("BRAID_SIMD", SIMD)
        .output()
        .context("running valgrind; install it, or leave the instructions table out")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind ended with {}: {said}", output.status);
    }
    let profile = std::fs::read(profile.path()).context("reading the profile")?;
    match sum(&String::from_utf8_lossy(&profile), line.without) {
        0 => bail!("valgrind did not tell a count: {said}"),
        count => Ok(count),
    }
}

/// Instructions of a profile of callgrind, without those of functions whose names have one of these parts.
pub fn sum(profile: &str, without: &[&str]) -> u64 {
    let (mut sum, mut counts, mut is_call) = (0, true, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            counts = !without.iter().any(|part| name.contains(part));
        } else if line.starts_with("calls=") {
            // The line that follows has what was called in it, which its own function has, too.
            is_call = true;
        } else if let Some((position, cost)) = line.split_once(' ')
            && position.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(cost) = cost.parse::<u64>()
            && !std::mem::take(&mut is_call)
            && counts
        {
            sum += cost;
        }
    }
    sum
}

/// Carries out `count` requests: what is counted.
pub fn requests(pattern: Pattern, block: u64, on: &str, count: u64) -> anyhow::Result<()> {
    let Some((_, on)) = WORDS.iter().find(|(word, _)| *word == on) else {
        bail!("{on:?}: give member or array");
    };
    count_requests(&options(pattern, block), *on, count)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_summed_by_function_and_not_twice() {
        let profile = "events: Ir\nsummary: 119\n\nfl=a.rs\nfn=braid_array::write\n12 7\ncfn=memcpy\n\
                       calls=2 0\n13 100\n14 5\n\nfn=memcpy\n0 100\nfi=b.rs\n9 7\n\ntotals: 119\n";
        assert_eq!(sum(profile, &[]), 119);
        assert_eq!(sum(profile, &["memcpy", "memmove"]), 12);
    }
}
