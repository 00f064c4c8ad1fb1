//! Making a new array: what is on the members is looked at, refused or planned, and written.
//!
//! Everything that can be checked is checked before the first byte is written: the plan is made by
//! creating the array on stand-ins that have the members' sizes and hold nothing.
//!
//! Does not know whether a command or a running server does it.

pub mod report;
mod stand_in;

use crate::discover::{Found, look_again, look_at};
use crate::members::Member;
use crate::on_shard;
use crate::output::{size, table};
use crate::settings::{ArraySettings, fit};
use anyhow::{Context, Result, anyhow, bail};
use braid_array::create::{Created, create};
use braid_array::options::{CreateBitmap, CreateOptions};
use braid_array::state::flags::MemberFlags;
use braid_control::array_name::ROOM;
use braid_control::wanted::array::{BitmapPlace, ConsistencyPolicy, Shape};
use braid_device::file::Mode;
use braid_device::{DeviceInfo, IoSets, Op, Opener, Request};
use braid_format::signature::Signature;
use braid_layout::{Level, layout_number};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use stand_in::StandIn;
use std::ops::Range;
use std::sync::Arc;

/// Members whose sizes differ by more than this part waste space worth a warning.
const SIZE_DIFFERENCE_PERCENT: u64 = 1;

/// A new array that can be made.
pub struct Plan {
    options: CreateOptions,
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
    pub shape: &'a Shape,
    /// Its members; `None` is one that is missing.
    pub members: &'a [Option<Member>],
    /// Flags of the members, in their order; those beyond the end have none.
    pub flags: &'a [MemberFlags],
    /// Overwrite what is on them.
    pub force: bool,
}

/// Looks at the members, locks them and plans the array; `show` gets what was found on them, as a table. [`make`] looks
/// at them again.
///
/// # Errors
/// Members that are occupied or in use, a shape that cannot be.
pub fn plan(
    home: &Remote,
    wish: &Wish<'_>,
    show: &mut dyn FnMut(String) -> Result<()>,
) -> Result<Plan, Refusal> {
    let options = create_options(wish)?;
    let found = look_at_all(home, wish, show)?;
    lock(home, wish, options, found)
}

/// What is on the members, when nobody uses them and nothing on them is wanted. They may change until they are locked.
fn look_at_all(
    home: &Remote,
    wish: &Wish<'_>,
    show: &mut dyn FnMut(String) -> Result<()>,
) -> Result<Vec<Found>, Refusal> {
    let mut found = Vec::new();
    for member in wish.members.iter().flatten() {
        found.push(look_at(home, member)?);
    }
    if found.iter().any(|found| found.size > 0) {
        show(found_table(&found))?;
    }
    let in_use: Vec<&str> = found
        .iter()
        .filter(|found| found.in_use.is_some())
        .map(|found| found.name.as_str())
        .collect();
    if !in_use.is_empty() {
        return Err(Refusal::Other(anyhow!(
            "creating array {}: free these members, or give others:{}",
            wish.name,
            list(&found, |found| found.in_use.iter().cloned().collect())
        )));
    }
    if !wish.force && found.iter().any(|found| !found.is_free()) {
        return Err(Refusal::Occupied(occupied(wish.name, &found)));
    }
    Ok(found)
}

/// Opens and locks the members that were looked at, and plans the array.
fn lock(
    home: &Remote,
    wish: &Wish<'_>,
    options: CreateOptions,
    found: Vec<Found>,
) -> Result<Plan, Refusal> {
    let mut openers: Vec<Option<Arc<dyn Opener>>> = Vec::new();
    for member in wish.members {
        openers.push(match member {
            Some(member) => Some(member.prepare(Mode::ReadWrite).map_err(anyhow::Error::from)?),
            None => None,
        });
    }
    let infos = infos(home, &openers)?;
    let mut warnings: Vec<String> =
        openers.iter().flatten().flat_map(|opener| opener.notes()).collect();
    warnings.extend(sizes_differ(&options, &infos));
    warnings.extend(flags_unused(&options));
    let stand_ins: Vec<Option<Arc<dyn Opener>>> = infos
        .iter()
        .map(|info| info.clone().map(|info| Arc::new(StandIn::new(info)) as Arc<dyn Opener>))
        .collect();
    let logical_block = infos.iter().flatten().map(|info| info.logical_block).max().unwrap_or(0);
    let planned = write(home, stand_ins, options.clone())?;
    Ok(Plan { options, openers, found, logical_block, planned, warnings })
}

/// Writes what was planned.
///
/// # Errors
/// A member that fails, or that somebody else has written to since it was looked at: then nothing was written.
pub fn make(home: &Remote, plan: Plan) -> Result<Created> {
    let doing = format!("creating array {}", plan.planned.name);
    // A file was locked when it was opened; an array of this server has been taken from its clients since.
    look_again(home, &doing, plan.found.iter().zip(plan.openers.iter().flatten()))?;
    wipe(home, &plan)?;
    let openers = plan.openers.clone();
    let created = write(home, plan.openers, plan.options)?;
    refuse_one_for_two(home, openers.into_iter().flatten(), &created).context(doing)?;
    Ok(created)
}

