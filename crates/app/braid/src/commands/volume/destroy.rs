//! `braid volume destroy`: the end of a volume and of all files on it.

use super::asking::order_or_start;
use crate::cli::volume::Destroy;
use crate::client::member_arguments;
use crate::commands::done::say_done;
use anyhow::{Result, bail};
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: Destroy) -> Result<ExitCode> {
    let name = &options.name;
    if !options.yes && !options.dry_run {
        bail!(
            "destroying volume {name} loses all files on it: --dry-run shows which bricks that would be, --yes does it"
        );
    }
    let request = VolumeRequest::Destroy {
        volume: name.clone(),
        bricks: member_arguments(&options.bricks, &[])?,
        force: options.force,
        dry_run: options.dry_run,
    };
    let said = order_or_start(&options.control, &options.state, request)?;
    say_done(&said, options.json)
}
