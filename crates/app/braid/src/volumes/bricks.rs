//! Bricks of a mounted volume that come, and what each is for.

use super::arrays::Arrays;
use super::creating::{self, Prepared};
use super::examining;
use super::here::{self, Here};
use super::hosted::{Held, Hosted};
use super::inside::inside;
use super::registry::Volumes;
use crate::creating::wipe_device;
use crate::members::Member;
use crate::output::size;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::FileName;
use braid_control::wanted::weight::BrickWeight;
use braid_device::file::Mode;
use braid_device::{DeviceInfo, Opener};
use braid_format::brick::BrickState as Written;
use braid_format::volume::BLOCK;
use braid_shard::mailbox::Remote;
use braid_volume::assemble::{AssembleError, BrickPlan};
use braid_volume::{BrickStatus, BrickToAdd};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// How bricks are added.
#[derive(Clone, Debug)]
pub struct HowAdded {
    /// Their part among the others; by size where `None`.
    pub weight: Option<BrickWeight>,
    /// The label of their domain; empty: each its own.
    pub domain: String,
    /// It becomes the proxy.
    pub proxy: bool,
    /// Overwrite what is on them.
    pub force: bool,
    /// The brick that the one which is added is to replace; weight and domain are the same where none are given.
    pub in_place_of: Option<String>,
    /// Only look whether it could be done.
    pub dry_run: bool,
}

impl Volumes {
    /// Adds bricks to a volume, one after the other.
    ///
    /// # Errors
    /// The first that cannot be; those before it were added, and the message says so.
    pub(super) fn add(
        &self,
        hosted: &Hosted,
        members: Vec<Member>,
        mut how: HowAdded,
        arrays: &dyn Arrays,
    ) -> Result<String> {
        if hosted.read_only {
            bail!("volume {} is mounted read-only", hosted.name);
        }
        let old = how.in_place_of.take().map(|old| hosted.brick_to_replace(&old)).transpose()?;
        if old.is_some() && members.len() != 1 {
            bail!("one brick takes the place of another: give one");
        }
        if let Some(old) = &old {
            how.weight.get_or_insert_with(|| BrickWeight::recorded(old.weight, old.blocks));
            if how.domain.is_empty() {
                how.domain.clone_from(&old.domain);
            }
        }
        let doing = format!("adding to volume {}", hosted.name);
        self.refuse_used(hosted.home(), &members).with_context(|| doing.clone())?;
        // Of bricks that are added nothing is to be said: they make no domain less.
        let together = match &old {
            Some(old) => hosted.domains_after(Some(old.id), Some(&how.domain))?,
            None => String::new(),
        };
        let prepared = creating::prepare(hosted.home(), &doing, members, how.force, arrays)?;
        let infos = match infos_that_fit(hosted, &prepared, old.as_ref()) {
            Ok(infos) if !how.dry_run => infos,
            looked => {
                let said = dry_run_of(hosted, &prepared, old.as_ref());
                let said = said + &together;
                give_back(prepared, &[], arrays);
                return looked.map(|_| said).context(doing);
            }
        };
        let mut added: Vec<String> = Vec::new();
        let replaced = old.map(|old| old.id);
        let done = self.add_all(hosted, (&prepared, infos), (&how, replaced), &mut added);
        give_back(prepared, &added, arrays);
        if !added.is_empty() {
            self.note_bricks(hosted, None);
        }
        if let Err(error) = done {
            let before = match added.as_slice() {
                [] => String::new(),
                some => format!(" (added before that: {})", some.join(", ")),
            };
            return Err(error.context(format!("{doing}{before}")));
        }
        let proxy = if how.proxy { " as its proxy" } else { "" };
        Ok(format!("added to volume {}{proxy}: {}{together}", hosted.name, added.join(", ")))
    }

    fn add_all(
        &self,
        hosted: &Hosted,
        (prepared, infos): (&Prepared, Vec<DeviceInfo>),
        (how, in_place_of): (&HowAdded, Option<u16>),
        added: &mut Vec<String>,
    ) -> Result<()> {
        let bricks = prepared.bricks.iter().zip(&prepared.stale).enumerate();
        for ((at, ((brick, opener), stale)), info) in bricks.zip(infos) {
            prepared.look_again(hosted.home(), "before it is written to", at)?;
            // The one before it may be the same export by another URI.
            self.refuse_used(hosted.home(), std::slice::from_ref(brick))?;
            let uuid = Uuid::new_v4();
            let stale = stale.clone();
            let new = New { opener: Arc::clone(opener), stale, uuid, info, in_place_of };
            let how = how.clone();
            let done = hosted.with(move |here| async move { add_one(here, new, how).await })?;
            done.with_context(|| brick.name.clone())?;
            hosted.hold(Held { uuid, name: brick.name.clone(), open: Arc::clone(opener) });
            added.push(brick.name.clone());
        }
        Ok(())
    }

