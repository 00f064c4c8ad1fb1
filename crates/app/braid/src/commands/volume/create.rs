//! `braid volume create`: makes a volume in this process; over running arrays, has the server do it that runs them, and
//! over exports of other servers the one that runs here, since that knows which of them it uses itself.

use super::asking::{ask, connect, unexpected};
use crate::cli::volume::Create;
use crate::client::{Client, member_argument, member_arguments};
use crate::on_shard;
use crate::output::{self, size, table};
use crate::settings::kept::Kept;
use crate::volumes::creating::{self, Wish};
use anyhow::{Context, Result, bail};
use braid_array::stacking;
use braid_control::protocol::volume::{CreatedVolume, VolumeAnswer, VolumeRequest};
use braid_nbd::ExportUri;
use std::process::ExitCode;

pub fn run(options: Create) -> Result<ExitCode> {
    let bricks: Vec<String> = member_arguments(&options.bricks, &[])?;
    if let Some(memory) =
        bricks.iter().find(|brick| ["ram:", "model:"].iter().any(|kind| brick.starts_with(kind)))
    {
        bail!(
            "brick {memory} would be gone when this command ends; to try a volume out: `braid volume mount {} DIR \
             --create {}`",
            options.name,
            bricks.join(" ")
        );
    }
    let mut new = options.new.clone();
    let domains = new.domains.iter_mut().map(|(brick, _)| brick);
    for brick in new.weights.iter_mut().map(|(brick, _)| brick).chain(domains) {
        *brick = member_argument(brick)?;
    }
    let name = options.name.as_str().to_string();
    let is_server_s = |brick: &String| {
        brick.starts_with(stacking::PREFIX)
            || ExportUri::is_meant(brick) && Client::is_listening(&options.control.path())
    };
    let created = if bricks.iter().any(is_server_s) {
        let request = VolumeRequest::Create { name, bricks, new, dry_run: options.dry_run };
        match ask(&mut connect(&options.control)?, request)? {
            VolumeAnswer::Created { created } => created,
            other => return Err(unexpected(other)),
        }
    } else {
        let shards = on_shard::start_shards(1)?;
        let home = shards.remotes().first().context("one shard was started")?;
        let kept = Kept::new(options.state.state_dir.as_deref());
        let wish = Wish { name: &name, bricks: &bricks, new: &new, dry_run: options.dry_run };
        creating::create_here(home, &wish, &kept)?
    };
    if options.json {
        output::json(&created)?;
    } else {
        output::line(text(&created, options.dry_run))?;
        created.notes.iter().for_each(|note| output::note(format!("note: {note}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(created: &CreatedVolume, dry_run: bool) -> String {
    let mut lines: Vec<String> = created.found.iter().cloned().collect();
    let CreatedVolume { name, uuid, .. } = created;
    lines.push(if dry_run {
        format!("volume {name} would be made; nothing was written")
    } else {
        format!("volume {name} ({uuid}) was made")
    });
    let mut table = table::table(&["Id", "Brick", "Weight", "Data", "Metadata"]);
    for brick in &created.bricks {
        let metadata = match brick.metadata {
            0 => "-".to_string(),
            bytes => size::human(bytes),
        };
        table.add_row([
            brick.id.to_string(),
            brick.name.clone(),
            brick.weight.to_string(),
            size::human(brick.data),
            metadata,
        ]);
    }
    table::align_right(&mut table, &[0, 2, 3, 4]);
    lines.push(table::text(&table));
    let checksums = if created.checksums { "with checksums" } else { "no checksums" };
    let copies = match created.copies {
        0 | 1 => String::new(),
        copies => format!(", {copies} copies of each file"),
    };
    lines.push(format!("  stripe {}, {checksums}{copies}", size::human(created.stripe)));
    if !dry_run {
        lines.push(format!("  `braid volume mount {name} DIR` mounts it"));
    }
    lines.join("\n")
}
