//! What of a mounted volume lives on its shard, and how an ordinary thread has something done with it.

use crate::on_shard;
use anyhow::{Context, Result, bail};
use braid_device::meter::Metered;
use braid_device::plug::Plug;
use braid_device::{Device, Opener};
use braid_filesystem::Time;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::Budget;
use braid_volume::assemble::{self, AssembleOptions, FoundBrick, Opened};
use braid_volume::{Clock, Gone, Volume};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// Between two looks for bricks that have gone, in nanoseconds.
const LOOK_EVERY: u64 = 500_000_000;
/// Bytes that the database of a volume's metadata keeps in memory.
const CACHE_BYTES: usize = 64 << 20;

/// A mounted volume on its shard.
pub struct Here {
    /// Its shard.
    pub shard: Shard,
    /// The volume.
    pub volume: Rc<Volume>,
    /// Its superblocks and its metadata store.
    pub opened: Opened,
    /// Held while bricks that have gone are let go.
    pub(super) turn: Rc<Budget>,
    /// Bricks that the volume has let go and that could not be taken out of the superblocks.
    stuck: RefCell<Vec<Gone>>,
    /// It is coming to its end.
    pub(super) closing: Cell<bool>,
    /// The bricks that are behind a network, which may be there again by themselves.
    pub(super) remote: RefCell<BTreeMap<Uuid, Arc<dyn Opener>>>,
}

/// Is told of a brick that was emptied and let go, on a thread of its own.
pub type OnGone = Arc<dyn Fn(Uuid) + Send + Sync>;

/// The volumes of a shard, by number.
#[derive(Default)]
struct Volumes {
    last: Cell<u64>,
    volumes: RefCell<BTreeMap<u64, Rc<Here>>>,
}

/// The volume with this number.
pub fn find(shard: &Shard, key: u64) -> Option<Rc<Here>> {
    shard.local::<Volumes>().volumes.borrow().get(&key).cloned()
}

/// A volume that was brought up.
pub struct Up {
    /// Its number on the shard.
    pub key: u64,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// UUID of each brick that was given, in the same order.
    pub bricks: Vec<Uuid>,
    /// Those of them that the volume has let go: an earlier life was adding or removing them.
    pub gone: Vec<Uuid>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// How a volume is brought up.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Although bricks are missing.
    pub degraded: bool,
    /// With bricks that were away while the volume was in use.
    pub take_back: bool,
    /// Nothing is changed.
    pub read_only: bool,
    /// With less than half of the bricks that hold the metadata.
    pub minority: bool,
}

/// Opens a brick, plugged where it gains from that; metered, so that one that has nothing to do gets two requests
/// rather than one large one, and is not idle between the end of one and the next.
///
/// # Errors
/// When it is not there.
pub fn open(shard: &Shard, opener: &dyn Opener) -> Result<Rc<dyn Device>> {
    let device = opener.open(shard)?;
    Ok(match device.info().wants_plug {
        true => Plug::metered(shard, Metered::new(shard, device)),
        false => device,
    })
}

/// Opens bricks and reads their superblocks.
///
/// # Errors
/// When one cannot be opened or read, or is no brick.
pub async fn examine(shard: &Shard, bricks: &[Arc<dyn Opener>]) -> Result<Vec<FoundBrick>> {
    let mut found = Vec::new();
    for opener in bricks {
        let name = || format!("brick {}", opener.name());
        let device = open(shard, &**opener).with_context(name)?;
        found.push(assemble::examine(shard, device).await.with_context(name)?);
    }
    Ok(found)
}

/// Brings up the volume on these bricks.
///
/// # Errors
/// When they do not make a volume, or it cannot be read.
pub async fn bring_up(
    shard: &Shard,
    bricks: Vec<Arc<dyn Opener>>,
    how: How,
    gone: OnGone,
) -> Result<Up> {
    let found = examine(shard, &bricks).await?;
    let uuids: Vec<Uuid> =
        found.iter().map(|brick| Uuid::from_bytes(brick.superblock.brick_uuid)).collect();
    let How { degraded, take_back, read_only, minority } = how;
    let options = AssembleOptions { degraded, take_back, read_only, minority };
    let assembly = assemble::assemble(found, options)?;
    let (name, uuid) = (assembly.name.clone(), assembly.uuid);
    let unclean = assembly.unclean;
    let opened = assemble::open(shard, assembly, clock(), CACHE_BYTES).await?;
    let mut notes = opened.notes.borrow().clone();
    if unclean {
        notes.push(format!("volume {name} was not unmounted in order; its metadata was verified"));
    }
    let from = opened.mount_of();
    let is_gone = |uuid: &&Uuid| from.devices.iter().all(|device| device.uuid != **uuid);
    let let_go = uuids.iter().filter(is_gone).copied().collect();
    let volume = match Volume::mount(shard, from).await {
        Ok(volume) => volume,
        Err(error) => {
            // The error above is the one that matters.
            let _ = opened.close().await;
            return Err(error.into());
        }
    };
    let turn = Budget::new(shard, 1);
    let stuck = RefCell::default();
    let remote = uuids.iter().copied().zip(&bricks).filter(|(_, opener)| opener.is_remote());
    let remote = remote.map(|(uuid, opener)| (uuid, Arc::clone(opener))).collect();
    let remote = RefCell::new(remote);
    let here = Rc::new(Here {
        shard: shard.clone(),
        volume,
        opened,
        turn,
        stuck,
        closing: Cell::new(false),
        remote,
    });
    look_after(&here, gone);
    let known = shard.local::<Volumes>();
    let key = known.last.get() + 1;
    known.last.set(key);
    known.volumes.borrow_mut().insert(key, here);
    Ok(Up { key, name, uuid, bricks: uuids, gone: let_go, notes })
}

