//! Volumes that are not mounted: checked, renamed, destroyed.
//!
//! Their bricks are found as for a mount, opened and locked, so that nobody mounts the volume meanwhile.

use super::arrays::{Arrays, names_of};
use super::finding;
use super::here::{self, How};
use super::hosted::{Hosted, Start, locked};
use super::kept;
use super::leased::Claim;
use super::registry::Volumes;
use super::tell::Tell;
use crate::exit::refused;
use crate::members::Member;
use crate::on_shard;
use crate::output;
use anyhow::{Context, Result, bail};
use braid_control::protocol::Code;
use braid_control::protocol::volume::{CheckDetail, JobDeed};
use braid_device::Opener;
use braid_device::file::Mode;
use braid_format::brick::{BrickSuperblock, VolumeName, VolumeState};
use braid_fuse::Without;
use braid_shard::mailbox::Remote;
use braid_volume::assemble::{self, AssembleOptions};
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

/// A volume that is not mounted, as it was named.
pub struct Unmounted<'a> {
    /// Its name or UUID.
    pub volume: &'a str,
    /// Its bricks, where they are not to be looked for.
    pub bricks: &'a [String],
}

/// Its bricks, open. Arrays among them are given back when this is dropped.
struct Taken<'a> {
    bricks: Vec<(Member, Arc<dyn Opener>)>,
    arrays: &'a dyn Arrays,
    /// Given up when the bricks are closed.
    _lease: Claim<'a>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let names = names_of(&self.bricks);
        self.bricks.clear();
        self.arrays.give_back(&names);
    }
}

impl Taken<'_> {
    fn openers(&self) -> Vec<Arc<dyn Opener>> {
        self.bricks.iter().map(|(_, opener)| Arc::clone(opener)).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.bricks.iter().map(|(member, _)| member.name.as_str()).collect()
    }
}

