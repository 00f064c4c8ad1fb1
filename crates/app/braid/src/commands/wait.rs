//! `braid wait`: until no job is running, with progress.

use crate::cli::Wait;
use crate::client::Client;
use crate::output;
use crate::output::progress::Progress;
use anyhow::{Result, bail};
use braid_control::protocol::Answer;
use std::process::ExitCode;

pub fn run(options: &Wait) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let mut progress = Progress::new(options.json);
    let mut waited = false;
    let (last, detail) = client.wait(options.name.as_deref(), &mut |job| {
        waited = true;
        progress.show(job)
    })?;
    if let Some(done) = progress.finish() {
        output::note(done);
    }
    let failed = last.as_ref().filter(|job| waited && job.outcome == "failed").cloned();
    let code = if options.test { detail.exit_code() } else { 0 };
    let nothing = if waited { "" } else { "; nothing was running" };
    let line = format!("array {} is idle: {}{nothing}", detail.name, detail.state);
    if options.json {
        output::json_line(&Answer::Idle { last, detail: Box::new(detail) })?;
    } else {
        output::line(line)?;
    }
    if let Some(job) = failed {
        bail!("the {} failed: {}", job.kind, job.error.unwrap_or_default());
    }
    Ok(ExitCode::from(code))
}
