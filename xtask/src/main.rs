//! Project chores, run as `cargo xtask CHORE`.
//!
//! Owns the command line of the chores and nothing else; each chore is a module. Nothing of the
//! product depends on this crate.

#![forbid(unsafe_code)]

mod tables;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask tidy [--rules]
       cargo xtask tables [OPTION...]
  tidy          hold the tree to its rules: arrows, unsafe, dependencies, names, sizes
  tidy --rules  list the rules
  tables        measure the tables and plots of docs/benchmarks again; the options are those of
                braid-bench tables, such as --quick and --only stripe-size";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy::run(&repository_root()?),
        ["tidy", "--rules"] => {
            tidy::list_rules();
            Ok(ExitCode::SUCCESS)
        }
        ["tables", options @ ..] => tables::run(&repository_root()?, options),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => bail!("no chore named\n{USAGE}"),
        other => bail!("no chore `{}`\n{USAGE}", other.join(" ")),
    }
}

/// The folder above this crate: chores work on the tree that they were built from, wherever they
/// are called.
fn repository_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("finding the repository: xtask has no folder above it")?;
    Ok(root.to_path_buf())
}
