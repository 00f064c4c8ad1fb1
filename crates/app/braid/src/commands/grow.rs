//! `braid grow`: another shape of a running array, other sizes, another consistency policy for it.

use super::done::say_done;
use crate::cli::Grow;
use crate::client::{Client, unexpected};
use crate::output;
use crate::protocol::{Answer, NewShape, Request, SizeOf};
use crate::wanted::array::{BitmapPlace, ConsistencyPolicy};
use crate::wanted::size::WantedSize;
use anyhow::{Result, bail};
use serde::Serialize;
use std::process::ExitCode;

pub fn run(options: Grow) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    if options.raid_devices.is_some() || options.chunk.is_some() || options.layout.is_some() {
        return reshape(&mut client, &options);
    }
    match (options.size, options.array_size) {
        (Some(size), _) => resize(&mut client, &options, SizeOf::Component, size),
        (_, Some(size)) => resize(&mut client, &options, SizeOf::Array, size),
        (None, None) => change_policy(&mut client, &options),
    }
}

fn resize(client: &mut Client, options: &Grow, what: SizeOf, size: WantedSize) -> Result<ExitCode> {
    let (array, dry_run) = (options.name.clone(), options.dry_run);
    let answer = client.ask(&Request::Resize { array, what, size: size.bytes(), dry_run })?;
    let Answer::Resized { text, report } = answer else { return Err(unexpected(&answer)) };
    say(options, &report, text)
}

fn reshape(client: &mut Client, options: &Grow) -> Result<ExitCode> {
    let (array, dry_run) = (options.name.clone(), options.dry_run);
    let shape = NewShape {
        raid_disks: options.raid_devices,
        chunk: options.chunk,
        layout: options.layout.clone(),
    };
    let answer = client.ask(&Request::Reshape { array, shape, dry_run })?;
    let Answer::Reshaping { text, report } = answer else { return Err(unexpected(&answer)) };
    say(options, &report, text)
}

/// Says what has been done, or would be: in numbers for scripts, in sentences for people.
fn say(options: &Grow, report: &impl Serialize, text: String) -> Result<ExitCode> {
    if options.json {
        output::json(report)?;
    } else {
        output::line(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn change_policy(client: &mut Client, options: &Grow) -> Result<ExitCode> {
    let (array, chunk) = (options.name.clone(), options.bitmap_chunk);
    let internal = options.bitmap == Some(BitmapPlace::Internal)
        || options.consistency_policy == Some(ConsistencyPolicy::Bitmap);
    if !internal && chunk.is_some() {
        bail!(
            "--bitmap-chunk is for a bitmap, and what is given with it contradicts that; leave one out"
        );
    }
    let request = match options.consistency_policy {
        Some(ConsistencyPolicy::Ppl) => Request::Ppl { array },
        Some(ConsistencyPolicy::Resync) => Request::Resync { array },
        Some(ConsistencyPolicy::Bitmap) | None => Request::Bitmap { array, internal, chunk },
    };
    say_done(&client.order(&request)?, options.json)
}
