//! `braid volume weight`: a brick's part among the others.

use super::asking::{brick_name, connect, order, volume_name};
use super::follow;
use crate::cli::volume::Weight;
use crate::commands::done::say_done;
use crate::output;
use anyhow::Result;
use braid_control::protocol::volume::{VolumeJob, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Weight) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = volume_name(&options.name);
    let (brick, weight) = (brick_name(&options.brick), options.weight);
    let request = VolumeRequest::Weight { volume: volume.clone(), brick, weight };
    let said = order(&mut client, request)?;
    if options.no_balance {
        return say_done(&said, options.follow.json);
    }
    if !options.follow.json {
        output::line(said)?;
    }
    follow::start(&mut client, &volume, VolumeJob::Balance, options.follow)
}
