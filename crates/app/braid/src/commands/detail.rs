//! `braid detail`: the state of a running array, in the words, order and columns of `mdadm --detail`. What braid has
//! to say beyond that comes after md's lines.

mod brief;
mod count;
mod text;

use crate::cli;
use crate::client::{Client, unexpected};
use crate::output;
use anyhow::Result;
use braid_control::protocol::{Answer, Detail, Request};
use std::process::ExitCode;

pub fn run(options: &cli::Detail) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
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
            output::line(if options.toml {
                brief::toml(detail)
            } else if options.export {
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
