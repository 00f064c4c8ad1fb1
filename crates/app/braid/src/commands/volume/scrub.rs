//! `braid volume scrub`: all data is read and held against its checksums.

use super::check::run_and_show;
use crate::cli::volume::Scrub;
use anyhow::Result;
use braid_control::protocol::volume::VolumeJob;
use std::process::ExitCode;

pub fn run(options: &Scrub) -> Result<ExitCode> {
    let job = (!options.last).then_some(VolumeJob::Scrub);
    run_and_show(options.name.as_deref(), job, false, &options.follow, &options.control)
}
