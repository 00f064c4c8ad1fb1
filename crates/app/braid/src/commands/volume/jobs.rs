//! `braid volume jobs`: the job of a volume is shown, steered or waited for.

use super::asking::{ask, connect, order, unexpected, volume_name};
use super::{follow, status};
use crate::cli::volume::Jobs;
use crate::commands::done::say_done;
use crate::output::{self, size, time};
use anyhow::Result;
use braid_control::protocol::volume::{JobDeed, VolumeAnswer, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Jobs) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = options.name.as_deref().map(volume_name);
    if options.wait {
        return follow::wait(&mut client, volume.as_deref(), options.check, options.json);
    }
    let deed = match (options.speed, options.latency) {
        _ if options.pause => JobDeed::Pause,
        _ if options.resume => JobDeed::Resume,
        _ if options.cancel => JobDeed::Cancel,
        (Some(rate), _) => JobDeed::Speed { bytes: rate.0 },
        (_, Some(latency)) => JobDeed::Latency { micros: latency.0 },
        (None, None) => {
            return show(ask(&mut client, VolumeRequest::Status { volume })?, options.json);
        }
    };
    say_done(
        &order(&mut client, VolumeRequest::Job { volume, deed, check: options.check })?,
        options.json,
    )
}

fn show(answer: VolumeAnswer, json: bool) -> Result<ExitCode> {
    let VolumeAnswer::Status { status } = answer else { return Err(unexpected(answer)) };
    let jobs: Vec<_> = status.job.iter().chain(&status.check).collect();
    if json {
        output::json(&jobs)?;
    } else {
        let mut lines: Vec<String> =
            jobs.iter().map(|job| status::job_line(&status.name, job)).collect();
        if lines.is_empty() {
            lines.push(format!("volume {}: no job", status.name));
        }
        let limit = status.job_speed.map(|bytes| size::rate(bytes as f64));
        lines.extend(limit.map(|limit| format!("jobs move at most {limit} (--speed)")));
        let target = status.job_latency.map(|micros| time::short(micros.saturating_mul(1000)));
        lines.extend(target.map(|target| {
            format!("jobs slow down while requests take longer than {target} (--latency)")
        }));
        output::line(lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
