//! Which devices are the bricks of a volume: those that were given, else those that were noted, else all block devices.
//!
//! Reads superblocks without a lock; whether a brick may be used is decided when it is opened for that.

use super::examining::{self, Read};
use super::kept::{self, Known};
use crate::members::{Member, parse_brick, parse_bricks, same_device};
use crate::settings::kept::Kept;
use anyhow::{Context, Result, bail};
use braid_device::Opener;
use braid_device::file::Mode;
use braid_shard::mailbox::Remote;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// A brick that was found, not yet opened for use.
pub struct Candidate {
    /// Where it is.
    pub member: Member,
    /// What its superblock says.
    pub read: Read,
}

/// What was found.
pub struct Found {
    /// The bricks.
    pub bricks: Vec<Candidate>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Gives the opener of an array of this server, to look at it.
pub type LookAtArray<'a> = dyn Fn(&str) -> Result<Arc<dyn Opener>> + 'a;

/// Finds the bricks of the volume `wanted`, a name or UUID.
///
/// # Errors
/// When a device that was given is no brick of it, or none is found.
pub fn find(
    home: &Remote,
    wanted: &str,
    given: &[String],
    kept: &Kept,
    arrays: &LookAtArray<'_>,
) -> Result<Found> {
    let mut notes = Vec::new();
    let bricks = if given.is_empty() {
        noted_or_anywhere(home, wanted, kept, arrays, &mut notes)?
    } else {
        of_given(home, wanted, given, arrays)?
    };
    let mut volumes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for brick in &bricks {
        *volumes.entry(brick.read.superblock.volume_uuid).or_default() += 1;
    }
    if volumes.len() > 1 {
        let each: Vec<String> = volumes
            .iter()
            .map(|(uuid, count)| format!("{} ({count} bricks)", Uuid::from_bytes(*uuid)))
            .collect();
        bail!("several volumes are called {wanted}: {}; give the UUID of one", each.join(", "));
    }
    if bricks.is_empty() {
        bail!(
            "no brick of a volume {wanted} was found: give its bricks, or folders that they are in; `braid volume list` \
             shows the volumes that are known here"
        );
    }
    notes.extend(bricks.iter().flat_map(|brick| {
        brick.read.notes.iter().map(|note| format!("{}: {note}", brick.member.name))
    }));
    Ok(Found { bricks, notes })
}

fn of_given(
    home: &Remote,
    wanted: &str,
    given: &[String],
    arrays: &LookAtArray<'_>,
) -> Result<Vec<Candidate>> {
    let (folders, single): (Vec<&String>, Vec<&String>) =
        given.iter().partition(|text| Path::new(text).is_dir());
    let single: Vec<String> = single.into_iter().cloned().collect();
    let mut bricks: Vec<Candidate> = Vec::new();
    for member in parse_bricks(&single)? {
        let brick = look(home, member, arrays)?;
        let superblock = &brick.read.superblock;
        if !is_of(&brick.read, wanted) {
            bail!(
                "{} is a brick of volume {} ({}), not of {wanted}: leave it out",
                brick.member.name,
                superblock.volume_name.as_str(),
                Uuid::from_bytes(superblock.volume_uuid)
            );
        }
        bricks.push(brick);
    }
    for folder in folders {
        let entries =
            fs::read_dir(folder).with_context(|| format!("looking for bricks in {folder}"))?;
        for entry in entries {
            let path = entry.with_context(|| format!("looking for bricks in {folder}"))?.path();
            look_quietly(home, &path, wanted, arrays, &mut bricks);
        }
    }
    Ok(bricks)
}

fn noted_or_anywhere(
    home: &Remote,
    wanted: &str,
    kept: &Kept,
    arrays: &LookAtArray<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Candidate>> {
    let mut bricks: Vec<Candidate> = Vec::new();
    let known = kept::named(kept, wanted);
    let mut all_there = !known.is_empty();
    for Known { bricks: texts, uuid, .. } in &known {
        for text in texts {
            let looked = parse_brick(text).and_then(|member| look(home, member, arrays));
            match looked {
                Ok(brick) if is_of(&brick.read, uuid) => bricks.push(brick),
                Ok(brick) => {
                    all_there = false;
                    notes.push(format!("{} is no brick of the volume any more", brick.member.name));
                }
                Err(error) => {
                    all_there = false;
                    notes.push(crate::output::said(&error));
                }
            }
        }
    }
    if !all_there {
        // A disk may have another name than it had.
        let devices = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        for device in devices {
            let path = Path::new("/dev").join(device.file_name());
            look_quietly(home, &path, wanted, arrays, &mut bricks);
        }
    }
    Ok(bricks)
}

/// Adds what is at `path` when it is a brick of the volume and not among them.
fn look_quietly(
    home: &Remote,
    path: &Path,
    wanted: &str,
    arrays: &LookAtArray<'_>,
    bricks: &mut Vec<Candidate>,
) {
    let known = |brick: &Candidate| brick.member.path().is_some_and(|own| same_device(own, path));
    let Some(text) = path.to_str().filter(|_| !bricks.iter().any(known)) else { return };
    let looked = parse_brick(text).and_then(|member| look(home, member, arrays));
    if let Ok(brick) = looked
        && is_of(&brick.read, wanted)
    {
        bricks.push(brick);
    }
}

fn look(home: &Remote, member: Member, arrays: &LookAtArray<'_>) -> Result<Candidate> {
    let opener = match member.array() {
        Some(array) => arrays(array)?,
        None => member.prepare(Mode::Examine)?,
    };
    let read =
        examining::read_on(home, opener).with_context(|| format!("brick {}", member.name))?;
    Ok(Candidate { member, read })
}

fn is_of(read: &Read, wanted: &str) -> bool {
    let uuid = Uuid::parse_str(wanted).map(Uuid::into_bytes);
    let superblock = &read.superblock;
    superblock.volume_name.as_str() == wanted || Ok(superblock.volume_uuid) == uuid
}
