//! Arrays of arrays, made by one side and taken over by the other.
//!
//! ```text
//!  by md:     mdadm makes, md writes A ─► braid assembles, reads A, writes B, checks ─► md reads B, checks
//!  by braid:  braid makes, writes A, checks ─► md assembles, reads A, checks, writes B ─► braid reads B
//! ```
//!
//! Each level is checked by itself. What mdadm says of the members of the upper array must be the same, line by
//! line, whoever made it over arrays of the same sizes.

use crate::by_braid::{Braid, Content};
use crate::cell::Cell;
use crate::guest::{self, first_wrong, library, said};
use crate::matrix::{MatrixError, Patterns, from};
use crate::uml;
use braid_format::superblock::Version;
use braid_layout::Level;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);

/// A stack of two layers.
pub struct Stack {
    /// The upper array; its members are the lower ones.
    pub top: Cell,
    /// The lower arrays.
    pub lower: Vec<Cell>,
}

/// How a run of all stacks went.
pub struct Report {
    /// Stacks that were made, by either side.
    pub stacks: usize,
    /// What was wrong, a line for each stack.
    pub failures: Vec<String>,
    /// From start to end.
    pub took: Duration,
}

fn cell(level: Level, layout: Option<&'static str>, members: usize, version: Version) -> Cell {
    let chunk_kib = (!matches!(level, Level::Raid1 | Level::Linear)).then_some(64);
    Cell { level, layout, chunk_kib, members, version, unequal: false }
}

/// All stacks, in a fixed order.
pub fn all() -> Vec<Stack> {
    use Level::{Linear, Raid0, Raid1, Raid5, Raid6, Raid10};
    let near = |members| cell(Raid10, Some("n2"), members, Version::V1_2);
    let plain = |level, members| cell(level, None, members, Version::V1_2);
    let stack = |level, layout, version, lower: Vec<Cell>| {
        let top = cell(level, layout, lower.len(), version);
        Stack { top, lower }
    };
    let small = Cell { chunk_kib: Some(4), ..plain(Raid0, 2) };
    vec![
        stack(Raid0, None, Version::V1_2, vec![plain(Raid1, 3); 2]),
        stack(Raid0, None, Version::V1_2, vec![plain(Raid5, 3); 2]),
        stack(Raid0, None, Version::V1_1, vec![plain(Raid6, 4); 2]),
        stack(Raid1, None, Version::V1_2, vec![small, plain(Raid0, 3)]),
        stack(Linear, None, Version::V1_2, vec![plain(Raid1, 2), plain(Raid5, 3), near(4)]),
        stack(Raid10, Some("n2"), Version::V1_2, vec![plain(Raid1, 2); 4]),
        stack(Raid10, Some("f2"), Version::V1_0, vec![plain(Raid0, 2); 3]),
        stack(Raid5, Some("left-symmetric"), Version::V1_0, vec![plain(Raid1, 2); 3]),
        stack(Raid6, Some("left-symmetric"), Version::V1_1, vec![plain(Raid0, 2); 4]),
        stack(Raid0, None, Version::V1_0, vec![near(3), plain(Raid5, 4)]),
    ]
}

impl Stack {
    /// The stack as file names show it.
    pub fn name(&self) -> String {
        let lower: Vec<String> = self.lower.iter().map(|cell| cell.level.to_string()).collect();
        format!("{}-{}-over-{}", self.top.level, self.top.version, lower.join("-"))
    }

    /// The name of the files of a lower array's leaves, without their numbers.
    pub(crate) fn leaves(name: &str, lower: usize) -> String {
        format!("{name}.a{lower}")
    }
}

/// mdadm's options for an array.
fn options(cell: &Cell) -> String {
    let chunk = cell.chunk_kib.map_or(String::new(), |chunk| format!("--chunk {chunk}"));
    let layout = cell.layout.map_or(String::new(), |layout| format!("--layout {layout}"));
    // Or the last member becomes a spare, which is rebuilt later and seen to be so or not.
    let force = if cell.level == Level::Raid5 { "--force" } else { "" };
    format!(
        "--metadata {} --level {} --raid-devices {} {chunk} {layout} {force}",
        cell.version, cell.level, cell.members
    )
}

