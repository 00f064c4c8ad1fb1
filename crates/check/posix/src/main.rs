//! `braid-posix`: the suites on the command line.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use braid_posix::case::{self, Verdict};
use braid_posix::scene::Surroundings;
use braid_posix::{cases, fill, fsx, names, stress, tree, wedge};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Asks a mounted file system what POSIX asks of it, or loads it with what has a known answer.
///
/// Without a command all cases are played, or those whose names begin with one of the prefixes. Run as root: what one
/// user may do to another's files is asked by acting as other users; without root such cases are skipped.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    load: Option<Load>,
    #[command(flatten)]
    cases: Cases,
}

#[derive(Args, Debug)]
struct Cases {
    /// A directory of the file system to ask; folders are made in it and removed.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Play the cases whose names begin so, such as `rename/`.
    #[arg(value_name = "CASE-PREFIX")]
    prefixes: Vec<String>,
    /// Name the cases and play none.
    #[arg(long)]
    list: bool,
    /// One JSON object a case, and one at the end.
    #[arg(long)]
    json: bool,
    /// A directory of a read-only mount, for the cases of EROFS.
    #[arg(long, value_name = "DIR")]
    read_only: Option<PathBuf>,
    /// How many seconds one case may take before the run ends with it as hung.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    patience: u64,
}

#[derive(Debug, Subcommand)]
enum Load {
    /// Random operations on one file a thread, compared byte by byte.
    Fsx {
        #[command(flatten)]
        place: Place,
        /// Operations for each file.
        #[arg(long, default_value_t = 10_000, value_name = "N")]
        operations: u64,
        /// The largest size of a file, in bytes.
        #[arg(long, default_value_t = 1 << 20, value_name = "BYTES")]
        size: usize,
        /// Files, each with a thread.
        #[arg(long, default_value_t = 4, value_name = "N")]
        files: u64,
        /// No direct I/O among the operations, and so no asynchronous I/O.
        #[arg(long)]
        buffered: bool,
    },
    /// Random operations on names by several threads; each answer is compared, and the trees at the end.
    Stress {
        #[command(flatten)]
        place: Place,
        /// Operations for each thread.
        #[arg(long, default_value_t = 10_000, value_name = "N")]
        operations: u64,
        /// Threads.
        #[arg(long, default_value_t = 4, value_name = "N")]
        threads: u64,
    },
    /// A tree of small files like that of a large source package: files/s of create, stat, read and delete.
    Tree {
        #[command(flatten)]
        place: Place,
        /// The number of files.
        #[arg(long, default_value_t = 50_000, value_name = "N")]
        files: usize,
        /// Threads.
        #[arg(long, default_value_t = 1, value_name = "N")]
        threads: usize,
    },
    /// Fills the file system; then all that fsync acknowledged must be there, and space must come back.
    Fill {
        #[command(flatten)]
        place: Place,
        /// The most free bytes that may be filled, a guard against the wrong disk.
        #[arg(long, default_value_t = 8 << 30, value_name = "BYTES")]
        at_most: u64,
    },
    /// Makes names until there is no room for one, where data would still have some; then removing must work, room must
    /// come back, and all must be there.
    Names {
        #[command(flatten)]
        place: Place,
        /// The most files that there may be room for, a guard against the wrong disk.
        #[arg(long, default_value_t = 1 << 20, value_name = "FILES")]
        at_most: u64,
        /// A command for the shell, called twice when all is full: let it unmount the file system and mount it again.
        #[arg(long, value_name = "COMMAND")]
        between: Option<String>,
    },
    /// What a kernel and the server of a file system can wait for each other over, at random, on shared files; every step
    /// must end.
    Wedge {
        #[command(flatten)]
        place: Place,
        /// How long.
        #[arg(long, default_value_t = 60, value_name = "SECONDS")]
        seconds: u64,
        /// Threads of each process.
        #[arg(long, default_value_t = 3, value_name = "N")]
        threads: usize,
        /// Processes.
        #[arg(long, default_value_t = 2, value_name = "N")]
        processes: u64,
        /// A pause of each thread between two steps.
        #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
        pause_ms: u64,
        /// How many seconds a step may take before it counts as wedged.
        #[arg(long, default_value_t = 60, value_name = "SECONDS")]
        patience: u64,
        /// Call sync(2) once a second meanwhile: it waits for every file system of the machine.
        #[arg(long)]
        sync: bool,
    },
    /// The second process of the cases of locks.
    #[command(hide = true)]
    Helper,
}

