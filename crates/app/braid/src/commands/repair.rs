//! `braid repair`: counts mismatches and makes redundancy match the data.

use super::scrub;
use crate::cli::Scrub;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Scrub) -> Result<ExitCode> {
    scrub::run(options, true)
}