/// Several names may lead to one device of another host, and only what is on it tells.
fn refuse_one_for_two(
    home: &Remote,
    openers: impl Iterator<Item = Arc<dyn Opener>>,
    created: &Created,
) -> Result<()> {
    for opener in openers.filter(|opener| opener.is_remote()) {
        let name = opener.name();
        let examined = on_shard::examine(home, &opener)
            .with_context(|| format!("reading back what was written to {name}"))?;
        let number = examined.superblock.map(|superblock| superblock.dev_number);
        let mut members = created.members.iter().chain(&created.journal);
        let written = members.find(|member| member.name == name).map(|member| member.dev_number);
        if number != written {
            bail!(
                "{name} has what was written to another member: two of the members are the same device. The array cannot be \
                 used; make it anew with --force, each device once"
            );
        }
    }
    Ok(())
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
        bitmap: bitmap_for(wish, level)?,
        ppl: shape.consistency_policy == Some(ConsistencyPolicy::Ppl),
        write_journal: shape.write_journal.is_some(),
        version: shape.metadata,
        flags: wish.flags.to_vec(),
        ..CreateOptions::new(name, level, raid_disks)
    })
}

/// The bitmap that was asked for; where a member is an export of another server one by itself, since connections are lost
/// more often than disks.
fn bitmap_for(wish: &Wish<'_>, level: Level) -> Result<CreateBitmap> {
    let asked = bitmap(wish.shape)?;
    let comes_back = || wish.members.iter().flatten().any(Member::is_remote);
    let has_none = wish.shape.write_journal.is_some() || !level.has_redundancy();
    Ok(match asked {
        CreateBitmap::Default if !has_none && comes_back() => {
            CreateBitmap::Internal { chunk: None }
        }
        asked => asked,
    })
}

/// The bitmap that was asked for in one of several ways.
fn bitmap(shape: &Shape) -> Result<CreateBitmap> {
    let chunk = shape.bitmap_chunk;
    Ok(match (shape.bitmap, shape.consistency_policy) {
        (Some(BitmapPlace::None), Some(ConsistencyPolicy::Bitmap))
        | (Some(BitmapPlace::Internal), Some(ConsistencyPolicy::Resync | ConsistencyPolicy::Ppl)) =>
        {
            bail!("--bitmap and --consistency-policy contradict each other; leave one of them out")
        }
        (Some(BitmapPlace::None), _)
        | (_, Some(ConsistencyPolicy::Resync | ConsistencyPolicy::Ppl)) => {
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
fn wipe(home: &Remote, plan: &Plan) -> Result<()> {
    for found in &plan.found {
        let place = plan.planned.members.iter().find(|member| member.name == found.name);
        let openers = plan.openers.iter().flatten();
        let opener = openers.into_iter().find(|opener| opener.name() == found.name);
        let (Some(place), Some(opener)) = (place, opener) else { continue };
        let outside = |signature: &&Signature| {
            let end = signature.at.saturating_add(signature.len);
            let data_end = place.data_offset.saturating_add(place.data_size);
            end <= place.data_offset || signature.at >= data_end
        };
        let ranges: Vec<Range<u64>> = found
            .signatures
            .iter()
            .filter(outside)
            .map(|signature| signature.at..signature.at.saturating_add(signature.len))
            .collect();
        if ranges.is_empty() {
            continue;
        }
        // Through what is locked: by its path it could be another device by now.
        let opener = Arc::clone(opener);
        on_shard::run(
            home,
            move |shard| async move { wipe_device(&shard, &*opener, &ranges).await },
        )?
        .with_context(|| format!("removing what was on {}", found.name))?;
    }
    Ok(())
}

/// Overwrites ranges of a device, which takes whole blocks only: what stands beside is kept.
///
/// # Errors
/// When the device cannot be opened, read or written.
pub async fn wipe_device(shard: &Shard, opener: &dyn Opener, ranges: &[Range<u64>]) -> Result<()> {
    let device = opener.open(shard)?;
    let (sets, block) = (IoSets::new(shard), u64::from(device.info().logical_block.max(1)));
    for range in ranges {
        let start = range.start / block * block;
        let len = usize::try_from(range.end.next_multiple_of(block) - start)?;
        let read = Request::read(start, shard.pool().get(len));
        read.check(device.info())?;
        let outcome = sets.one(&*device, read).await;
        outcome.result?;
        let Op::Read(bufs) = outcome.op else { continue };
        let mut new = shard.pool().zeroed(len);
        let old = bufs.iter().flat_map(|buf| buf.iter().copied());
        for ((at, old), new) in (start..).zip(old).zip(new.iter_mut()) {
            *new = if range.contains(&at) { 0 } else { old };
        }
        sets.one(&*device, Request::write(start, new.freeze(), true)).await.result?;
    }
    Ok(())
}

fn sizes_differ(options: &CreateOptions, infos: &[Option<DeviceInfo>]) -> Option<String> {
    if options.level.uses_member_sizes() || options.size.is_some() {
        return None;
    }
    let members = infos.len() - usize::from(options.write_journal);
    let sizes = || infos.iter().take(members).flatten().map(|info| (info.size, &info.name));
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

/// Flags are recorded at any level, as mdadm does, but not every level makes use of them.
fn flags_unused(options: &CreateOptions) -> Option<String> {
    let level = options.level;
    let copies = matches!(level, Level::Raid1 | Level::Raid10);
    let given = |flag: fn(&MemberFlags) -> bool| options.flags.iter().any(flag);
    let write_mostly = given(|flags| flags.write_mostly) && level != Level::Raid1;
    let failfast = given(|flags| flags.failfast) && !copies;
    let what = match (write_mostly, failfast) {
        (true, true) => "--write-mostly and --failfast are",
        (true, false) => "--write-mostly is",
        (false, true) => "--failfast is",
        (false, false) => return None,
    };
    Some(format!("{what} recorded, but {level} makes no use of that"))
}

fn found_table(found: &[Found]) -> String {
    let mut table = table::table(&["Member", "Size", "Found on it"]);
    for found in found {
        let lines = found.lines();
        let what = if lines.is_empty() { "nothing".to_string() } else { lines.join("\n") };
        table.add_row([found.name.clone(), found.size_text(), what]);
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

#[cfg(test)]
mod tests;
