//! `cargo xtask tables`: the tables and plots of docs/benchmarks, measured again by `braid-bench`.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Builds the program that measures, and has it write into the tree under `root`.
pub fn run(root: &Path, options: &[&str]) -> Result<ExitCode> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let status = Command::new(&cargo)
        .current_dir(root)
        .args(["run", "--release", "-p", "braid-bench", "--", "tables"])
        .args(["--markdown", "docs/benchmarks"])
        .args(options)
        .status()
        .with_context(|| format!("running {cargo}; is it in the PATH?"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
