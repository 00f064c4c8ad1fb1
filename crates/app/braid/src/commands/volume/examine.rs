//! `braid volume examine`: what the superblocks of bricks say.

use crate::cli::volume::Examine;
use crate::exit::UNREADABLE;
use crate::output::{self, size, time};
use crate::volumes::examining;
use anyhow::Result;
use braid_control::wanted::weight;
use braid_format::brick::{Area, BLOCK, BrickSuperblock, MetadataState};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use uuid::Uuid;

pub fn run(options: &Examine) -> Result<ExitCode> {
    let mut code = 0;
    let mut reports = Vec::new();
    for path in &options.bricks {
        match examining::read(path) {
            Ok(read) => {
                for note in &read.notes {
                    output::note(format!("note: {}: {note}", path.display()));
                }
                reports.push(Report::of(path, &read.superblock));
            }
            Err(error) => {
                code = UNREADABLE;
                output::note(format!(
                    "braid: {}: {error}",
                    path.display(),
                    error = crate::output::said(&error)
                ));
            }
        }
    }
    if options.json {
        output::json(&reports)?;
    } else {
        reports.iter().try_for_each(|report| output::line(report.text()))?;
    }
    Ok(ExitCode::from(code))
}

/// A superblock as it is shown; sizes in bytes, times in seconds since 1970.
#[derive(Serialize)]
struct Report {
    brick: String,
    volume: String,
    volume_uuid: String,
    brick_uuid: String,
    id: u16,
    bricks: u16,
    state: String,
    weight: f64,
    generation: u64,
    stripe: u32,
    size: u64,
    metadata: &'static str,
    metadata_generation: u64,
    metadata_offset: u64,
    metadata_size: u64,
    /// The three bricks with the metadata of which two decide; empty where fewer have it.
    metadata_holders: Vec<u16>,
    data_offset: u64,
    data_size: u64,
    created: u64,
    updated: u64,
}

impl Report {
    fn of(path: &Path, superblock: &BrickSuperblock) -> Report {
        let seconds = |nanos: u64| nanos / 1_000_000_000;
        Report {
            brick: path.display().to_string(),
            volume: superblock.volume_name.as_str().to_string(),
            volume_uuid: Uuid::from_bytes(superblock.volume_uuid).to_string(),
            brick_uuid: Uuid::from_bytes(superblock.brick_uuid).to_string(),
            id: superblock.brick_id,
            bricks: superblock.brick_count,
            state: superblock.state.to_string(),
            weight: weight::shown(superblock.weight, superblock.data.len / BLOCK),
            generation: superblock.generation,
            stripe: superblock.stripe_size,
            size: superblock.brick_size,
            metadata: match superblock.metadata_state {
                MetadataState::Unused => "unused",
                MetadataState::InSync => "in sync",
                MetadataState::OutOfSync => "out of sync",
            },
            metadata_generation: superblock.metadata_generation,
            metadata_offset: superblock.metadata.offset,
            metadata_size: superblock.metadata.len,
            metadata_holders: superblock.metadata_holders.clone(),
            data_offset: superblock.data.offset,
            data_size: superblock.data.len,
            created: seconds(superblock.created),
            updated: seconds(superblock.updated),
        }
    }

    fn text(&self) -> String {
        let area = |offset, len| match (Area { offset, len }) {
            Area { len: 0, .. } => "none".to_string(),
            Area { offset, len } => format!("{} at byte {offset}", size::human(len)),
        };
        let holders: Vec<String> = self.metadata_holders.iter().map(u16::to_string).collect();
        let holders = match holders.is_empty() {
            true => "not told, fewer than three".to_string(),
            false => format!("{}; two of them decide", holders.join(", ")),
        };
        let rows = [
            ("Volume", self.volume.clone()),
            ("Volume UUID", self.volume_uuid.clone()),
            ("Brick UUID", self.brick_uuid.clone()),
            ("Brick", format!("{} of {}", self.id, self.bricks)),
            ("State", self.state.clone()),
            ("Weight", self.weight.to_string()),
            ("Generation", self.generation.to_string()),
            ("Stripe", size::human(u64::from(self.stripe))),
            ("Size", size::human(self.size)),
            (
                "Metadata",
                format!("{}, {}", area(self.metadata_offset, self.metadata_size), self.metadata),
            ),
            ("Metadata on", holders),
            ("Data", area(self.data_offset, self.data_size)),
            ("Created", time::local(self.created)),
            ("Updated", time::local(self.updated)),
        ];
        let lines = rows.iter().map(|(name, value)| format!("{name:>14} : {value}"));
        std::iter::once(format!("{}:", self.brick)).chain(lines).collect::<Vec<_>>().join("\n")
    }
}
