//! A brick that was lost is used again, by command.
//!
//! Which device is the brick, and how it is opened, is decided here; whether it may be used again, by the engine.

use super::arrays::Arrays;
use super::examining;
use super::finding;
use super::hosted::{Held, Hosted};
use super::lost;
use super::registry::Volumes;
use crate::members::{Member, parse_brick};
use anyhow::{Context, Result, bail};
use braid_array::stacking::PREFIX;
use braid_device::file::Mode;
use braid_nbd::ExportUri;
use braid_volume::BrickStatus;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// A text may name a device, and not only a brick of a volume.
fn may_be_device(text: &str) -> bool {
    ExportUri::is_meant(text) || text.starts_with(PREFIX) || Path::new(text).exists()
}

impl Volumes {
    /// Uses a brick again that was lost, or was missing at the mount. `device`: where it is now.
    ///
    /// # Errors
    /// When there is no such brick, it is there, its device is not found, or is not as the brick was when it was lost.
    pub(super) fn take_back(
        &self,
        hosted: &Hosted,
        brick: &str,
        device: Option<&str>,
        arrays: &dyn Arrays,
    ) -> Result<String> {
        let name = &hosted.name;
        let doing = || format!("taking a brick back into volume {name}");
        if hosted.read_only {
            bail!("volume {name} is mounted read-only");
        }
        let (status, mut member) = self.lost(hosted, brick, device, arrays).with_context(doing)?;
        if status.is_there {
            bail!(
                "{} of volume {name} is there: nothing is to be taken back",
                hosted.called(&status)
            );
        }
        let uuid = status.uuid;
        // A remainder of its former life may hold the lock of the same device.
        let before = match member.is_remote() {
            true => None,
            false => {
                hosted.with(move |here| async move { here.remote.borrow_mut().remove(&uuid) })?;
                hosted.let_go(uuid)
            }
        };
        let mut taken = Vec::new();
        if let Some(array) = member.array().map(str::to_string) {
            match before.as_ref().filter(|held| held.name == member.name) {
                Some(held) => member.found(Arc::clone(&held.open)),
                None => {
                    member.found(arrays.take(&array).with_context(doing)?);
                    taken.push(array);
                }
            }
        }
        drop(before);
        let done = self.open_and_take_back(hosted, uuid, &member);
        if done.is_err() {
            arrays.give_back(&taken);
        }
        done.with_context(|| member.name.clone()).with_context(doing)?;
        self.note_bricks(hosted, None);
        Ok(format!(
            "brick {} of volume {name} is used again: {}; what it has missed is copied to it where files have copies",
            status.id, member.name
        ))
    }

    fn open_and_take_back(&self, hosted: &Hosted, uuid: Uuid, member: &Member) -> Result<()> {
        let opener = member.prepare(Mode::ReadWrite)?;
        let open = Arc::clone(&opener);
        hosted.with(move |here| async move {
            let found = lost::reach(&here.shard, &*opener).await?;
            lost::take_back(&here, uuid, opener, found).await
        })??;
        drop(hosted.let_go(uuid));
        hosted.hold(Held { uuid, name: member.name.clone(), open });
        Ok(())
    }

    /// The brick that is meant, and the device that it is now.
    fn lost(
        &self,
        hosted: &Hosted,
        brick: &str,
        device: Option<&str>,
        arrays: &dyn Arrays,
    ) -> Result<(BrickStatus, Member)> {
        let look = |member: &Member| {
            let opener = match member.array() {
                Some(array) => match hosted.bricks().iter().find(|held| held.name == member.name) {
                    Some(held) => Arc::clone(&held.open),
                    None => arrays.look(array)?,
                },
                None => member.prepare(Mode::Examine)?,
            };
            let read = examining::read_on(hosted.home(), opener);
            read.with_context(|| member.name.clone())
        };
        let (status, place) = match hosted.select(brick) {
            Ok(status) => {
                let known = hosted.brick_name(status.uuid);
                (Some(status), device.map(str::to_string).or(known))
            }
            Err(error) if device.is_some() || !may_be_device(brick) => return Err(error),
            Err(_) => (None, Some(brick.to_string())),
        };
        let is_there = status.as_ref().is_some_and(|status| status.is_there);
        if let (true, Some(status), Some(place)) = (is_there, &status, &place) {
            return Ok((status.clone(), parse_brick(place)?));
        }
        let found = place.map(|place| {
            let member = parse_brick(&place)?;
            let read = look(&member)?;
            Ok::<_, anyhow::Error>((member, Uuid::from_bytes(read.superblock.brick_uuid)))
        });
        let Some(status) = status else {
            let (member, uuid) = found.context("no brick was named")??;
            let bricks = hosted.status()?.bricks;
            let status = bricks.into_iter().find(|status| status.uuid == uuid);
            let status = status.with_context(|| {
                format!(
                    "{} holds brick {uuid}, which is none of volume {}: see braid volume status",
                    member.name, hosted.name
                )
            })?;
            return Ok((status, member));
        };
        match found {
            Some(Ok((member, uuid))) if uuid == status.uuid => return Ok((status, member)),
            Some(Ok((member, uuid))) if device.is_some() => bail!(
                "{} holds brick {uuid}, and brick {} is {}: bring the device that was lost",
                member.name,
                status.id,
                status.uuid
            ),
            Some(Err(error)) if device.is_some() => return Err(error),
            _ => {}
        }
        // A disk may have another name than it had.
        let look = |array: &str| arrays.look(array);
        let volume = hosted.uuid.to_string();
        let all = finding::find(hosted.home(), &volume, &[], &self.kept, &look)?.bricks;
        let is = |uuid: [u8; 16]| uuid == status.uuid.into_bytes();
        match all.into_iter().find(|brick| is(brick.read.superblock.brick_uuid)) {
            Some(brick) => Ok((status, brick.member)),
            None => {
                let why = found.and_then(Result::err);
                let why = why.map_or(String::new(), |error| format!(" ({error:#})"));
                bail!(
                    "brick {} ({}) is not found{why}: say where it is with --device",
                    status.id,
                    status.uuid
                )
            }
        }
    }
}
