//! `braid volume pin` and `braid volume unpin`: files stay where they are, or may be moved.

use super::asking::{connect, file_name, order, volume_name};
use crate::cli::volume::OneFileOrMore;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: OneFileOrMore, pinned: bool) -> Result<ExitCode> {
    let files = options.files.iter().map(|file| file_name(file)).collect::<Result<_>>()?;
    let volume = volume_name(&options.name);
    let mut client = connect(&options.control)?;
    say_done(&order(&mut client, VolumeRequest::Pin { volume, files, pinned })?, options.json)
}
