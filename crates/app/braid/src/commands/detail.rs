//! `braid detail`: the state of a running array, in the words, order and columns of `mdadm --detail`. What braid has
//! to say beyond that comes after md's lines.

mod brief;
mod count;
mod text;

use crate::cli;
use crate::client::{Client, unexpected};
use crate::output;
use anyhow::Result;
use braid_control::protocol::volume::{ListedVolume, VolumeAnswer, VolumeRequest};
use braid_control::protocol::{Answer, Detail, Request};
use std::process::ExitCode;

pub fn run(options: &cli::Detail) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    if options.toml {
        return toml(&mut client, options);
    }
    let names = match &options.name {
        Some(name) => vec![name.clone()],
        None => match client.ask(&Request::List)? {
            Answer::List { arrays } => arrays.into_iter().map(|array| array.uuid).collect(),
            other => return Err(unexpected(&other)),
        },
    };
    let mut details = Vec::new();
    for name in &names {
        details.push(client.detail(Some(name))?);
    }
    if options.json {
        match (&options.name, details.first()) {
            (Some(_), Some(detail)) => output::json(detail)?,
            _ => output::json(&details)?,
        }
    } else {
        for detail in &details {
            output::line(if options.export {
                brief::export(detail)
            } else if options.brief || options.scan {
                brief::lines(detail, options.verbose)
            } else {
                text::text(detail)
            })?;
        }
    }
    let worst = details.iter().map(Detail::exit_code).max().unwrap_or(0);
    Ok(ExitCode::from(if options.test { worst } else { 0 }))
}

/// Entries of arrays, and of volumes.
fn toml(client: &mut Client, options: &cli::Detail) -> Result<ExitCode> {
    let volumes = match client.ask_volume(VolumeRequest::List)? {
        VolumeAnswer::List { volumes } => volumes,
        volume => return Err(unexpected(&Answer::Volume { volume })),
    };
    let is = |volume: &&ListedVolume| {
        let named = |name: &String| *name == volume.name || *name == volume.uuid;
        options.name.as_ref().is_none_or(named)
    };
    let volumes: Vec<&ListedVolume> = volumes.iter().filter(is).collect();
    let mut worst = 0;
    let names = match &options.name {
        Some(_) if !volumes.is_empty() => Vec::new(),
        Some(name) => vec![name.clone()],
        None => match client.ask(&Request::List)? {
            Answer::List { arrays } => arrays.into_iter().map(|array| array.uuid).collect(),
            other => return Err(unexpected(&other)),
        },
    };
    for name in &names {
        let detail = client.detail(Some(name))?;
        worst = worst.max(detail.exit_code());
        output::line(brief::toml(&detail))?;
    }
    for volume in volumes {
        let request = VolumeRequest::Status { volume: Some(volume.uuid.clone()) };
        match client.ask_volume(request)? {
            VolumeAnswer::Status { status } => output::line(brief::volume_toml(&status))?,
            volume => return Err(unexpected(&Answer::Volume { volume })),
        }
    }
    Ok(ExitCode::from(if options.test { worst } else { 0 }))
}
