//! `braid volume take-back`: a brick that was lost is used again.

use super::asking::{brick_name, connect, order, volume_name};
use crate::cli::volume::TakeBack;
use crate::client::member_argument;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: &TakeBack) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = volume_name(&options.name);
    let brick = brick_name(&options.brick);
    let device = options.device.as_deref().map(member_argument).transpose()?;
    let said = order(&mut client, VolumeRequest::TakeBack { volume, brick, device })?;
    say_done(&said, options.json)
}
