//! `braid volume mount`: has the running server mount a volume, or starts one in the background that does.

use super::asking::order;
use super::host;
use crate::cli::volume::Mount;
use crate::client::{Client, member_argument};
use crate::commands::done::say_done;
use crate::exit::{Ended, Unreadable};
use crate::volumes::background;
use anyhow::{Context, Result};
use braid_control::protocol::volume::VolumeRequest;
use std::path::Path;
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
    let path = options.control.path();
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        if !Client::is_listening(&path) {
            background::start(&path, options.state.state_dir.as_deref())?;
        }
        let said =
            Client::connect(&path).and_then(|mut client| order(&mut client, request.clone()));
        match said {
            // The server of another volume, which was the last, or of this one, that just ended: also between the look
            // whether it listens and the connection.
            Err(error) if ends(&error, &path) && Instant::now() < until => {
                std::thread::sleep(LOOK_EVERY);
            }
            said => return say_done(&said?, options.json),
        }
    }
}

/// The server has ended, and nothing was done; another may be started.
fn ends(error: &anyhow::Error, path: &Path) -> bool {
    error.is::<Ended>() || error.is::<Unreadable>() && !Client::is_listening(path)
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
        no_suid: options.no_suid,
        no_dev: options.no_dev,
        no_exec: options.no_exec,
        create: options.create.then_some(new),
    })
}
