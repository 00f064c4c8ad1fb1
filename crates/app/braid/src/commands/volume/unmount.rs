//! `braid volume unmount`: the end of a mount, in order.

use super::asking::{ask, connect, order, volume_name};
use crate::cli::volume::Unmount;
use crate::client::Client;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::{VolumeAnswer, VolumeRequest};
use std::path::Path;
use std::process::ExitCode;

/// The volume of that name, else the one that is mounted at the directory of that name here.
fn volume_or_directory(client: &mut Client, typed: &str) -> Result<String> {
    let here = Path::new(typed);
    if typed.contains('/') || !here.is_dir() {
        return Ok(volume_name(typed));
    }
    let VolumeAnswer::List { volumes } = ask(client, VolumeRequest::List)? else {
        return Ok(volume_name(typed));
    };
    match volumes.iter().any(|volume| volume.name == typed) {
        true => Ok(typed.to_string()),
        false => Ok(volume_name(&format!("./{typed}"))),
    }
}

pub fn run(options: Unmount) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = volume_or_directory(&mut client, &options.name)?;
    let said = order(&mut client, VolumeRequest::Unmount { volume, lazy: options.lazy })?;
    say_done(&said, options.json)
}
