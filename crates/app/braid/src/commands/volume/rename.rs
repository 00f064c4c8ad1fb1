//! `braid volume rename`: another name for a volume that is not mounted.

use super::asking::order_or_start;
use crate::cli::volume::Rename;
use crate::client::member_arguments;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: Rename) -> Result<ExitCode> {
    let request = VolumeRequest::Rename {
        volume: options.name.clone(),
        name: options.new_name.to_string(),
        bricks: member_arguments(&options.bricks, &[])?,
    };
    let said = order_or_start(&options.control, &options.state, request)?;
    say_done(&said, options.json)
}
