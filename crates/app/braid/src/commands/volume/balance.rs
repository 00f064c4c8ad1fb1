//! `braid volume balance`: every brick gets its fair share.

use super::{connect, follow, volume_name};
use crate::cli::volume::Balance;
use crate::daemon::protocol::volume::VolumeJob;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Balance) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    follow::start(&mut client, &volume_name(&options.name), VolumeJob::Balance, options.follow)
}