/// md devices of a stack: the lower ones, and the top.
fn devices(nr: usize, stack: &Stack) -> (Vec<String>, String) {
    let lower = (0..stack.lower.len()).map(|lower| format!("md{}", nr * 10 + lower)).collect();
    (lower, format!("md{}", nr * 10 + 9))
}

/// DEVICES are the lower arrays.
fn on_arrays(lower: &[String]) -> String {
    let paths: Vec<String> = lower.iter().map(|md| format!("/dev/{md}")).collect();
    format!("DEVICES=\"{}\"\n", paths.join(" "))
}

/// What mdadm says of each member of the top, but for what is different each time.
fn examine(name: &str, lower: &[String]) -> String {
    let mut script = String::new();
    for (slot, md) in lower.iter().enumerate() {
        let _ = writeln!(
            script,
            "mdadm --examine /dev/{md} | sed 1d | grep -vE 'UUID|Time|Checksum|Events|Name' | sed 's/^/{name}-examine-{slot} /'"
        );
    }
    script
}

/// Stops a stack from the top down.
fn stop(name: &str, lower: &[String], top: &str) -> String {
    let mut script = format!("stop {top}; say {name} stop\n");
    for (slot, md) in lower.iter().enumerate() {
        let _ = writeln!(script, "stop {md}; say {name} stop-{slot}");
    }
    script + "detach\n"
}

/// Checks each array, after another.
fn check(name: &str, stack: &Stack, lower: &[String], top: &str) -> String {
    let mut script = String::new();
    let arrays = lower.iter().map(String::as_str).zip(&stack.lower).chain([(top, &stack.top)]);
    for (at, (md, cell)) in arrays.enumerate() {
        if cell.level.has_redundancy() {
            let _ = writeln!(
                script,
                "settle {md}\necho check > /sys/block/{md}/md/sync_action\nsettle {md}\nstate {md} mismatch_cnt; say {name} mismatch_cnt-{at}"
            );
        }
    }
    script
}

/// mdadm makes the stack and writes A.
fn make(nr: usize, stack: &Stack, name: &str) -> String {
    let (lower, top) = devices(nr, stack);
    let mut script = String::new();
    for (slot, (md, cell)) in lower.iter().zip(&stack.lower).enumerate() {
        let leaves = Stack::leaves(name, slot);
        let slots = guest::slots(cell, &[]);
        let _ =
            writeln!(script, "attach {leaves} {slots}\ncreate {md} {}\nsynced {md}", options(cell));
    }
    script += &on_arrays(&lower);
    let _ = write!(
        script,
        "create {top} {}\nsynced {top}\nwrite {top} {} {}; say {name} write\nsize {top}; say {name} size\nstop {top}\n",
        options(&stack.top),
        Patterns::A,
        from(nr),
    );
    script += &examine(name, &lower);
    script += &on_arrays(&lower);
    let _ = writeln!(script, "assemble {top}; say {name} assemble");
    script + &stop(name, &lower, &top)
}

/// md assembles the stack, reads `content`, checks every level, and writes `new` if so told.
fn take_over(nr: usize, stack: &Stack, name: &str, content: &str, new: Option<&str>) -> String {
    let (lower, top) = devices(nr, stack);
    let mut script = String::new();
    for (slot, (md, cell)) in lower.iter().zip(&stack.lower).enumerate() {
        let leaves = Stack::leaves(name, slot);
        let slots = guest::slots(cell, &[]);
        let _ =
            writeln!(script, "attach {leaves} {slots}\nassemble {md}; say {name} assemble-{slot}");
    }
    script += &examine(name, &lower);
    script += &on_arrays(&lower);
    let _ = writeln!(
        script,
        "assemble {top}; say {name} assemble\nsize {top}; say {name} size\nsame {top} {content} {}; say {name} read",
        from(nr)
    );
    script += &check(name, stack, &lower, &top);
    if let Some(new) = new {
        let _ = writeln!(script, "write {top} {new} {}; say {name} write", from(nr));
    }
    script + &stop(name, &lower, &top)
}

