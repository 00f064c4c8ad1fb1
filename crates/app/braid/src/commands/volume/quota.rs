//! `braid volume quota`: limits of folders, shown and set.

use super::asking::{ask, connect, file_name, order, unexpected, volume_of};
use crate::cli::volume::Quota;
use crate::client::Client;
use crate::commands::done::say_done;
use crate::output::{self, size, table};
use anyhow::{Result, bail};
use braid_control::protocol::volume::{ListedVolume, QuotaDetail, VolumeAnswer, VolumeRequest};
use std::process::ExitCode;

pub fn run(options: &Quota) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let (volume, below) = volume_of(&mut client, &options.name)?;
    let (bytes, files, remove) = (options.limit, options.files, options.none);
    if bytes.is_some() || files.is_some() || remove {
        let folder = file_name(&options.name)?;
        if let (None, Some(dir)) = (&below, dir_of(&mut client, &volume)?) {
            bail!(
                "volume {volume} itself has the size of its bricks: a limit is for a folder in it, as in `braid volume quota \
                 {dir}/FOLDER --limit 10G`"
            );
        }
        let request = VolumeRequest::Quota { volume, folder, bytes, files, remove };
        return say_done(&order(&mut client, request)?, options.json);
    }
    let request = VolumeRequest::Quotas { volume: volume.clone(), folder: below.clone() };
    let quotas = match ask(&mut client, request)? {
        VolumeAnswer::Quotas { quotas } => quotas,
        other => return Err(unexpected(other)),
    };
    if options.json {
        output::json(&quotas)?;
    } else if quotas.is_empty() {
        let whose = below.map_or_else(
            || format!("volume {volume} has no limits"),
            |below| format!("{below} of volume {volume} has no limit"),
        );
        output::line(format!("{whose}; `braid volume quota FOLDER --limit SIZE` sets one"))?;
    } else {
        output::line(text(&quotas))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the volume is mounted.
fn dir_of(client: &mut Client, volume: &str) -> Result<Option<String>> {
    match ask(client, VolumeRequest::List)? {
        VolumeAnswer::List { volumes } => {
            let is = |one: &ListedVolume| one.name == volume || one.uuid == volume;
            Ok(volumes.into_iter().find(is).and_then(|one| one.dir))
        }
        other => Err(unexpected(other)),
    }
}

fn text(quotas: &[QuotaDetail]) -> String {
    let mut table = table::table(&["Folder", "Used", "Limit", "Files", "Limit", "Project"]);
    for one in quotas {
        let counting = if one.counting { " (still being counted)" } else { "" };
        let folder = one.folder.as_deref().unwrap_or("–");
        let most = |limit: Option<String>| limit.unwrap_or_else(|| "none".to_string());
        table.add_row([
            format!("{folder}{counting}"),
            size::human(one.used),
            most(one.limit.map(size::human)),
            one.files.to_string(),
            most(one.files_limit.map(|files| files.to_string())),
            one.project.to_string(),
        ]);
    }
    table::align_right(&mut table, &[1, 2, 3, 4, 5]);
    table::text(&table)
}
