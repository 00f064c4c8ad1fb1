//! `braid check`: counts mismatches.

use super::scrub;
use crate::cli::Check;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Check) -> Result<ExitCode> {
    scrub::run(options.scrub, false, false)
}