    /// Refuses exports of other servers that are bricks of volumes that are mounted here, by whatever URI: no lock keeps
    /// them from being used twice.
    ///
    /// # Errors
    /// When one is, or cannot be read.
    pub(super) fn refuse_used(&self, home: &Remote, members: &[Member]) -> Result<()> {
        for member in members.iter().filter(|member| member.is_remote()) {
            let uuid = match examining::read_on(home, member.prepare(Mode::Examine)?) {
                Ok(read) => Some(Uuid::from_bytes(read.superblock.brick_uuid)),
                Err(error) => match error.downcast_ref::<AssembleError>() {
                    Some(AssembleError::NotABrick { .. } | AssembleError::Superblock { .. }) => {
                        None
                    }
                    _ => return Err(error.context(format!("looking at {}", member.name))),
                },
            };
            let is = |held: &Held| held.name == member.name || Some(held.uuid) == uuid;
            let uses = |hosted: &&Arc<Hosted>| hosted.bricks().iter().any(is);
            if let Some(user) = self.all().iter().find(uses) {
                bail!(
                    "{} is in use as a brick of volume {}; braid volume remove takes it out of there",
                    member.name,
                    user.name
                );
            }
        }
        Ok(())
    }
}

/// The devices that are to be added.
///
/// # Errors
/// When one cannot be opened; when brick `old`, which is to be replaced, has more on it than fits on them and the others.
fn infos_that_fit(
    hosted: &Hosted,
    prepared: &Prepared,
    old: Option<&BrickStatus>,
) -> Result<Vec<DeviceInfo>> {
    let infos = creating::infos(hosted.home(), prepared.openers())?;
    if let Some(old) = old {
        hosted.check_removal(old, infos.iter().map(|info| info.size / BLOCK).sum())?;
        let id = old.id;
        hosted.with(move |here| async move { here.volume.may_be_replaced(id) })??;
    }
    Ok(infos)
}

/// Gives back the arrays that were taken and not `added`.
fn give_back(prepared: Prepared, added: &[String], arrays: &dyn Arrays) {
    let not_added = prepared.bricks.iter().filter(|(brick, _)| !added.contains(&brick.name));
    let left: Vec<String> =
        not_added.filter_map(|(brick, _)| brick.array().map(str::to_string)).collect();
    if !left.is_empty() {
        drop(prepared);
        arrays.give_back(&left);
    }
}

/// Says what would be done.
fn dry_run_of(hosted: &Hosted, prepared: &Prepared, old: Option<&BrickStatus>) -> String {
    let names: Vec<&str> = prepared.bricks.iter().map(|(brick, _)| brick.name.as_str()).collect();
    let (names, volume) = (names.join(", "), &hosted.name);
    let Some(old) = old else { return format!("{names} can be added to volume {volume}") };
    format!(
        "{names} can replace {} of volume {volume}: {} would move",
        hosted.called(old),
        size::human(old.used * BLOCK)
    )
}

/// A device that becomes a brick.
struct New {
    opener: Arc<dyn Opener>,
    /// Where old signatures are.
    stale: Vec<Range<u64>>,
    uuid: Uuid,
    info: DeviceInfo,
    /// The number of the brick whose place it takes.
    in_place_of: Option<u16>,
}

async fn add_one(here: Rc<Here>, new: New, how: HowAdded) -> Result<()> {
    let New { opener, stale, uuid, info, in_place_of } = new;
    if how.proxy && here.volume.status().proxy.is_some() {
        bail!("the volume has a proxy: take it off first (proxy --off)");
    }
    let device = here::open(&here.shard, &*opener)?;
    let (weight, domain) = (how.weight.map(BrickWeight::thousandths), how.domain);
    let plan = BrickPlan { uuid, weight, domain: domain.clone(), info };
    let mut superblock = here.opened.plan_add(&plan).await?;
    if how.proxy {
        superblock.state = Written::Proxy;
    }
    wipe_device(&here.shard, &*opener, &stale).await?;
    here.opened.begin_add(&superblock, Rc::clone(&device)).await?;
    let brick = BrickToAdd {
        uuid,
        device,
        data_offset: superblock.data.offset,
        weight: superblock.weight,
        blocks: superblock.data.len / BLOCK,
        proxy: how.proxy,
        domain,
        in_place_of,
    };
    if let Err(error) = here.volume.add_brick(brick).await {
        here.opened.brick_removed(superblock.brick_id).await.with_context(|| {
            format!("after the error {error}, taking it out of the superblocks again")
        })?;
        return Err(error.into());
    }
    if opener.is_remote() {
        here.remote.borrow_mut().insert(uuid, opener);
    }
    here.opened.copy_metadata();
    Ok(())
}

