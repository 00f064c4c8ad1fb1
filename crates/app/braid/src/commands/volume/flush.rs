//! `braid volume flush`: what the proxy has taken goes to the other bricks.

use super::{connect, follow, volume_name};
use crate::cli::volume::Flush;
use crate::daemon::protocol::volume::VolumeJob;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Flush) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    follow::start(&mut client, &volume_name(&options.name), VolumeJob::Flush, options.follow)
}
