//! `braid volume migrate`: files go to one brick, as one job.

use super::asking::{brick_name, connect, file_name, volume_name};
use super::follow;
use crate::cli::volume::Migrate;
use crate::protocol::volume::VolumeJob;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Migrate) -> Result<ExitCode> {
    let files = options.files.iter().map(|file| file_name(file)).collect::<Result<Vec<_>>>()?;
    let mut client = connect(&options.control)?;
    let job = VolumeJob::Migrate { files, brick: brick_name(&options.to) };
    follow::start(&mut client, &volume_name(&options.name), job, options.follow)
}