impl Volumes {
    /// Opens the bricks of a volume that is not mounted here; `doing` begins the messages.
    fn take_unmounted<'a>(
        &'a self,
        doing: &str,
        which: &Unmounted<'_>,
        mode: Mode,
        arrays: &'a dyn Arrays,
    ) -> Result<(Remote, Taken<'a>)> {
        if let Ok(known) = self.find(Some(which.volume)) {
            let why = format!(
                "{doing}: it is mounted at {}; `braid volume unmount {}` first",
                known.dir.display(),
                known.name
            );
            return Err(refused(Code::InUse, why));
        }
        let home = self.least_used()?;
        let look = |array: &str| arrays.look(array);
        let found = finding::find(&home, which.volume, which.bricks, &self.kept, &look)?;
        for note in &found.notes {
            output::note(format!("note: {note}"));
        }
        let first = found.bricks.first().context("a volume has a brick")?;
        let uuid = Uuid::from_bytes(first.read.superblock.volume_uuid);
        let lease = self.claim(uuid, which.volume).with_context(|| doing.to_string())?;
        let members: Vec<Member> = found.bricks.into_iter().map(|brick| brick.member).collect();
        let bricks = self.open(&members, mode, arrays).with_context(|| doing.to_string())?;
        Ok((home, Taken { bricks, arrays, _lease: lease }))
    }

    /// Checks a volume that is not mounted. Without `repair` nothing is written.
    ///
    /// # Errors
    /// When it is mounted, its bricks do not make a volume, or its metadata cannot be read.
    pub(super) fn check_unmounted(
        &self,
        which: &Unmounted<'_>,
        repair: bool,
        arrays: &dyn Arrays,
        tell: &mut Tell<'_>,
    ) -> Result<CheckDetail> {
        let doing = format!("checking volume {}", which.volume);
        let _turn = locked(&self.turn);
        let mode = if repair { Mode::ReadWrite } else { Mode::ReadOnly };
        let (home, taken) = self.take_unmounted(&doing, which, mode, arrays)?;
        let start = Start {
            bricks: taken
                .bricks
                .iter()
                .map(|(member, opener)| (member.name.clone(), Arc::clone(opener)))
                .collect(),
            how: How { degraded: true, take_back: false, read_only: !repair, minority: !repair },
            dir: PathBuf::new(),
            allow_other: false,
            without: Without::default(),
            home,
            others: Vec::new(),
        };
        let up = Hosted::bring_up(start).with_context(|| doing.clone())?;
        let checked = up
            .start_check(repair)
            .and_then(|_| up.steer_job(JobDeed::Wait, true, tell))
            .and_then(|_| up.last_check());
        let down = up.take_down();
        let report = checked.with_context(|| doing.clone())?;
        down.with_context(|| doing)?;
        Ok(report)
    }

    /// Gives a volume that is not mounted another name, and says so.
    ///
    /// # Errors
    /// When it is mounted, a brick is missing, it was not unmounted in order, or another volume is called so.
    pub(super) fn rename_unmounted(
        &self,
        which: &Unmounted<'_>,
        name: &str,
        arrays: &dyn Arrays,
    ) -> Result<String> {
        let old = which.volume;
        let doing = format!("renaming volume {old} to {name}");
        let _turn = locked(&self.turn);
        let new = VolumeName::new(name).with_context(|| doing.clone())?;
        let (home, taken) = self.take_unmounted(&doing, which, Mode::ReadWrite, arrays)?;
        let openers = taken.openers();
        let known = kept::named(&self.kept, name);
        let renamed = on_shard::run(&home, move |shard| async move {
            let found = here::examine(&shard, &openers).await?;
            let assembly = assemble::assemble(found, AssembleOptions::default())?;
            let others = known.iter().find(|known| known.uuid != assembly.uuid.to_string());
            if let Some(other) = others {
                bail!(
                    "a volume of that name is known here, {}; choose another name, or `braid volume forget {}`",
                    other.uuid,
                    other.uuid
                );
            }
            if assembly.unclean {
                bail!("it was not unmounted in order: mount it and unmount it, then rename it");
            }
            assemble::rename(&shard, &assembly, new, here::clock()).await?;
            Ok(assembly.uuid)
        })?;
        let uuid: Uuid = renamed.with_context(|| doing)?;
        let bricks: Vec<String> = taken.names().into_iter().map(str::to_string).collect();
        kept::store(&self.kept, name, uuid, &bricks)?;
        Ok(format!(
            "volume {old} ({uuid}) is called {name} now; where fstab or /etc/braid/braid.toml name it, change that too"
        ))
    }

    /// Erases the superblocks of a volume that is not mounted, and says what that was, or with `dry_run` would be.
    ///
    /// # Errors
    /// When it is mounted, or without `force` a brick is missing or the superblocks say that it is in use.
    pub(super) fn destroy_unmounted(
        &self,
        which: &Unmounted<'_>,
        (force, dry_run): (bool, bool),
        arrays: &dyn Arrays,
    ) -> Result<String> {
        let volume = which.volume;
        let doing = format!("destroying volume {volume}");
        let _turn = locked(&self.turn);
        let mode = if dry_run { Mode::ReadOnly } else { Mode::ReadWrite };
        let (home, taken) = self.take_unmounted(&doing, which, mode, arrays)?;
        let openers = taken.openers();
        let superblocks: Vec<BrickSuperblock> = on_shard::run(&home, move |shard| async move {
            let found = here::examine(&shard, &openers).await?;
            anyhow::Ok(found.into_iter().map(|brick| brick.superblock).collect())
        })??;
        let unsure = doubts(&superblocks);
        if let Some(why) = unsure.first().filter(|_| !force && !dry_run) {
            let why = format!("{doing}: {why}; --force destroys what is here all the same");
            return Err(refused(Code::NeedsForce, why));
        }
        let names = taken.names().join(", ");
        if dry_run {
            let doubts = unsure.iter().map(|why| format!("\n  {why}: it needs --force"));
            return Ok(format!(
                "volume {volume} would be destroyed, with all files on it: the superblocks of {names} would be erased; nothing \
                 was written{}",
                doubts.collect::<String>()
            ));
        }
        let openers = taken.openers();
        on_shard::run(&home, move |shard| async move {
            for brick in here::examine(&shard, &openers).await? {
                assemble::erase_brick(&shard, &brick).await?;
            }
            anyhow::Ok(())
        })?
        .with_context(|| doing.clone())?;
        let uuid = superblocks.first().map(|brick| Uuid::from_bytes(brick.volume_uuid).to_string());
        for known in uuid.iter().flat_map(|uuid| kept::named(&self.kept, uuid)) {
            kept::forget(&self.kept, &known)?;
        }
        Ok(format!("volume {volume} was destroyed: {names} can be used for something else"))
    }
}

/// Reasons not to destroy the volume of these bricks.
fn doubts(superblocks: &[BrickSuperblock]) -> Vec<String> {
    let mut doubts = Vec::new();
    let Some(newest) = superblocks.iter().max_by_key(|brick| brick.generation) else {
        return doubts;
    };
    if newest.volume_state == VolumeState::Mounted {
        doubts.push(
            "its superblocks say that it is mounted, on another machine perhaps, or was when its server was killed"
                .to_string(),
        );
    }
    let here = |id: &u16| superblocks.iter().any(|brick| brick.brick_id == *id);
    let missing: Vec<String> =
        newest.brick_ids.iter().filter(|id| !here(id)).map(|id| id.to_string()).collect();
    if !missing.is_empty() {
        doubts.push(format!(
            "{} of its bricks {} not here (number {}) and would keep a superblock",
            missing.len(),
            if missing.len() == 1 { "is" } else { "are" },
            missing.join(", ")
        ));
    }
    doubts
}
