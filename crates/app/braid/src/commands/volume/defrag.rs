//! `braid volume defrag`: the pieces of files are brought together.

use super::{connect, follow, volume_name};
use crate::cli::volume::Defrag;
use crate::daemon::protocol::volume::VolumeJob;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Defrag) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    follow::start(&mut client, &volume_name(&options.name), VolumeJob::Defrag, options.follow)
}
