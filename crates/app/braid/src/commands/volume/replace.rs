//! `braid volume replace`: a brick is added in the place of another, which is emptied and let go.

use super::asking::{brick_name, connect, order, volume_name};
use super::follow;
use crate::cli::volume::Replace;
use crate::client::member_arguments;
use crate::commands::done::say_done;
use crate::output;
use anyhow::{Context, Result};
use braid_control::protocol::volume::{VolumeJob, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Replace) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = volume_name(&options.name);
    let old = brick_name(&options.old);
    let request = VolumeRequest::Add {
        volume: volume.clone(),
        bricks: member_arguments(std::slice::from_ref(&options.new), &[])?,
        weight: options.weight,
        domain: options.domain.unwrap_or_default(),
        proxy: false,
        force: options.force,
        in_place_of: Some(old.clone()),
        dry_run: options.dry_run,
    };
    let said = order(&mut client, request)?;
    if options.dry_run {
        return say_done(&said, options.follow.json);
    }
    if !options.follow.json {
        output::line(said)?;
    }
    let job = VolumeJob::Remove { brick: old, dry_run: false };
    follow::start(&mut client, &volume, job, options.follow).with_context(|| {
        format!(
            "{} is a brick of the volume now, {} still is one; `braid volume remove {} {}` goes on",
            options.new, options.old, options.name, options.old
        )
    })
}