/// As long as the volume is up: bricks that were emptied are let go, and the superblocks say what the others are.
fn look_after(here: &Rc<Here>, gone: OnGone) {
    let (weak, shard) = (Rc::downgrade(here), here.shard.clone());
    here.shard.spawn(async move {
        let mut told = String::new();
        loop {
            shard.sleep(LOOK_EVERY).await;
            let Some(here) = weak.upgrade() else { break };
            let noted = here.note_bricks().await;
            let error = noted.err().map_or(String::new(), |error| error.to_string());
            // It is tried again with every look; one line is enough.
            if !error.is_empty() && error != told {
                tracing::error!(
                    "writing to the superblocks what has become of the bricks: {error}"
                );
            }
            told = error;
            for uuid in here.let_go(false).await {
                let gone = Arc::clone(&gone);
                // The shard does not wait for what is noted in files.
                std::thread::spawn(move || gone(uuid));
            }
        }
    });
}

impl Here {
    /// The superblocks know a brick: it is there, or they call it away.
    fn is_known(&self, gone: &Gone) -> bool {
        let superblocks = &self.opened.superblocks;
        match superblocks.brick(gone.id) {
            Some((_, superblock)) => superblock.brick_uuid == gone.uuid.into_bytes(),
            None => superblocks.away().contains(&gone.id),
        }
    }

    /// What the volume has let go its superblocks let go too. Gives what is no brick any more; what cannot be let go now
    /// is tried again the next time. At the end of a mount, `only_missing`, those that are there are left to the next one.
    async fn let_go(&self, only_missing: bool) -> Vec<Uuid> {
        let _turn = self.turn.take(1).await;
        let mut let_go = Vec::new();
        let before = self.stuck.take();
        for gone in before.iter().copied().chain(self.volume.take_gone()) {
            if !self.is_known(&gone) {
                continue;
            }
            if only_missing && self.opened.superblocks.brick(gone.id).is_some() {
                self.stuck.borrow_mut().push(gone);
                continue;
            }
            let removed = self.opened.brick_removed(gone.id).await;
            if let Err(error) = &removed
                && !before.contains(&gone)
            {
                tracing::error!(brick = gone.id, "letting the brick go: {error}");
            }
            if self.is_known(&gone) {
                // Its superblocks and its lock stay: the metadata may lie on it.
                self.stuck.borrow_mut().push(gone);
            } else {
                self.remote.borrow_mut().remove(&gone.uuid);
                let_go.push(gone.uuid);
            }
        }
        let_go
    }

    /// Has the superblocks say what each brick is for, its weight, and which have failed.
    ///
    /// # Errors
    /// When they cannot be written.
    pub async fn note_bricks(&self) -> Result<()> {
        let _turn = self.turn.take(1).await;
        if self.closing.get() {
            return Ok(());
        }
        for brick in self.volume.bricks() {
            let id = brick.id;
            let known = self.opened.superblocks.brick(id).is_some();
            match brick.failure() {
                Some(_) if known || self.opened.store.bricks().contains(&id) => {
                    self.opened.brick_lost(id).await?;
                }
                None if known => {
                    self.opened.brick_changed(id, brick.state(), brick.weight()).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Ends the volume in order: everything is durable afterwards, its superblocks say so, its bricks are closed.
///
/// # Errors
/// What could not be written.
pub async fn take_down(shard: &Shard, key: u64) -> Result<()> {
    let Some(here) = shard.local::<Volumes>().volumes.borrow_mut().remove(&key) else {
        return Ok(());
    };
    // One that was removed a moment ago is not to be missed at the next mount.
    here.let_go(true).await;
    // A brick that is being used again, or let go, is it first.
    here.closing.set(true);
    let _turn = here.turn.take(1).await;
    if let Err(error) = here.volume.close().await {
        // The superblocks are marked clean only where all of it is durable: the next mount is one after a crash.
        let stopped = here.opened.store.stop().await;
        let also = stopped.err().map(|also| format!("; {also}")).unwrap_or_default();
        bail!("writing the last changes: {error}{also}");
    }
    here.opened.close().await.context("closing the volume's metadata")
}

/// The time of day as Linux stamps files with it, that of the last tick. The kernel holds the times of what is written back;
/// a file that was made and written within a tick has them already, and they need not be set when it is closed.
pub fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // Between 0 and 999,999,999.
    Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The time of day, as volumes want it.
pub fn clock() -> Clock {
    Rc::new(now)
}

/// Has `job` done with the volume on its shard, and waits. Must not be called on a shard.
///
/// # Errors
/// When the volume is not mounted any more.
pub fn with<T, F, W>(home: &Remote, key: u64, job: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(Rc<Here>) -> W + Send + 'static,
    W: Future<Output = T> + 'static,
{
    let done = on_shard::run(home, move |shard| {
        let here = find(&shard, key);
        async move {
            match here {
                Some(here) => Some(job(here).await),
                None => None,
            }
        }
    })?;
    done.context("the volume is being unmounted")
}
