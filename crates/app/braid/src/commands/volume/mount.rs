//! `braid volume mount`: has the running server mount a volume, or starts one in the background that does.

use super::{host, order, socket};
use crate::cli::volume::Mount;
use crate::client::{Client, member_argument};
use crate::commands::say_done;
use crate::daemon::protocol::volume::VolumeRequest;
use crate::exit::Ended;
use crate::volumes::background;
use anyhow::{Context, Result};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// For so long a server that is about to end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub fn run(options: Mount) -> Result<ExitCode> {
    let request = request(&options)?;
    if options.foreground {
        return host::foreground(&options, request);
    }
    let path = socket(&options.control);
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        if !Client::is_listening(&path) {
            background::start(&path, options.state.state_dir.as_deref())?;
        }
        match order(&mut Client::connect_to(&path)?, request.clone()) {
            // The server of another volume, which was the last.
            Err(error) if error.is::<Ended>() && Instant::now() < until => {
                std::thread::sleep(LOOK_EVERY);
            }
            said => return say_done(&said?, options.json),
        }
    }
}

fn request(options: &Mount) -> Result<VolumeRequest> {
    let dir = std::path::absolute(&options.dir)
        .with_context(|| format!("making {} absolute", options.dir.display()))?;
    let dir = dir.to_str().with_context(|| {
        format!("{}: the path of a mount point must be text (UTF-8)", dir.display())
    })?;
    let mut new = options.new.clone();
    for (brick, _) in &mut new.weights {
        *brick = member_argument(brick)?;
    }
    Ok(VolumeRequest::Mount {
        name: options.name.clone(),
        dir: dir.to_string(),
        bricks: options.bricks.iter().map(|text| member_argument(text)).collect::<Result<_>>()?,
        degraded: options.degraded,
        take_back: options.take_back,
        read_only: options.read_only,
        allow_other: options.allow_other,
        create: options.create.then_some(new),
    })
}
