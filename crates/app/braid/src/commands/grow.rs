//! `braid grow`: more members of a running array, other sizes, a bitmap for it, or none any more.

use super::done::say_done;
use crate::cli::Grow;
use crate::client::{Client, unexpected};
use crate::output;
use crate::protocol::{Answer, Request, SizeOf};
use crate::wanted::array::BitmapPlace;
use crate::wanted::size::WantedSize;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub fn run(options: Grow) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    if let Some(raid_disks) = options.raid_devices {
        return reshape(&mut client, &options, raid_disks);
    }
    match (options.size, options.array_size, options.bitmap) {
        (Some(size), ..) => resize(&mut client, &options, SizeOf::Component, size),
        (_, Some(size), _) => resize(&mut client, &options, SizeOf::Array, size),
        (_, _, Some(place)) => change_bitmap(&mut client, &options, place),
        (None, None, None) => {
            bail!("say what to change: --raid-devices, --size, --array-size or --bitmap")
        }
    }
}

fn resize(client: &mut Client, options: &Grow, what: SizeOf, size: WantedSize) -> Result<ExitCode> {
    let (array, dry_run) = (options.name.clone(), options.dry_run);
    let answer = client.ask(&Request::Resize { array, what, size: size.bytes(), dry_run })?;
    let Answer::Resized { text, report } = answer else { return Err(unexpected(&answer)) };
    if options.json {
        output::json(&report)?;
    } else {
        output::line(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn reshape(client: &mut Client, options: &Grow, raid_disks: usize) -> Result<ExitCode> {
    let (array, dry_run) = (options.name.clone(), options.dry_run);
    let answer = client.ask(&Request::Reshape { array, raid_disks, dry_run })?;
    let Answer::Reshaping { text, report } = answer else { return Err(unexpected(&answer)) };
    if options.json {
        output::json(&report)?;
    } else {
        output::line(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn change_bitmap(client: &mut Client, options: &Grow, place: BitmapPlace) -> Result<ExitCode> {
    let internal = place == BitmapPlace::Internal;
    let chunk = options.bitmap_chunk;
    if !internal && chunk.is_some() {
        bail!("--bitmap none and --bitmap-chunk contradict each other; leave one out");
    }
    let request = Request::Bitmap { array: options.name.clone(), internal, chunk };
    say_done(&client.order(&request)?, options.json)
}
