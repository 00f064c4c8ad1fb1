//! `braid grow`: another shape of a running array, other sizes, another consistency policy for it.

use super::done::say_done;
use crate::cli::Grow;
use crate::client::{Client, unexpected};
use crate::output;
use anyhow::{Context, Result, bail};
use braid_control::protocol::{Answer, NewShape, Request, SizeOf};
use braid_control::wanted::array::{BitmapPlace, ConsistencyPolicy};
use braid_control::wanted::size::WantedSize;
use braid_layout::Level;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

pub fn run(options: Grow) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    if let Some(file) = &options.backup_file {
        backup_not_needed(file)?;
    }
    if let Some(level) = options.level {
        return change_level(&mut client, &options, level);
    }
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

/// The shape, as it was typed.
fn shape(options: &Grow) -> NewShape {
    NewShape {
        raid_disks: options.raid_devices,
        chunk: options.chunk,
        layout: options.layout.clone(),
    }
}

fn change_level(client: &mut Client, options: &Grow, level: Level) -> Result<ExitCode> {
    let (array, dry_run) = (options.name.clone(), options.dry_run);
    let answer = client.ask(&Request::Level { array, level, shape: shape(options), dry_run })?;
    say_shape(options, answer)
}

fn say_shape(options: &Grow, answer: Answer) -> Result<ExitCode> {
    match answer {
        Answer::Relevelling { text, report } => say(options, &report, text),
        Answer::LevelSteps { text, report } => say(options, &report, text),
        Answer::Reshaping { text, report } => say(options, &report, text),
        other => Err(unexpected(&other)),
    }
}

/// The major number of network block devices, on which a served array is seen (`Documentation/admin-guide/devices.txt`).
const NBD_MAJOR: u64 = 43;

/// Refuses a backup file that may lie on an array of a server; another is not needed.
fn backup_not_needed(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let found = std::fs::metadata(folder)
        .with_context(|| format!("looking for the folder of the backup file {}", file.display()))?;
    if found.dev() >> 8 & 0xfff == NBD_MAJOR {
        bail!(
            "the backup file {} lies on a network block device, which may be the array itself; braid needs none, so leave \
             --backup-file out",
            file.display()
        );
    }
    output::note(format!(
        "{} is not written: the data moves to a place beside the old one, so that no backup file is needed",
        file.display()
    ));
    Ok(())
}

fn reshape(client: &mut Client, options: &Grow) -> Result<ExitCode> {
    let (array, dry_run, shape) = (options.name.clone(), options.dry_run, shape(options));
    let answer = client.ask(&Request::Reshape { array, shape, dry_run })?;
    say_shape(options, answer)
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
