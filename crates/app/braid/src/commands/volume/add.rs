//! `braid volume add`: bricks are added and get their share.

use super::asking::{connect, order, volume_name};
use super::follow;
use crate::cli::volume::Add;
use crate::client::member_arguments;
use crate::commands::done::say_done;
use crate::output;
use anyhow::{Result, bail};
use braid_control::protocol::volume::{VolumeJob, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Add) -> Result<ExitCode> {
    if options.proxy && options.bricks.len() > 1 {
        bail!("a volume has one proxy: give one brick with --proxy, the others without");
    }
    let mut client = connect(&options.control)?;
    let volume = volume_name(&options.name);
    let bricks = member_arguments(&options.bricks, &[])?;
    let request = VolumeRequest::Add {
        volume: volume.clone(),
        bricks,
        weight: options.weight,
        domain: options.domain.unwrap_or_default(),
        proxy: options.proxy,
        force: options.force,
        in_place_of: None,
        dry_run: options.dry_run,
    };
    let said = order(&mut client, request)?;
    if options.no_balance || options.proxy || options.dry_run {
        return say_done(&said, options.follow.json);
    }
    if !options.follow.json {
        output::line(said)?;
    }
    follow::start(&mut client, &volume, VolumeJob::Balance, options.follow)
}