/// What [`take_over`] must say.
fn taken_over(stack: &Stack, writes: bool) -> BTreeMap<String, String> {
    let ok = |step: &str| (step.to_owned(), "ok".to_owned());
    let mut steps = BTreeMap::from(["assemble", "read", "stop"].map(ok));
    for slot in 0..stack.lower.len() {
        steps.extend([ok(&format!("assemble-{slot}")), ok(&format!("stop-{slot}"))]);
    }
    for (at, cell) in stack.lower.iter().chain([&stack.top]).enumerate() {
        if cell.level.has_redundancy() {
            steps.insert(format!("mismatch_cnt-{at}"), "0".to_owned());
        }
    }
    if writes {
        steps.extend([ok("write")]);
    }
    steps
}

fn wrong(output: &str, name: &str, steps: &BTreeMap<String, String>) -> Result<(), String> {
    steps.iter().try_for_each(|(step, expected)| match said(output, name, step) {
        Some(value) if value == expected => Ok(()),
        other => Err(format!("md: {step}: {other:?}, not {expected:?}")),
    })
}

/// The lines that mdadm said of the members of the top.
fn examined(output: &str, name: &str) -> Vec<String> {
    let start = format!("{name}-examine-");
    output.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect()
}

/// Runs all stacks.
///
/// # Errors
/// When they could not be run.
pub fn run() -> Result<Report, MatrixError> {
    let started = Instant::now();
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp")?;
    let folder = folder.path();
    let patterns = Patterns::new(folder)?;
    let braid = Braid::new(folder).map_err(MatrixError::Shard)?;
    let stacks = all();
    let mut results: Vec<(String, Result<(), String>)> = Vec::new();

    let (mut first, mut second) = (library(), library());
    let names: Vec<(String, String)> = stacks
        .iter()
        .map(|s| (format!("{}-mdadm", s.name()), format!("{}-braid", s.name())))
        .collect();
    for (nr, stack) in stacks.iter().enumerate() {
        let (theirs, ours) = &names[nr];
        for name in [theirs, ours] {
            braid.make_leaves(stack, name).map_err(MatrixError::Shard)?;
        }
        first += &make(nr, stack, theirs);
        second += &take_over(nr, stack, theirs, Patterns::B, None);
        second += &take_over(nr, stack, ours, Patterns::A, Some(Patterns::B));
    }
    let made = uml::run(&first, folder, 1024, LIMIT)?.text;
    for (nr, stack) in stacks.iter().enumerate() {
        let (theirs, ours) = &names[nr];
        let (a, b): (Content, Content) = (patterns.a(nr), patterns.b(nr));
        let steps = ["write", "assemble", "stop"].map(|step| (step, "ok".to_owned()));
        let result = first_wrong(&made, theirs, &BTreeMap::from(steps))
            .and_then(|()| braid.stack_compare_and_write(stack, theirs, &a, &b));
        results.push((theirs.clone(), result));
        let size = braid.stack_make(stack, ours, &a);
        let md = said(&made, theirs, "size").map(str::to_owned);
        results.push((
            ours.clone(),
            size.and_then(|size| match md {
                Some(md) if md == size.to_string() => Ok(()),
                other => Err(format!("it has {size} bytes, and {other:?} when mdadm makes it")),
            }),
        ));
    }
    let taken = uml::run(&second, folder, 1024, LIMIT)?.text;
    for (nr, stack) in stacks.iter().enumerate() {
        let (theirs, ours) = &names[nr];
        results.push((theirs.clone(), wrong(&taken, theirs, &taken_over(stack, false))));
        results.push((ours.clone(), wrong(&taken, ours, &taken_over(stack, true))));
        results.push((ours.clone(), braid.stack_compare(stack, ours, &patterns.b(nr))));
        let (as_md, as_braid) = (examined(&made, theirs), examined(&taken, ours));
        let differs = as_md.iter().zip(&as_braid).find(|(md, braid)| md != braid);
        results.push((
            ours.clone(),
            match differs {
                Some((md, braid)) => Err(format!("mdadm --examine: {braid:?}, not {md:?}")),
                None if as_md.is_empty() || as_md.len() != as_braid.len() => {
                    Err(format!("{} lines by mdadm --examine, not {}", as_braid.len(), as_md.len()))
                }
                None => Ok(()),
            },
        ));
    }
    let mut failures = Vec::new();
    for (name, result) in results {
        failures.extend(result.err().map(|why| format!("{name}: {why}")));
    }
    Ok(Report { stacks: stacks.len() * 2, failures, took: started.elapsed() })
}