#[derive(Args, Debug)]
struct Place {
    /// A directory of the file system; a folder is made in it and removed.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// What decides all that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tell the kernel to forget what it holds of files where that makes the test harder; as root.
    #[arg(long)]
    drop_caches: bool,
    /// The result as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Place {
    fn print(&self, done: &impl serde::Serialize, words: &str) -> Result<bool> {
        if self.json {
            println!("{}", serde_json::to_string(done)?);
        } else {
            println!("{words}");
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("braid-posix: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all went as it should.
fn run(cli: Cli) -> Result<bool> {
    match cli.load {
        Some(Load::Fsx { place, operations, size, files, buffered }) => {
            anyhow::ensure!(size >= 8192, "--size {size} is too small: at least 8192");
            let (seed, drop_caches) = (place.seed, place.drop_caches);
            let plan = fsx::Plan { seed, operations, size, files, drop_caches, direct: !buffered };
            let done = fsx::run(&place.dir, &plan)?;
            let mut words = format!(
                "{} operations, {} bytes compared, {} asynchronous requests side by side with others",
                done.operations, done.compared, done.side_by_side
            );
            if !done.missing.is_empty() {
                words.push_str(&format!("; not to be had here: {}", done.missing.join(", ")));
            }
            place.print(&done, &words)
        }
        Some(Load::Stress { place, operations, threads }) => {
            let (seed, drop_caches) = (place.seed, place.drop_caches);
            let plan = stress::Plan { seed, operations, threads, drop_caches };
            let done = stress::run(&place.dir, &plan)?;
            let words = format!(
                "{} operations, {} of them refused as they should be; {} names compared, {} in the shared directory",
                done.operations, done.refused, done.names, done.shared_names
            );
            place.print(&done, &words)
        }
        Some(Load::Tree { place, files, threads }) => {
            let (seed, drop_caches) = (place.seed, place.drop_caches);
            let done = tree::run(&place.dir, &tree::Plan { seed, files, threads, drop_caches })?;
            let mut words = format!(
                "{} files in {} directories, {} bytes",
                done.files, done.directories, done.bytes
            );
            for phase in &done.phases {
                words.push_str(&format!(
                    "\n{:<8} {:>9.3} s {:>10.0} files/s",
                    phase.phase, phase.seconds, phase.files_per_s
                ));
            }
            place.print(&done, &words)
        }
        Some(Load::Fill { place, at_most }) => {
            let (seed, drop_caches) = (place.seed, place.drop_caches);
            let done = fill::run(&place.dir, &fill::Plan { seed, at_most, drop_caches })?;
            let words = format!(
                "{} files with {} bytes acknowledged and found intact; free before {}, when full {}, after {}",
                done.files, done.bytes, done.free_before, done.free_when_full, done.free_after
            );
            place.print(&done, &words)
        }
        Some(Load::Names { place, at_most, between }) => {
            let plan = names::Plan { at_most, drop_caches: place.drop_caches };
            let done = names::run(&place.dir, &plan, || between.as_deref().map_or(Ok(()), shell))?;
            let words = format!(
                "{} names made, {} removed when full, {} made again, all found; room for {} files before, {} when full, {} after",
                done.made,
                done.removed,
                done.made_again,
                done.free_before,
                done.free_when_full,
                done.free_after
            );
            place.print(&done, &words)
        }
        Some(Load::Wedge { place, seconds, threads, processes, pause_ms, patience, sync }) => {
            let plan = wedge::Plan {
                seed: place.seed,
                time: Duration::from_secs(seconds),
                threads,
                processes,
                patience: Duration::from_secs(patience),
                pause: Duration::from_millis(pause_ms),
                sync,
                drop_caches: place.drop_caches,
                program: std::env::current_exe().context("finding this program")?,
            };
            let done = wedge::run(&place.dir, &plan)?;
            let kinds = done.kinds.iter().map(|(name, count)| format!("\n{count:>9}  {name}"));
            let words = format!(
                "{} steps of this process ended, {} calls of sync{}",
                done.steps,
                done.syncs,
                kinds.collect::<String>()
            );
            place.print(&done, &words)
        }
        Some(Load::Helper) => braid_posix::helper::serve().map(|()| true),
        None => ask(&cli.cases),
    }
}

fn shell(command: &str) -> Result<()> {
    let status = std::process::Command::new("sh").args(["-c", command]).status();
    let status = status.with_context(|| format!("calling sh -c '{command}'"))?;
    anyhow::ensure!(status.success(), "sh -c '{command}': {status}");
    Ok(())
}

fn ask(options: &Cases) -> Result<bool> {
    let chosen = cases::chosen(&options.prefixes);
    anyhow::ensure!(!chosen.is_empty(), "no case's name begins so; `--list` names them all");
    if options.list {
        for case in &chosen {
            println!("{}", case.name);
        }
        return Ok(true);
    }
    let dir = options.dir.as_ref().context("name the directory to ask: --dir DIR")?;
    let surroundings = Surroundings {
        read_only: options.read_only.clone(),
        helper: std::env::current_exe().context("finding this program, to start it again")?,
    };
    let mut counts = Counts::default();
    let patience = Duration::from_secs(options.patience);
    case::run(dir, chosen, &surroundings, patience, |report| {
        counts.add(&report.verdict);
        if options.json {
            println!("{}", serde_json::to_string(report).unwrap_or_default());
            return;
        }
        match &report.verdict {
            Verdict::Passed => {}
            Verdict::Failed(why) => println!("FAILED   {}: {why}", report.case),
            Verdict::Known(why) => println!("known    {}: {why}", report.case),
            Verdict::Skipped(why) => println!("skipped  {}: {why}", report.case),
            Verdict::Hung => println!("HUNG     {}: not back after {patience:?}", report.case),
        }
    })?;
    if options.json {
        println!("{}", serde_json::to_string(&counts)?);
    } else {
        println!(
            "{} passed, {} failed, {} known, {} skipped, {} hung",
            counts.passed, counts.failed, counts.known, counts.skipped, counts.hung
        );
    }
    Ok(counts.failed == 0 && counts.hung == 0)
}

#[derive(Debug, Default, serde::Serialize)]
struct Counts {
    passed: u32,
    failed: u32,
    known: u32,
    skipped: u32,
    hung: u32,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Known(_) => &mut self.known,
            Verdict::Skipped(_) => &mut self.skipped,
            Verdict::Hung => &mut self.hung,
        } += 1;
    }
}
