//! New volumes, and what every device goes through before it becomes a brick: what is on it is looked at, shown, and
//! refused unless the user insists; then it is opened and locked.
//!
//! Invariant: nothing is written before everything that can be checked was checked.

use super::arrays::{Arrays, names_of};
use super::examining;
use super::here;
use super::kept;
use crate::creating::wipe_device;
use crate::discover::{Found, look, look_again, look_through};
use crate::members::{Member, parse_brick, parse_bricks};
use crate::on_shard;
use crate::output::table;
use crate::settings::kept::Kept;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{CreatedBrick, CreatedVolume};
use braid_control::wanted::volume::NewVolume;
use braid_control::wanted::weight::{self, BrickWeight};
use braid_device::file::Mode;
use braid_device::{DeviceInfo, Opener};
use braid_filesystem::Caller;
use braid_format::brick::BLOCK;
use braid_shard::mailbox::Remote;
use braid_volume::assemble::{self, BrickPlan, CreatePlan};
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// Bytes of a stripe unless somebody says otherwise.
const STRIPE: u64 = 128 << 10;

/// What is to be made.
pub struct Wish<'a> {
    /// The volume's name.
    pub name: &'a str,
    /// Its bricks, as typed, paths absolute.
    pub bricks: &'a [String],
    /// What it is like.
    pub new: &'a NewVolume,
    /// Only say what it would be.
    pub dry_run: bool,
}

/// Devices that can become bricks: open, locked, and nothing on them that is wanted.
pub struct Prepared {
    /// The devices.
    pub bricks: Vec<(Member, Arc<dyn Opener>)>,
    /// What was found on them, as a table.
    pub found: Option<String>,
    /// Where old signatures are on each, which nobody shall find beside the new superblocks.
    pub stale: Vec<Vec<Range<u64>>>,
    /// What each held before it was locked.
    pub before: Vec<Found>,
}

impl Prepared {
    /// The arrays among them.
    pub fn arrays(&self) -> Vec<String> {
        names_of(&self.bricks)
    }

    /// The openers, in order.
    pub fn openers(&self) -> Vec<Arc<dyn Opener>> {
        self.bricks.iter().map(|(_, opener)| Arc::clone(opener)).collect()
    }

    /// Looks at the device at `at` again, now that nobody else can write to it. An export of another server cannot be
    /// locked; what is written to it is read back afterwards.
    ///
    /// # Errors
    /// When it holds something else than was found before.
    pub fn look_again(&self, home: &Remote, doing: &str, at: usize) -> Result<()> {
        let (Some((brick, opener)), Some(found)) = (self.bricks.get(at), self.before.get(at))
        else {
            return Ok(());
        };
        if brick.is_remote() {
            return Ok(());
        }
        look_again(home, doing, std::iter::once((found, opener)))
    }

    /// Overwrites the old signatures.
    ///
    /// # Errors
    /// A device that fails.
    fn wipe(&self, home: &Remote) -> Result<()> {
        for ((brick, opener), ranges) in self.bricks.iter().zip(&self.stale) {
            if ranges.is_empty() {
                continue;
            }
            let (opener, ranges) = (Arc::clone(opener), ranges.clone());
            on_shard::run(home, move |shard| async move {
                wipe_device(&shard, &*opener, &ranges).await
            })?
            .with_context(|| format!("removing what was on {}", brick.name))?;
        }
        Ok(())
    }
}

/// Where there is no server that has arrays.
struct NoArrays;

impl Arrays for NoArrays {
    fn look(&self, name: &str) -> Result<Arc<dyn Opener>> {
        bail!("array {name} can be used by the server that runs it only")
    }

    fn take(&self, name: &str) -> Result<Arc<dyn Opener>> {
        self.look(name)
    }

    fn give_back(&self, _: &[String]) {}
}

