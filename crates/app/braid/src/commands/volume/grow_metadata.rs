//! `braid volume grow-metadata`: more room for metadata.

use super::{connect, order, volume_name};
use crate::cli::volume::GrowMetadata;
use crate::commands::say_done;
use crate::daemon::protocol::volume::VolumeRequest;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: GrowMetadata) -> Result<ExitCode> {
    let (volume, size) = (volume_name(&options.name), options.size);
    let mut client = connect(&options.control)?;
    say_done(&order(&mut client, VolumeRequest::GrowMetadata { volume, size })?, options.json)
}
