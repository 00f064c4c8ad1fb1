//! `braid create`: looks, refuses, plans, writes.
//!
//! Everything that can be checked is checked before the first byte is written: the plan is made by
//! creating the array on stand-ins that have the members' sizes and hold nothing.

mod stand_in;

use crate::array_name::ROOM;
use crate::cli::{self, BitmapPlace, ConsistencyPolicy};
use crate::discover::{Found, look};
use crate::exit::FAILED;
use crate::members::{Member, parse_all};
use crate::memory::Memory;
use crate::on_shard;
use crate::output::{self, size, table};
use crate::settings::kept::Kept;
use crate::settings::{ArraySettings, Assignment, fit, list as list_of};
use anyhow::{Context, Result, anyhow, bail};
use braid_array::create::{Created, create};
use braid_array::options::{CreateBitmap, CreateOptions};
use braid_device::file::Mode;
use braid_device::{DeviceInfo, Opener};
use braid_format::signature::Signature;
use braid_format::uuid_text;
use braid_layout::layout_number;
use braid_shard::mailbox::Remote;
use rustix::fs::{OFlags, open};
use serde::Serialize;
use stand_in::StandIn;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

/// Members whose sizes differ by more than this part waste space worth a warning.
const SIZE_DIFFERENCE_PERCENT: u64 = 1;

/// A new array that can be made.
pub struct Plan {
    options: CreateOptions,
    members: Vec<Option<Member>>,
    openers: Vec<Option<Arc<dyn Opener>>>,
    found: Vec<Found>,
    /// The largest logical block of the members, in bytes.
    logical_block: u32,
    /// What making it will give, except for the UUIDs.
    pub planned: Created,
    /// What the user should know first.
    pub warnings: Vec<String>,
}

/// Why there is no plan.
pub enum Refusal {
    /// There is something on the members; the table says what.
    Occupied(String),
    /// Anything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Refusal {
        Refusal::Other(error)
    }
}

/// What is to be made of which members.
pub struct Wish<'a> {
    /// The array's name.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a cli::Shape,
    /// Its members, as typed.
    pub members: &'a [String],
    /// Overwrite what is on them.
    pub force: bool,
}