/// Looks at devices that are to become bricks, and opens them. `doing` begins the messages.
///
/// # Errors
/// When one is in use, or holds something and `force` is not given; nothing is taken then.
pub fn prepare(
    home: &Remote,
    doing: &str,
    mut members: Vec<Member>,
    force: bool,
    arrays: &dyn Arrays,
) -> Result<Prepared> {
    let mut found = Vec::new();
    for member in &mut members {
        found.push(match member.array().map(str::to_string) {
            Some(array) => {
                member.found(arrays.look(&array)?);
                look_through(home, member)?
            }
            None if member.is_remote() => look_through(home, member)?,
            None => look(member)?,
        });
    }
    let listed = |lines: fn(&Found) -> Vec<String>| -> Vec<String> {
        let line = |found: &Found| format!("\n  {}: {}", found.name, lines(found).join("; "));
        found.iter().filter(|found| !lines(found).is_empty()).map(line).collect()
    };
    let in_use = listed(|found| found.in_use.iter().cloned().collect());
    if !in_use.is_empty() {
        bail!("{doing}: in use:{}\nUnmount or stop what uses it, or leave it out", in_use.concat());
    }
    let occupied = listed(Found::lines);
    if !force && !occupied.is_empty() {
        bail!(
            "{doing}: refused, because it would destroy what is on:{}\nIf nothing of it is needed any more: --force",
            occupied.concat()
        );
    }
    let stale = found.iter().map(|found| {
        let ranges = found.signatures.iter();
        ranges.map(|found| found.at..found.at.saturating_add(found.len)).collect()
    });
    let stale = stale.collect();
    let mut taken = Vec::new();
    let opened = members
        .into_iter()
        .map(|member| {
            if let Some(array) = member.array().map(str::to_string) {
                arrays.take(&array)?;
                taken.push(array);
            }
            let opener = member.prepare(Mode::ReadWrite)?;
            Ok((member, opener))
        })
        .collect::<Result<Vec<_>>>();
    if opened.is_err() {
        arrays.give_back(&taken);
    }
    let table = found.iter().any(|found| found.size > 0).then(|| found_table(&found));
    Ok(Prepared { bricks: opened?, found: table, stale, before: found })
}

/// Makes a volume in this process.
///
/// # Errors
/// As [`prepare`] and [`create`].
pub fn create_here(home: &Remote, wish: &Wish<'_>, kept: &Kept) -> Result<CreatedVolume> {
    let members = parse_bricks(wish.bricks)?;
    let doing = format!("creating volume {}", wish.name);
    let prepared = prepare(home, &doing, members, wish.new.force, &NoArrays)?;
    create(home, wish, &prepared, kept)
}

/// Makes a volume of devices that were prepared, and notes where its bricks are.
///
/// # Errors
/// What cannot be, or a device that fails: then there is no volume.
pub fn create(
    home: &Remote,
    wish: &Wish<'_>,
    prepared: &Prepared,
    kept: &Kept,
) -> Result<CreatedVolume> {
    let Wish { name, new, dry_run, .. } = *wish;
    let doing = || format!("creating volume {name}");
    refuse_name(home, name, prepared, kept).with_context(doing)?;
    let weights = given("weight", &new.weights, &prepared.bricks).with_context(doing)?;
    let domains = given("domain", &new.domains, &prepared.bricks).with_context(doing)?;
    let uuid = Uuid::new_v4();
    let infos = infos(home, prepared.openers())?;
    let plans = infos.into_iter().zip(&weights).zip(domains);
    let plans: Vec<BrickPlan> = plans
        .map(|((info, weight), domain)| BrickPlan {
            domain: domain.unwrap_or_default(),
            uuid: Uuid::new_v4(),
            weight: weight.map(BrickWeight::thousandths),
            info,
        })
        .collect();
    let uuids: Vec<Uuid> = plans.iter().map(|plan| plan.uuid).collect();
    let volume = assemble::NewVolume {
        name: name.to_string(),
        uuid,
        stripe: new.stripe.unwrap_or(STRIPE),
        checksums: new.checksums.unwrap_or(true),
        copies: new.copies.unwrap_or(1),
        metadata_size: new.metadata,
        owner: Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        now: here::now(),
    };
    let plan = assemble::plan_create(&volume, &plans).with_context(doing)?;
    let mut created = describe(&volume, &plan, prepared);
    if dry_run {
        return Ok(created);
    }
    kept.prepare()?;
    (0..prepared.bricks.len()).try_for_each(|at| prepared.look_again(home, &doing(), at))?;
    prepared.wipe(home)?;
    let openers = prepared.openers();
    let made = on_shard::run(home, move |shard| async move {
        let devices = openers
            .iter()
            .map(|opener| here::open(&shard, &**opener))
            .collect::<Result<Vec<_>>>()?;
        Ok(assemble::create(&shard, plan, &devices, here::clock()).await?)
    })?;
    let made: Result<()> = made;
    made.with_context(doing)?;
    refuse_one_for_two(home, prepared, &uuids).with_context(doing)?;
    created.uuid = uuid.to_string();
    let names: Vec<String> = prepared.bricks.iter().map(|(brick, _)| brick.name.clone()).collect();
    if let Err(error) = kept::store(kept, name, uuid, &names) {
        created.notes.push(format!(
            "{error}; give the bricks to `braid volume mount`",
            error = crate::output::said(&error)
        ));
    }
    Ok(created)
}

/// Several URIs may lead to one export, and only what is on it tells.
fn refuse_one_for_two(home: &Remote, prepared: &Prepared, uuids: &[Uuid]) -> Result<()> {
    for ((brick, opener), uuid) in prepared.bricks.iter().zip(uuids) {
        if !brick.is_remote() {
            continue;
        }
        let read = examining::read_on(home, Arc::clone(opener))
            .with_context(|| format!("reading back what was written to {}", brick.name))?;
        if read.superblock.brick_uuid != uuid.into_bytes() {
            bail!(
                "{} has what was written to another brick: two of the bricks are the same export. The volume cannot be \
                 used; make it anew with --force, each export once",
                brick.name
            );
        }
    }
    Ok(())
}

