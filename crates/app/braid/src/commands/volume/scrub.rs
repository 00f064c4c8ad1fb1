//! `braid volume scrub`: all data is read and held against its checksums.

use super::asking::{ask, connect, order, unexpected};
use super::check::{only_or_named, show};
use super::follow;
use crate::cli::volume::Scrub;
use crate::commands::done::say_done;
use anyhow::Result;
use braid_control::protocol::volume::{VolumeAnswer, VolumeJob, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: Scrub) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = only_or_named(&mut client, options.name.as_deref())?;
    let json = options.follow.json;
    if !options.last {
        let start = VolumeRequest::Start { volume: volume.clone(), job: VolumeJob::Scrub };
        let started = order(&mut client, start)?;
        if options.follow.detach {
            return say_done(&started, json);
        }
        follow::until_end(&mut client, Some(&volume), true, json)?;
    }
    let answer = ask(&mut client, VolumeRequest::LastCheck { volume })?;
    let VolumeAnswer::Check { report } = answer else { return Err(unexpected(answer)) };
    show(&report, false, json)
}
