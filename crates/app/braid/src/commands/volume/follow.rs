//! What the verbs that start a job have in common: they show its progress until it has ended, or come back at once.

use super::asking::{about, order};
use crate::cli::volume::Follow;
use crate::client::{Client, unexpected};
use crate::commands::done::say_done;
use crate::output;
use crate::output::progress::Progress;
use anyhow::{Context, Result};
use braid_control::protocol::Answer;
use braid_control::protocol::volume::{JobDeed, VolumeJob, VolumeRequest};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::process::ExitCode;

/// Starts a job and follows it.
pub fn start(
    client: &mut Client,
    volume: &str,
    job: VolumeJob,
    follow: Follow,
) -> Result<ExitCode> {
    let started = order(client, VolumeRequest::Start { volume: volume.to_string(), job })?;
    if follow.detach {
        return say_done(&started, follow.json);
    }
    wait(client, Some(volume), false, follow.json)
}

/// Waits until a volume has no job under way, or no check with `check`, and says how it ended.
pub fn wait(
    client: &mut Client,
    volume: Option<&str>,
    check: bool,
    json: bool,
) -> Result<ExitCode> {
    match until_end(client, volume, check, json)? {
        Answer::Done { text } if json => {
            output::json_line(&Answer::Done { text })?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Done { text } => say_done(&text, false),
        other => Err(unexpected(&other)),
    }
}

/// Waits likewise, and gives what the server says at the end.
pub fn until_end(
    client: &mut Client,
    volume: Option<&str>,
    check: bool,
    json: bool,
) -> Result<Answer> {
    leave_running_on_signal(volume)?;
    let mut progress = Progress::new(json);
    let (volume, deed) = (volume.map(str::to_string), JobDeed::Wait);
    let request = VolumeRequest::Job { volume, deed, check };
    let answer = client.ask_with_progress(&about(request), &mut |job| progress.show(job));
    if let Some(done) = progress.finish() {
        output::note(done);
    }
    answer
}

/// Ctrl-C ends the command, not the job, and says so.
fn leave_running_on_signal(volume: Option<&str>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("taking over signals")?;
    let name = volume.unwrap_or("").to_string();
    let work = move || {
        if let Some(signal) = signals.forever().next() {
            output::note(format!(
                "\nbraid: the job goes on; `braid volume jobs {name} --wait` follows it, --pause and --cancel stop it"
            ));
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(work)
        .context("starting the thread that waits for signals")?;
    Ok(())
}
