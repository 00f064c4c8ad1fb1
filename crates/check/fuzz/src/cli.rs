//! The command line: `run`, `replay`, `list`.

use crate::run::{Settings, fuzz, replay};
use crate::targets::{self, Target};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};

/// Feeds bad input to every parser and checks that none panics, allocates without bound, loops or forgets.
///
/// An input that holds too much memory at a time ends the process ("memory allocation of … bytes failed"), and so
/// does one that never ends; `run --write-each` then leaves it in a file.
#[derive(Debug, Parser)]
#[command(name = "braid-fuzz", version)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run inputs; the same seed and number give the same inputs
    Run {
        /// Parsers to run, all when none is named (see `list`)
        targets: Vec<String>,
        /// Inputs for each parser
        #[arg(long, default_value_t = 100_000)]
        inputs: u64,
        /// Decides every input
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where an input that failed is written
        #[arg(long, default_value = ".")]
        save: PathBuf,
        /// Write each input to `TARGET.current` before it runs: finds one that kills the process
        #[arg(long)]
        write_each: bool,
    },
    /// Run one input that was saved
    Replay {
        /// The parser
        target: String,
        /// The input
        file: PathBuf,
    },
    /// List the parsers
    List,
}

/// Does what the command line says.
///
/// # Errors
/// An unknown target, a corpus that cannot be read, or an input that failed: where it was saved.
pub fn main(cli: &Cli) -> Result<()> {
    match &cli.verb {
        Verb::Run { targets, inputs, seed, save, write_each } => {
            run_all(targets, *inputs, *seed, save, *write_each)
        }
        Verb::Replay { target, file } => {
            let target = find(target)?;
            let bytes = std::fs::read(file)
                .with_context(|| format!("reading the input {}", file.display()))?;
            match replay(target, &bytes) {
                Ok(verdict) => {
                    println!("{}: {} bytes, {verdict}", target.name, bytes.len());
                    Ok(())
                }
                Err(why) => bail!("{}: {why}", target.name),
            }
        }
        Verb::List => {
            for target in targets::ALL {
                println!("{:<16} {}", target.name, target.what);
            }
            Ok(())
        }
    }
}

fn find(name: &str) -> Result<&'static Target> {
    let found = targets::ALL.iter().copied().find(|target| target.name == name);
    found.with_context(|| format!("there is no parser {name:?}; braid-fuzz list names them"))
}

fn run_all(names: &[String], inputs: u64, seed: u64, save: &Path, write_each: bool) -> Result<()> {
    let chosen: Vec<&'static Target> = if names.is_empty() {
        targets::ALL.to_vec()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    println!(
        "{:<16} {:>12} {:>10} {:>12} {:>12}",
        "parser", "inputs", "accepted", "per second", "slowest"
    );
    let mut failed = Vec::new();
    for target in chosen {
        let current = write_each.then(|| save.join(format!("{}.current", target.name)));
        let settings = Settings { inputs, seed, budget: true, current };
        let report = fuzz(target, &settings)?;
        let seconds = report.elapsed.as_secs_f64().max(1e-9);
        println!(
            "{:<16} {:>12} {:>9.1}% {:>12.0} {:>9.0} us",
            target.name,
            report.done,
            100.0 * report.accepted as f64 / report.done.max(1) as f64,
            report.done as f64 / seconds,
            report.slowest.as_secs_f64() * 1e6,
        );
        if let Some(failure) = report.failure {
            let path = save.join(format!("{}-{seed}-{}.bin", target.name, failure.number));
            std::fs::write(&path, &failure.input)
                .with_context(|| format!("saving the input as {}", path.display()))?;
            failed.push(format!(
                "{}: input {} of seed {seed}: {}\n  braid-fuzz replay {} {}",
                target.name,
                failure.number,
                failure.why,
                target.name,
                path.display()
            ));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}
