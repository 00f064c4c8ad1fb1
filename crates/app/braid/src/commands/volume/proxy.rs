//! `braid volume proxy`: the brick that takes what is written first.

use super::asking::{brick_name, connect, order, volume_name};
use crate::cli::volume::Proxy;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: Proxy) -> Result<ExitCode> {
    let (volume, brick) = (volume_name(&options.name), options.brick.as_deref().map(brick_name));
    let mut client = connect(&options.control)?;
    say_done(&order(&mut client, VolumeRequest::Proxy { volume, brick })?, options.json)
}
