//! `braid-posix`: the suites on the command line.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use braid_posix::case::{self, Verdict};
use braid_posix::cases;
use braid_posix::scene::Surroundings;
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
    /// The second process of the cases of locks.
    #[command(hide = true)]
    Helper,
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
        Some(Load::Helper) => braid_posix::helper::serve().map(|()| true),
        None => ask(&cli.cases),
    }
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
