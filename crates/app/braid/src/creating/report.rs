//! What is said of a new array, as text and as JSON.

use crate::output::{count, size};
use crate::settings::{ArraySettings, Assignment, list as list_of};
use braid_array::create::Created;
use braid_format::uuid_text;
use serde::Serialize;

/// What was, or would be, made, for people.
pub fn text(created: &Created, settings: &[Assignment], dry_run: bool) -> String {
    let mut lines = Vec::new();
    let done = if dry_run { "would be created (nothing was written)" } else { "created" };
    let size = match created.array_size {
        Some(bytes) => size::human(bytes),
        None => "size not known before all members are there".to_string(),
    };
    lines.push(format!("array {} {done}: {}, {size}", created.name, created.level));
    let mut shape = format!(
        "  {}, {}",
        count(created.raid_disks, "slot"),
        count(created.members.iter().filter(|member| member.slot.is_none()).count(), "spare")
    );
    if created.chunk_size > 0 {
        shape.push_str(&format!(", chunk {}", size::chunk(created.chunk_size)));
    }
    if let Some(layout) = &created.layout_name {
        shape.push_str(&format!(", layout {layout}"));
    }
    shape.push_str(&format!(", metadata {}", created.version));
    lines.push(shape);
    if let Some(first) = created.members.first() {
        let used = if created.component_size > 0 {
            format!(", {} used of each member", size::human(created.component_size))
        } else {
            String::new()
        };
        lines.push(format!("  data starts at {}{used}", size::human(first.data_offset)));
    }
    if let Some(journal) = &created.journal {
        lines.push(format!(
            "  write journal of {} on {}",
            size::human(journal.data_size),
            journal.name
        ));
    }
    if let Some(chunk) = created.bitmap_chunk {
        lines.push(format!("  write-intent bitmap, {} for each bit", size::chunk(chunk)));
    }
    if !settings.is_empty() {
        lines.push(format!("  {}, kept on this machine", list_of(settings)));
    }
    if !dry_run {
        lines.push(format!("  UUID {}", uuid_text::format(&created.uuid)));
    }
    if !created.missing.is_empty() {
        let slots: Vec<String> = created.missing.iter().map(usize::to_string).collect();
        lines.push(format!(
            "  {}: it starts degraded; `braid add` fills {}",
            match slots.as_slice() {
                [only] => format!("slot {only} is missing"),
                _ => format!("slots {} are missing", slots.join(", ")),
            },
            if slots.len() == 1 { "it" } else { "them" }
        ));
    }
    if created.needs_resync {
        lines.push(
            "  the first `braid serve` starts a resync in the background; the array can be used at once"
                .to_string(),
        );
    }
    lines.join("\n")
}

/// What was, or would be, made, for programs.
#[derive(Serialize)]
pub struct Report {
    dry_run: bool,
    name: String,
    uuid: Option<String>,
    level: String,
    layout: Option<String>,
    chunk_size: u64,
    component_size: u64,
    array_size: Option<u64>,
    metadata: String,
    raid_devices: usize,
    missing: Vec<usize>,
    needs_resync: bool,
    bitmap_chunk: Option<u64>,
    stripe_size: String,
    members: Vec<ReportMember>,
    journal: Option<ReportMember>,
}

#[derive(Serialize)]
struct ReportMember {
    name: String,
    slot: Option<usize>,
    data_offset: u64,
    data_size: u64,
}

impl Report {
    /// Of an array that was made, or planned.
    pub fn of(created: &Created, settings: &ArraySettings, dry_run: bool) -> Report {
        let member = |member: &braid_array::create::CreatedMember| ReportMember {
            name: member.name.clone(),
            slot: member.slot,
            data_offset: member.data_offset,
            data_size: member.data_size,
        };
        Report {
            dry_run,
            name: created.name.clone(),
            uuid: (!dry_run).then(|| uuid_text::format(&created.uuid)),
            level: created.level.to_string(),
            layout: created.layout_name.clone(),
            chunk_size: created.chunk_size,
            component_size: created.component_size,
            array_size: created.array_size,
            metadata: created.version.to_string(),
            raid_devices: created.raid_disks,
            missing: created.missing.clone(),
            needs_resync: created.needs_resync,
            bitmap_chunk: created.bitmap_chunk,
            stripe_size: settings.get("stripe_size"),
            members: created.members.iter().map(member).collect(),
            journal: created.journal.as_ref().map(member),
        }
    }
}
