//! `braid volume list`: the volumes that are mounted, and those that this machine has made or mounted before.

use super::asking::mounted;
use crate::cli::volume::List;
use crate::output::{self, size, table};
use crate::settings::kept::Kept;
use crate::volumes::kept;
use anyhow::Result;
use braid_control::protocol::volume::ListedVolume;
use std::path::Path;
use std::process::ExitCode;

pub fn run(options: &List) -> Result<ExitCode> {
    let mut volumes = mounted(&options.control)?;
    for known in kept::all(&Kept::new(options.state.state_dir.as_deref())) {
        if !volumes.iter().any(|volume| volume.uuid == known.uuid) {
            let (name, uuid, bricks) = (known.name, known.uuid, known.bricks);
            let is_path = |brick: &&String| brick.starts_with('/');
            let gone = bricks.iter().all(|brick| is_path(&brick) && !Path::new(brick).exists());
            let state = match gone {
                true => {
                    "its bricks are gone; `braid volume forget` takes it off this list".to_string()
                }
                false => "not mounted".to_string(),
            };
            volumes.push(ListedVolume { name, uuid, bricks, state, ..ListedVolume::default() });
        }
    }
    if options.json {
        output::json(&volumes)?;
    } else if volumes.is_empty() {
        output::line("no volume is known here; `braid volume create NAME BRICK…` makes one")?;
    } else {
        output::line(text(&volumes))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(volumes: &[ListedVolume]) -> String {
    let mut table =
        table::table(&["Volume", "State", "Mounted at", "Size", "Used", "UUID", "Bricks"]);
    for volume in volumes {
        let mounted = volume.dir.is_some();
        let bytes = |bytes| if mounted { size::human(bytes) } else { String::new() };
        table.add_row([
            volume.name.clone(),
            volume.state.clone(),
            volume.dir.clone().unwrap_or_default(),
            bytes(volume.size),
            bytes(volume.used),
            volume.uuid.clone(),
            volume.bricks.join(" "),
        ]);
    }
    table::align_right(&mut table, &[3, 4]);
    table::text(&table)
}
