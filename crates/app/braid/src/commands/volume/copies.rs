//! `braid volume copies`: the copies that files are to have, shown and set.

use super::asking::{ask, connect, unexpected, volume_of};
use super::follow;
use crate::cli::volume::Copies;
use crate::output;
use anyhow::Result;
use braid_control::protocol::volume::{
    CopiesDetail, FileName, VolumeAnswer, VolumeJob, VolumeRequest,
};
use std::process::ExitCode;

pub fn run(options: &Copies) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let (volume, below) = volume_of(&mut client, &options.name)?;
    let path = below.unwrap_or_else(|| "/".to_string());
    let file = FileName { typed: path.clone(), absolute: path };
    if let Some(copies) = options.copies {
        let job = VolumeJob::Copies { file, copies };
        return follow::start(&mut client, &volume, job, options.follow);
    }
    let copies = match ask(&mut client, VolumeRequest::Copies { volume: volume.clone(), file })? {
        VolumeAnswer::Copies { copies } => copies,
        other => return Err(unexpected(other)),
    };
    if options.follow.json {
        output::json(&copies)?;
    } else {
        output::line(text(&volume, &copies))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(volume: &str, detail: &CopiesDetail) -> String {
    let CopiesDetail { file, copies, volume_incomplete } = detail;
    let each = if *copies == 1 { "1 copy" } else { "copies" };
    let many = if *copies == 1 { String::new() } else { format!("{copies} ") };
    let mut said = format!("{file} of volume {volume} is to have {many}{each}");
    if *volume_incomplete {
        said.push_str(&format!(
            "; some files of the volume, this or others, have fewer than they are to have: `braid volume copies {volume}` with a number \
             makes them"
        ));
    }
    said
}
