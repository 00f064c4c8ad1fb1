//! `braid volume migrate`: files go to one brick, one after the other.

use super::{brick_name, connect, file_name, follow, volume_name};
use crate::cli::volume::Migrate;
use crate::daemon::protocol::volume::VolumeJob;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub fn run(options: Migrate) -> Result<ExitCode> {
    if options.follow.detach && options.files.len() > 1 {
        bail!("a volume has one job at a time: with --detach give one file, or leave --detach out");
    }
    let files = options.files.iter().map(|file| file_name(file)).collect::<Result<Vec<_>>>()?;
    let mut client = connect(&options.control)?;
    let (volume, brick) = (volume_name(&options.name), brick_name(&options.to));
    for file in files {
        let job = VolumeJob::Migrate { file, brick: brick.clone() };
        follow::start(&mut client, &volume, job, options.follow)?;
    }
    Ok(ExitCode::SUCCESS)
}
