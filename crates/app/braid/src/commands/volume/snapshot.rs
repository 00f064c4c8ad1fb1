//! `braid volume snapshot`: snapshots of folders made, listed and removed.

use super::asking::{ask, connect, order, unexpected, volume_of};
use crate::cli::volume::Snapshot;
use crate::commands::done::say_done;
use crate::output::{self, table, time};
use anyhow::{Result, bail};
use braid_control::protocol::volume::{FileName, SnapshotDetail, VolumeAnswer, VolumeRequest};
use std::path::Path;
use std::process::ExitCode;

pub fn run(options: &Snapshot) -> Result<ExitCode> {
    let (typed, json) = (&options.path, options.json);
    if let (Some(name), true) = (&options.name, options.remove)
        && !options.yes
        && !options.dry_run
    {
        bail!(
            "removing snapshot {name} of {typed}: files that are in it alone are lost; --yes does it, --dry-run only says \
             whether it could be done"
        );
    }
    let mut client = connect(&options.control)?;
    let (volume, below) = volume_of(&mut client, typed)?;
    let path = below.unwrap_or_else(|| "/".to_string());
    let Some(name) = options.name.clone() else {
        return list(&mut client, volume, &path, json);
    };
    let folder = FileName { typed: path.clone(), absolute: path };
    let request = match options.remove {
        true => VolumeRequest::RemoveSnapshot { volume, folder, name, dry_run: options.dry_run },
        false => VolumeRequest::Snapshot { volume, folder, name },
    };
    say_done(&order(&mut client, request)?, json)
}

/// Lists the snapshots of a folder and of those below it.
fn list(
    client: &mut crate::client::Client,
    volume: String,
    path: &str,
    json: bool,
) -> Result<ExitCode> {
    let mut snapshots = match ask(client, VolumeRequest::Snapshots { volume: volume.clone() })? {
        VolumeAnswer::Snapshots { snapshots } => snapshots,
        other => return Err(unexpected(other)),
    };
    if path != "/" {
        let is_below = |folder: &String| Path::new(folder).starts_with(path);
        snapshots.retain(|one| one.folder.as_ref().is_some_and(is_below));
    }
    if json {
        output::json(&snapshots)?;
    } else if snapshots.is_empty() {
        let of = if path == "/" { String::new() } else { format!("{path} of ") };
        output::line(format!(
            "{of}volume {volume} has no snapshots; `braid volume snapshot FOLDER NAME` makes one"
        ))?;
    } else {
        output::line(text(&snapshots))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(snapshots: &[SnapshotDetail]) -> String {
    let mut table = table::table(&["Folder", "Snapshot", "Made", "Read it at"]);
    for one in snapshots {
        let place = match (&one.path, one.removing) {
            (_, true) => "being removed".to_string(),
            (Some(path), false) => path.clone(),
            (None, false) => "nowhere: the folder is gone".to_string(),
        };
        table.add_row([
            one.folder.clone().unwrap_or_else(|| "–".to_string()),
            one.name.clone(),
            time::local(u64::try_from(one.created).unwrap_or(0)),
            place,
        ]);
    }
    table::text(&table)
}
