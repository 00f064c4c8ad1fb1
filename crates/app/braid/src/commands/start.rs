//! `braid start`, and `braid assemble --scan`: arrays are started in a server that runs already.

use crate::cli::Start;
use crate::client::{Client, member_argument, unexpected};
use crate::exit::FAILED;
use crate::output;
use anyhow::Result;
use braid_control::protocol::{Answer, Request};
use std::path::Path;
use std::process::ExitCode;

pub fn run(options: Start) -> Result<ExitCode> {
    let (mut members, mut arrays) = (Vec::new(), Vec::new());
    for word in options.words {
        match word.contains('/') || Path::new(&word).exists() {
            true => members.push(member_argument(&word)?),
            false => arrays.push(word),
        }
    }
    let Start { scan, run, force, json, control, .. } = options;
    let request = Request::Start { members, arrays, scan, run, force };
    let answer = Client::connect(&control.path())?.ask(&request)?;
    let Answer::Started { done, waiting } = &answer else { return Err(unexpected(&answer)) };
    if json {
        output::json(&answer)?;
    } else {
        done.iter().try_for_each(output::line)?;
        if done.is_empty() && waiting.is_empty() {
            output::line("nothing was found that does not run already")?;
        }
    }
    for why in waiting {
        output::note(format!("braid: {why}"));
    }
    Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
