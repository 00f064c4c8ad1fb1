//! `braid check`: counts mismatches.

use super::scrub;
use crate::cli::Scrub;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Scrub) -> Result<ExitCode> {
    scrub::run(options, false)
}