pub fn run(options: cli::Create) -> Result<ExitCode> {
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let wish = Wish {
        name: options.name.as_str(),
        shape: &options.shape,
        members: &options.members,
        force: options.shape.force,
    };
    let plan = match plan(home, &wish, !options.json) {
        Ok(plan) => plan,
        Err(Refusal::Occupied(why)) => {
            output::note(format!("braid: {why}"));
            return Ok(ExitCode::from(FAILED));
        }
        Err(Refusal::Other(error)) => return Err(error),
    };
    for warning in &plan.warnings {
        output::note(format!("warning: {warning}"));
    }
    let asked: Vec<Assignment> = options.stripe_size.iter().cloned().collect();
    let settings = ArraySettings::default().with(&asked)?;
    plan.check(&settings, u16::MAX, Memory::default().for_caches())?;
    let kept = Kept::new(options.state.state_dir.as_deref());
    let created = if options.dry_run {
        plan.planned
    } else {
        if !asked.is_empty() {
            kept.prepare()?;
        }
        let created = make(home, plan)?;
        kept.store(&created.uuid, &created.name, &settings).with_context(|| {
            let name = &created.name;
            format!(
                "array {name} was created; give {} to `braid set` when it runs",
                list_of(&asked)
            )
        })?;
        created
    };
    if options.json {
        output::json(&Report::of(&created, &settings, options.dry_run))?;
    } else {
        output::line(text(&created, &asked, options.dry_run))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the members and plans the array; with `show`, shows what was found on them.
///
/// # Errors
/// Members that are occupied or in use, a shape that cannot be.
pub fn plan(home: &Remote, wish: &Wish<'_>, show: bool) -> Result<Plan, Refusal> {
    let options = create_options(wish)?;
    let members = parse_all(wish.members, true)?;
    let mut found = Vec::new();
    for member in members.iter().flatten() {
        found.push(look(member)?);
    }
    if show && found.iter().any(|found| found.size > 0) {
        output::line(found_table(&found))?;
    }
    let in_use: Vec<&str> = found
        .iter()
        .filter(|found| found.in_use.is_some())
        .map(|found| found.name.as_str())
        .collect();
    if !in_use.is_empty() {
        return Err(Refusal::Other(anyhow!(
            "creating array {}: in use: {}; unmount or stop what uses it, or leave it out",
            wish.name,
            list(&found, |found| found.in_use.iter().cloned().collect())
        )));
    }
    if !wish.force && found.iter().any(|found| !found.is_free()) {
        return Err(Refusal::Occupied(occupied(wish.name, &found)));
    }
    let mut openers: Vec<Option<Arc<dyn Opener>>> = Vec::new();
    for member in &members {
        openers.push(match member {
            Some(member) => Some(member.prepare(Mode::ReadWrite).map_err(anyhow::Error::from)?),
            None => None,
        });
    }
    let infos = infos(home, &openers)?;
    let mut warnings: Vec<String> =
        openers.iter().flatten().flat_map(|opener| opener.notes()).collect();
    warnings.extend(sizes_differ(&options, &infos));
    let stand_ins: Vec<Option<Arc<dyn Opener>>> = infos
        .iter()
        .map(|info| info.clone().map(|info| Arc::new(StandIn::new(info)) as Arc<dyn Opener>))
        .collect();
    let logical_block = infos.iter().flatten().map(|info| info.logical_block).max().unwrap_or(0);
    let planned = write(home, stand_ins, options.clone())?;
    Ok(Plan { options, members, openers, found, logical_block, planned, warnings })
}

/// Writes what was planned.
///
/// # Errors
/// A member that fails.
pub fn make(home: &Remote, plan: Plan) -> Result<Created> {
    wipe(&plan)?;
    write(home, plan.openers, plan.options)
}

impl Plan {
    /// The members, opened.
    pub fn openers(&self) -> Vec<Option<Arc<dyn Opener>>> {
        self.openers.clone()
    }

    /// Whether settings suit the array, in a process with `shards` shards where caches may take `memory_max`
    /// bytes.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self, settings: &ArraySettings, shards: u16, memory_max: u64) -> Result<()> {
        settings.check()?;
        match fit::planned(&self.planned, self.logical_block) {
            Some(geometry) => settings
                .path
                .check(&geometry, shards, memory_max)
                .with_context(|| format!("creating array {}", self.planned.name)),
            None => Ok(()),
        }
    }
}

fn create_options(wish: &Wish<'_>) -> Result<CreateOptions> {
    let shape = wish.shape;
    let level = shape.level.context("the level is missing: --level linear, 0, 1, 4, 5, 6 or 10")?;
    let raid_disks = shape.raid_devices.with_context(|| {
        format!(
            "the number of slots is missing: --raid-devices N; {} members were given",
            wish.members.len()
        )
    })?;
    let layout = shape.layout.as_deref().map(|name| layout_number(level, name)).transpose()?;
    let name = shape.recorded_name.as_ref().map_or(wish.name, |name| name.as_str());
    Ok(CreateOptions {
        name: name.to_string(),
        homehost: homehost(shape.homehost.as_deref(), name)?,
        layout,
        chunk_size: shape.chunk,
        spares: shape.spare_devices,
        size: shape.size,
        data_offset: shape.data_offset,
        assume_clean: shape.assume_clean,
        bitmap: bitmap(shape)?,
        version: shape.metadata,
        ..CreateOptions::new(name, level, raid_disks)
    })
}

/// The bitmap that was asked for in one of several ways.
fn bitmap(shape: &cli::Shape) -> Result<CreateBitmap> {
    let chunk = shape.bitmap_chunk;
    Ok(match (shape.bitmap, shape.consistency_policy) {
        (Some(BitmapPlace::None), Some(ConsistencyPolicy::Bitmap))
        | (Some(BitmapPlace::Internal), Some(ConsistencyPolicy::Resync)) => {
            bail!("--bitmap and --consistency-policy contradict each other; leave one of them out")
        }
        (Some(BitmapPlace::None), _) | (_, Some(ConsistencyPolicy::Resync)) => {
            if chunk.is_some() {
                bail!(
                    "--bitmap-chunk is for a bitmap: give --bitmap internal with it, or leave it out"
                );
            }
            CreateBitmap::None
        }
        (None, None) if chunk.is_none() => CreateBitmap::Default,
        _ => CreateBitmap::Internal { chunk },
    })
}

/// The host to record: what was asked for, or this machine when there is room for it.
fn homehost(asked: Option<&str>, name: &str) -> Result<Option<String>> {
    match asked {
        Some("any" | "<none>" | "") => Ok(None),
        Some(host) if host.contains(':') || host.contains(char::is_control) => {
            bail!("--homehost {host:?}: it must not contain ':' or control characters")
        }
        Some(host) => Ok(Some(host.to_string())),
        None => {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy().into_owned();
            let fits =
                !host.is_empty() && !host.contains(':') && host.len() + 1 + name.len() <= ROOM;
            Ok(fits.then_some(host))
        }
    }
}

fn infos(home: &Remote, openers: &[Option<Arc<dyn Opener>>]) -> Result<Vec<Option<DeviceInfo>>> {
    let openers = openers.to_vec();
    on_shard::run(home, move |shard| async move {
        let mut infos = Vec::new();
        for opener in &openers {
            infos.push(match opener {
                Some(opener) => {
                    let info = opener.open(&shard)?.info().clone();
                    Some(DeviceInfo { name: opener.name().to_string(), ..info })
                }
                None => None,
            });
        }
        Ok::<_, braid_device::OpenError>(infos)
    })?
    .map_err(Into::into)
}

fn write(
    home: &Remote,
    openers: Vec<Option<Arc<dyn Opener>>>,
    options: CreateOptions,
) -> Result<Created> {
    let remotes = vec![home.clone()];
    let created = on_shard::run(home, move |shard| async move {
        create(&on_shard::context(&shard, &remotes), openers, options).await
    })?;
    Ok(created?)
}

/// Overwrites the signatures that would stand beside the new superblock and confuse whoever looks at
/// the device next. Those in the data area are data: `--assume-clean` may be there to keep it.
fn wipe(plan: &Plan) -> Result<()> {
    for found in &plan.found {
        let place = plan.planned.members.iter().find(|member| member.name == found.name);
        let path = plan.members.iter().flatten().find(|member| member.name == found.name);
        let (Some(place), Some(path)) = (place, path.and_then(Member::path)) else { continue };
        let outside = |signature: &&Signature| {
            let end = signature.at.saturating_add(signature.len);
            let data_end = place.data_offset.saturating_add(place.data_size);
            end <= place.data_offset || signature.at >= data_end
        };
        let signatures: Vec<&Signature> = found.signatures.iter().filter(outside).collect();
        if signatures.is_empty() {
            continue;
        }
        let doing = || format!("removing what was on {}", path.display());
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file: File =
            open(path, flags, rustix::fs::Mode::empty()).map(File::from).with_context(doing)?;
        for signature in signatures {
            let len = usize::try_from(signature.len).with_context(doing)?;
            file.write_all_at(&vec![0; len], signature.at).with_context(doing)?;
        }
        file.sync_all().with_context(doing)?;
    }
    Ok(())
}

fn sizes_differ(options: &CreateOptions, infos: &[Option<DeviceInfo>]) -> Option<String> {
    if options.level.uses_member_sizes() || options.size.is_some() {
        return None;
    }
    let sizes = || infos.iter().flatten().map(|info| (info.size, &info.name));
    let ((least, small), (most, large)) = (sizes().min()?, sizes().max()?);
    // Subtraction cannot go below zero: `least` is the smaller one.
    let differ =
        u128::from(most - least) * 100 > u128::from(most) * u128::from(SIZE_DIFFERENCE_PERCENT);
    differ.then(|| {
        format!(
            "{large} has {} and {small} has {}: only as much as the smallest has is used of each",
            size::human(most),
            size::human(least)
        )
    })
}

fn found_table(found: &[Found]) -> String {
    let mut table = table::table(&["Member", "Size", "Found on it"]);
    for found in found {
        let lines = found.lines();
        let what = if lines.is_empty() { "nothing".to_string() } else { lines.join("\n") };
        table.add_row([found.name.clone(), size::human(found.size), what]);
    }
    table::align_right(&mut table, &[1]);
    table::text(&table)
}

fn occupied(name: &str, found: &[Found]) -> String {
    let mut text = format!(
        "creating array {name}: refused, because it would destroy what is on: {}",
        list(found, Found::lines)
    );
    let raid = |signature: &Signature| signature.kind == "linux_raid_member";
    if found.iter().any(|found| found.signatures.iter().any(raid)) {
        text.push_str(
            "\nTo run the array that is there: braid serve MEMBER… --nbd unix:PATH (braid examine shows it). \
             Creating over it loses its data.",
        );
    }
    text.push_str("\nIf nothing of it is needed any more: --force");
    text
}

fn list(found: &[Found], what: impl Fn(&Found) -> Vec<String>) -> String {
    let line = |found: &Found| format!("\n  {}: {}", found.name, what(found).join("; "));
    found.iter().filter(|found| !what(found).is_empty()).map(line).collect()
}

fn text(created: &Created, settings: &[Assignment], dry_run: bool) -> String {
    let mut lines = Vec::new();
    let done = if dry_run { "would be created (nothing was written)" } else { "created" };
    let size = match created.array_size {
        Some(bytes) => size::human(bytes),
        None => "size not known before all members are there".to_string(),
    };
    lines.push(format!("array {} {done}: {}, {size}", created.name, created.level));
    let mut shape = format!(
        "  {} slots, {} spares",
        created.raid_disks,
        created.members.iter().filter(|member| member.slot.is_none()).count()
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
            "  slots {} are missing: it starts degraded; `braid add` fills them",
            slots.join(", ")
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

#[derive(Serialize)]
struct Report {
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
}

#[derive(Serialize)]
struct ReportMember {
    name: String,
    slot: Option<usize>,
    data_offset: u64,
    data_size: u64,
}

impl Report {
    fn of(created: &Created, settings: &ArraySettings, dry_run: bool) -> Report {
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
        }
    }
}