impl Hosted {
    /// The brick that is to be replaced.
    ///
    /// # Errors
    /// When there is no such brick, or a job is under way, which would come first.
    fn brick_to_replace(&self, wanted: &str) -> Result<BrickStatus> {
        let old = self.select(wanted)?;
        let status = self.status()?;
        let shown = self.called(&old);
        if let Some(job) = &status.job {
            bail!(
                "replacing {shown} of volume {name}: a job, {}, is not at its end; wait for it (`braid volume jobs {name} --wait`), or \
                 give it up (`braid volume jobs {name} --cancel`)",
                job.kind.name(),
                name = self.name
            );
        }
        if status.proxy == Some(old.id) {
            bail!(
                "{shown} is the proxy of volume {}: take it off first (proxy --off), then add the other with --proxy",
                self.name
            );
        }
        Ok(old)
    }

    /// Changes a brick's part among the others. Nothing moves.
    ///
    /// # Errors
    /// When it has no such brick, or the brick no weight.
    pub fn set_weight(&self, brick: &str, weight: BrickWeight) -> Result<String> {
        let brick = self.select(brick)?;
        let (id, recorded) = (brick.id, weight.of_blocks(brick.blocks));
        self.with(move |here| async move {
            here.volume.set_weight(id, recorded).await?;
            here.note_bricks().await
        })??;
        let name = self.called(&brick);
        Ok(format!("{name} of volume {} has weight {weight} now", self.name))
    }

    /// Makes the metadata region `bytes` large, on all bricks that have one.
    ///
    /// # Errors
    /// When it is that large already, or a brick has no room.
    pub fn grow_metadata(&self, bytes: u64) -> Result<String> {
        let name = &self.name;
        self.sync_from_above();
        let grown = self.with(move |here| async move {
            let grown = braid_volume::grow_metadata(&here.opened, &here.volume, bytes).await?;
            here.note_bricks().await?;
            Ok::<_, anyhow::Error>(grown)
        })?;
        let grown = grown.with_context(|| format!("growing the metadata of volume {name}"))?;
        let status = self.status()?;
        let is_grown = |brick: &&BrickStatus| grown.contains(&brick.id);
        let on: Vec<String> =
            status.bricks.iter().filter(is_grown).map(|brick| self.name_of(brick)).collect();
        Ok(format!(
            "the metadata of volume {name} has {} on {} now",
            size::human(status.metadata.capacity),
            on.join(" and ")
        ))
    }

    /// Makes a brick the proxy, or has none.
    ///
    /// # Errors
    /// When the brick cannot be it.
    pub fn set_proxy(&self, brick: Option<&str>) -> Result<String> {
        let name = &self.name;
        let Some(brick) = brick else {
            let status = self.status()?;
            let proxy =
                status.proxy.and_then(|id| status.bricks.iter().find(|brick| brick.id == id));
            let Some(proxy) = proxy else { bail!("volume {name} has no proxy") };
            let (id, weight) = (proxy.id, proxy.weight.max(1));
            self.with(move |here| async move {
                here.volume.set_proxy(None).await?;
                here.volume.set_weight(id, weight).await?;
                here.note_bricks().await
            })??;
            return Ok(format!(
                "volume {name} has no proxy any more; {} is an ordinary brick, and `braid volume balance {name}` moves \
                 what it should not hold ({} there now)",
                self.name_of(proxy),
                size::human(proxy.used * BLOCK)
            ));
        };
        let brick = self.select(brick)?;
        let id = brick.id;
        self.with(move |here| async move {
            here.volume.set_proxy(Some(id)).await?;
            here.note_bricks().await
        })??;
        Ok(format!(
            "{} is the proxy of volume {name}: it takes what is written first; `braid volume flush {name}` moves \
             that on",
            self.called(&brick)
        ))
    }

    /// Files stay where they are, or not.
    ///
    /// # Errors
    /// The first that is none; those before it are done.
    pub fn set_pinned(&self, files: &[FileName], pinned: bool) -> Result<String> {
        for file in files {
            let path = inside(&self.dir, file);
            let wanted = path.clone();
            self.with(move |here| async move {
                let ino = here.volume.resolve(wanted.as_bytes()).await?;
                here.volume.set_pinned(ino, pinned).await
            })?
            .with_context(|| path)?;
        }
        let (count, name) = (files.len(), &self.name);
        let files = if count == 1 { "1 file".to_string() } else { format!("{count} files") };
        Ok(match pinned {
            true => format!("{files} of volume {name} pinned"),
            false => format!("{files} of volume {name} may be moved again"),
        })
    }
}
