//! `braid repair`: counts mismatches and makes redundancy match the data.

use super::scrub;
use crate::cli::Repair;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Repair) -> Result<ExitCode> {
    scrub::run(options.scrub, true, options.parity_only)
}
