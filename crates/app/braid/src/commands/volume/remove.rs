//! `braid volume remove`: a brick is emptied and let go.

use super::asking::{brick_name, connect, order, volume_name};
use super::follow;
use crate::cli::volume::Remove;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::{VolumeJob, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Remove) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = volume_name(&options.name);
    let job = VolumeJob::Remove { brick: brick_name(&options.brick), dry_run: options.dry_run };
    if options.dry_run {
        let said = order(&mut client, VolumeRequest::Start { volume, job })?;
        return say_done(&said, options.follow.json);
    }
    follow::start(&mut client, &volume, job, options.follow)
}
