//! `braid volume unmount`: the end of a mount, in order.

use super::asking::{connect, order, volume_name};
use crate::cli::volume::Unmount;
use crate::commands::done::say_done;
use crate::protocol::volume::VolumeRequest;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Unmount) -> Result<ExitCode> {
    let volume = volume_name(&options.name);
    let mut client = connect(&options.control)?;
    let said = order(&mut client, VolumeRequest::Unmount { volume, lazy: options.lazy })?;
    say_done(&said, options.json)
}
