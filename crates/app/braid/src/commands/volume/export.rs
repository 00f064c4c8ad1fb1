//! `braid volume export`: a file as a block device.

use super::asking::{connect, file_name, order, volume_name};
use crate::cli::volume::Export;
use crate::commands::done::say_done;
use anyhow::{Context, Result};
use braid_control::protocol::volume::VolumeRequest;
use braid_nbd::Address;
use std::process::ExitCode;

pub fn run(options: Export) -> Result<ExitCode> {
    let (volume, file) = (volume_name(&options.name), file_name(&options.file)?);
    let nbd = match options.nbd {
        // The server may stand in another folder.
        Some(Address::Unix(path)) => Some(Address::Unix(
            std::path::absolute(&path)
                .with_context(|| format!("making {} absolute", path.display()))?,
        )),
        other => other,
    };
    let request = VolumeRequest::Export {
        volume,
        file,
        nbd: nbd.map(|address| address.to_string()),
        read_only: options.read_only,
    };
    let mut client = connect(&options.control)?;
    say_done(&order(&mut client, request)?, options.json)
}
