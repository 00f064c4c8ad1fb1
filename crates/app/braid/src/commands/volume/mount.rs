//! `braid volume mount`: has the running server mount a volume, or starts one in the background that does.

use super::asking::order_or_start_with;
use super::host;
use crate::cli::volume::Mount;
use crate::client::{member_argument, member_arguments};
use crate::commands::done::say_done;
use anyhow::{Context, Result};
use braid_control::protocol::volume::VolumeRequest;
use std::process::ExitCode;

pub fn run(options: Mount) -> Result<ExitCode> {
    let request = request(&options)?;
    if options.foreground {
        return host::foreground(&options, request);
    }
    let lease = options.lease.arguments();
    let said = order_or_start_with(&options.control, (&options.state, &lease), request)?;
    say_done(&said, options.json)
}

fn request(options: &Mount) -> Result<VolumeRequest> {
    let dir = std::path::absolute(&options.dir)
        .with_context(|| format!("making {} absolute", options.dir.display()))?;
    let dir = dir.to_str().with_context(|| {
        format!("{}: the path of a mount point must be text (UTF-8)", dir.display())
    })?;
    let mut new = options.new.clone();
    let domains = new.domains.iter_mut().map(|(brick, _)| brick);
    for brick in new.weights.iter_mut().map(|(brick, _)| brick).chain(domains) {
        *brick = member_argument(brick)?;
    }
    Ok(VolumeRequest::Mount {
        name: options.name.clone(),
        dir: dir.to_string(),
        bricks: member_arguments(&options.bricks, &[])?,
        degraded: options.degraded,
        minority: options.minority,
        take_back: options.take_back,
        read_only: options.read_only,
        allow_other: options.allow_other,
        no_suid: options.no_suid,
        no_dev: options.no_dev,
        no_exec: options.no_exec,
        lease: options.lease.lease.as_ref().map(ToString::to_string),
        create: options.create.then_some(new),
    })
}