/// What devices say of themselves, under the names that they were given.
///
/// # Errors
/// When one cannot be opened.
pub fn infos(home: &Remote, openers: Vec<Arc<dyn Opener>>) -> Result<Vec<DeviceInfo>> {
    on_shard::run(home, move |shard| async move {
        let info = |opener: &Arc<dyn Opener>| {
            let name = opener.name().to_string();
            Ok(DeviceInfo { name, ..opener.open(&shard)?.info().clone() })
        };
        openers.iter().map(info).collect::<Result<Vec<_>>>()
    })?
}

fn describe(volume: &assemble::NewVolume, plan: &CreatePlan, prepared: &Prepared) -> CreatedVolume {
    let metadata: Vec<usize> = plan.metadata().collect();
    let bricks = plan.superblocks.iter().zip(&prepared.bricks).enumerate();
    let bricks = bricks.map(|(at, (superblock, (brick, _)))| CreatedBrick {
        id: superblock.brick_id,
        name: brick.name.clone(),
        weight: weight::shown(superblock.weight, superblock.data.len / BLOCK),
        data: superblock.data.len,
        metadata: if metadata.contains(&at) { superblock.metadata.len } else { 0 },
    });
    let mut notes: Vec<String> =
        prepared.bricks.iter().flat_map(|(_, opener)| opener.notes()).collect();
    if metadata.len() == 1 && plan.superblocks.len() == 1 {
        notes.push(
            "the metadata is on one brick only; the next bricks that are added get copies of it"
                .to_string(),
        );
    }
    CreatedVolume {
        name: volume.name.clone(),
        uuid: String::new(),
        stripe: volume.stripe,
        checksums: volume.checksums,
        copies: volume.copies,
        bricks: bricks.collect(),
        found: prepared.found.clone(),
        notes,
    }
}

/// Refuses the name of a volume that this machine knows, and that is still there: two of one name could be mounted by their
/// UUIDs only.
fn refuse_name(home: &Remote, name: &str, prepared: &Prepared, kept: &Kept) -> Result<()> {
    for known in kept::named(kept, name).iter().filter(|known| known.name == name) {
        let taken = |text: &&String| prepared.bricks.iter().any(|(brick, _)| brick.name == **text);
        if known.bricks.iter().any(|text| taken(&text)) {
            // It is overwritten.
            continue;
        }
        let is_there = |text: &&String| {
            let member = parse_brick(text).ok().filter(|member| member.array().is_none());
            let opener = member.and_then(|member| member.prepare(Mode::Examine).ok());
            let read = opener.and_then(|opener| examining::read_on(home, opener).ok());
            read.is_some_and(|read| {
                Uuid::from_bytes(read.superblock.volume_uuid).to_string() == known.uuid
            })
        };
        if let Some(brick) = known.bricks.iter().find(is_there) {
            bail!(
                "there is a volume {name} already ({}, {brick} is a brick of it): choose another name, or give its bricks \
                 and --force to overwrite it",
                known.uuid
            );
        }
    }
    Ok(())
}

/// The values given for bricks with `option`, a weight or a domain.
fn given<T: Clone + Display>(
    option: &str,
    given: &[(String, T)],
    bricks: &[(Member, Arc<dyn Opener>)],
) -> Result<Vec<Option<T>>> {
    let mut all: Vec<Option<T>> = vec![None; bricks.len()];
    for (name, value) in given {
        let is = |(at, (brick, _)): &(usize, &(Member, Arc<dyn Opener>))| {
            // Those in memory have numbers behind what was typed, and may be the same.
            let typed = brick.name.split('#').next().unwrap_or_default();
            let same = brick.name == *name || brick.path().is_none() && typed == name;
            same && all.get(*at).is_some_and(Option::is_none)
        };
        let at = bricks.iter().enumerate().find(is).map(|(at, _)| at);
        let place = at.and_then(|at| all.get_mut(at));
        *place.with_context(|| {
            format!(
                "--{option} {name}={value}: {name} is none of the bricks, or has a {option} already"
            )
        })? = Some(value.clone());
    }
    Ok(all)
}

fn found_table(found: &[Found]) -> String {
    let mut table = table::table(&["Brick", "Size", "Found on it"]);
    for found in found {
        let lines = found.lines();
        let what = if lines.is_empty() { "nothing".to_string() } else { lines.join("\n") };
        table.add_row([found.name.clone(), found.size_text(), what]);
    }
    table::align_right(&mut table, &[1]);
    table::text(&table)
}

#[cfg(test)]
#[path = "creating_tests.rs"]
mod tests;
