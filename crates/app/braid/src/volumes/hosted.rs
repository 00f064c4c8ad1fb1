//! One mounted volume, from its start to its end: bricks opened and locked, brought up on a shard, mounted; unmounted,
//! made durable, closed.
//!
//! The end is the same whoever begins it: our unmount, an unmount from outside, or a signal.

use super::exported::Exported;
use super::here::{self, Here, How, OnGone, Up};
use super::lost;
use crate::on_shard;
use crate::output;
use anyhow::{Context, Result, bail};
use braid_array::stacking::PREFIX;
use braid_device::Opener;
use braid_filesystem::{FileSystem, Ino, Leases};
use braid_fuse::{Ended, EndedBy, Front, Mount, MountOptions, Without};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_volume::{FileCounts, LeaseReader};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use uuid::Uuid;

/// A brick that is open and locked.
#[derive(Clone)]
pub struct Held {
    /// Its UUID.
    pub uuid: Uuid,
    /// Where it is.
    pub name: String,
    /// What keeps it open.
    pub open: Arc<dyn Opener>,
}

/// The bricks of a volume, as all its shards see them.
#[derive(Clone, Default)]
struct Bricks(Arc<Mutex<Vec<Held>>>);

impl Bricks {
    /// One that every shard reads by itself. None of another host: a shard has a connection of its own to it, which need not show
    /// what another has just written.
    fn readable(&self, uuid: Uuid) -> Option<Arc<dyn Opener>> {
        let bricks = locked(&self.0);
        let brick = bricks.iter().find(|brick| brick.uuid == uuid && !brick.open.is_remote())?;
        Some(Arc::clone(&brick.open))
    }

    /// The mount on another shard.
    fn front(&self, remote: Remote, counts: Arc<FileCounts>) -> Front {
        let bricks = self.clone();
        let open = move |shard: &Shard, uuid| {
            let opener = bricks.readable(uuid)?;
            let opened = here::open(shard, &*opener);
            opened.inspect_err(|error| tracing::debug!("reading on another shard: {error}")).ok()
        };
        let leases =
            |shard: &Shard| LeaseReader::new(shard, Box::new(open), counts) as Rc<dyn Leases>;
        Front { remote, open: Box::new(leases) }
    }
}

/// What has been done until some time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Bytes that the bricks have read and written, by number.
    pub bricks: BTreeMap<u16, (u64, u64)>,
    /// Bytes of metadata that the check under way has come to.
    pub checked: u64,
}

/// See the module's documentation.
pub struct Hosted {
    pub name: String,
    pub uuid: Uuid,
    /// Where it is mounted.
    pub dir: PathBuf,
    pub read_only: bool,
    /// Everything was made durable at its end, and its bricks closed; false until then.
    pub well: AtomicBool,
    /// Others were to be let in, too.
    pub allow_other: bool,
    /// Uses of its files that the kernel refuses.
    pub without: Without,
    pub since: Instant,
    home: Remote,
    key: u64,
    /// `None`: it is not mounted yet, or being unmounted.
    mount: Mutex<Option<Mount>>,
    bricks: Bricks,
    pub exports: Mutex<Vec<Exported>>,
    pub sample: Mutex<Option<Sample>>,
    /// The job that was started last and that nobody has waited for: it may have ended before anybody could.
    pub started: Mutex<Option<String>>,
    /// Bytes per second that jobs may move, where that is limited.
    pub job_speed: Mutex<Option<u64>>,
    /// Microseconds that requests of files may take before jobs slow down, where that was set.
    pub job_latency: Mutex<Option<u64>>,
}

/// What is to be mounted.
pub struct Start {
    /// The bricks.
    pub bricks: Vec<(String, Arc<dyn Opener>)>,
    /// How it is brought up.
    pub how: How,
    /// Where it is mounted, and how.
    pub dir: PathBuf,
    /// Other users may come in; else only where root mounts.
    pub allow_other: bool,
    /// Uses of its files that the kernel refuses.
    pub without: Without,
    /// Where it lives.
    pub home: Remote,
    /// The other shards.
    pub others: Vec<Remote>,
}

/// Is told, on a thread of its own, of what happens to volumes by themselves.
pub trait Events: Send + Sync {
    /// It has ended, and its bricks are closed, of which `arrays` are arrays.
    fn ended(&self, hosted: &Arc<Hosted>, arrays: &[String]);

    /// A brick was emptied and let go.
    fn brick_gone(&self, volume: Uuid, brick: Uuid);
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single call, so a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosted {
    /// Brings the volume up and mounts it; with the bricks that it has let go at once, and what the user should know.
    ///
    /// # Errors
    /// When the bricks do not make a volume, or the mount point is none. Everything is closed again.
    pub fn start(
        start: Start,
        events: &Arc<dyn Events>,
    ) -> Result<(Arc<Hosted>, Vec<Uuid>, Vec<String>)> {
        let Start { bricks, how, dir, allow_other, without, home, others } = start;
        let openers: Vec<Arc<dyn Opener>> =
            bricks.iter().map(|(_, opener)| Arc::clone(opener)).collect();
        let volume = Arc::new(OnceLock::<Uuid>::new());
        let (known, told) = (Arc::clone(&volume), Arc::clone(events));
        let gone: OnGone = Arc::new(move |brick| {
            if let Some(volume) = known.get() {
                told.brick_gone(*volume, brick);
            }
        });
        let up = on_shard::run(&home, move |shard| async move {
            here::bring_up(&shard, openers, how, gone).await
        })??;
        let key = up.key;
        let counts = on_shard::run(&home, move |shard| async move {
            let here = here::find(&shard, key)?;
            if !how.read_only {
                lost::look_for_lost(&here);
            }
            Some(here.volume.file_counts())
        })?;
        let counts = counts.unwrap_or_default();
        // Nobody else sets it.
        let _ = volume.set(up.uuid);
        let mut options = MountOptions::new(&dir, &up.name);
        options.access_lists = true;
        options.read_only = how.read_only;
        options.allow_other |= allow_other;
        options.without = without;
        // This very program, also when there is another in its place by now.
        options.guard = ["/proc/self/exe", "volume", "guard"].map(OsString::from).to_vec();
        let mounted = Arc::new(OnceLock::<Arc<Hosted>>::new());
        let (at_end, told) = (Arc::clone(&mounted), Arc::clone(events));
        let open = move |shard: &braid_shard::Shard| {
            let here = here::find(shard, key);
            // It was brought up above, and only its end takes it down.
            Rc::clone(&here.expect("the volume is on this shard").volume)
        };
        let held = Bricks::default();
        let fronts =
            others.into_iter().map(|remote| held.front(remote, Arc::clone(&counts))).collect();
        let mount = Mount::start_on(options, home.clone(), fronts, open, move |end| {
            // Not before `start` has come to its end.
            let hosted = at_end.wait();
            let arrays = hosted.wind_up(&end);
            told.ended(hosted, &arrays);
        });
        let mount =
            match mount {
                Ok(mount) => mount,
                Err(error) => {
                    let down = on_shard::run(&home, move |shard| async move {
                        here::take_down(&shard, key).await
                    });
                    if let Err(also) = down.and_then(|done| done) {
                        output::note(format!("braid: after the error that follows: {also:#}"));
                    }
                    return Err(error.into());
                }
            };
        let dir = mount.dir().to_path_buf();
        let start = Start { bricks, how, dir, allow_other, without, home, others: Vec::new() };
        let hosted = Arc::new(Hosted::of(&up, start, Some(mount), held));
        // Nobody else sets it.
        let _ = mounted.set(Arc::clone(&hosted));
        Ok((hosted, up.gone, up.notes))
    }

    /// Brings a volume up that nobody mounts: files are not reached, all else is as ever.
    ///
    /// # Errors
    /// When the bricks do not make a volume. Everything is closed again.
    pub(super) fn bring_up(start: Start) -> Result<Hosted> {
        let (how, home) = (start.how, start.home.clone());
        let openers: Vec<Arc<dyn Opener>> =
            start.bricks.iter().map(|(_, opener)| Arc::clone(opener)).collect();
        // Bricks that it lets go are erased at the next mount.
        let gone: OnGone = Arc::new(|_| ());
        let up = on_shard::run(&home, move |shard| async move {
            here::bring_up(&shard, openers, how, gone).await
        })??;
        Ok(Hosted::of(&up, start, None, Bricks::default()))
    }

    /// It ends: everything is durable, and nothing of it is left on its shard.
    ///
    /// # Errors
    /// When not everything could be written.
    pub(super) fn take_down(&self) -> Result<()> {
        let key = self.key;
        on_shard::run(&self.home, move |shard| async move { here::take_down(&shard, key).await })?
    }

    fn of(up: &Up, start: Start, mount: Option<Mount>, held: Bricks) -> Hosted {
        let Start { bricks, how, dir, allow_other, without, home, .. } = start;
        let all = bricks.into_iter().zip(&up.bricks);
        let all = all.map(|((name, opener), uuid)| Held { uuid: *uuid, name, open: opener });
        locked(&held.0).extend(all);
        Hosted {
            name: up.name.clone(),
            uuid: up.uuid,
            dir,
            read_only: how.read_only,
            well: AtomicBool::new(false),
            allow_other,
            without,
            since: Instant::now(),
            home,
            key: up.key,
            mount: Mutex::new(mount),
            bricks: held,
            exports: Mutex::default(),
            sample: Mutex::default(),
            started: Mutex::default(),
            job_speed: Mutex::default(),
            job_latency: Mutex::default(),
        }
    }

    /// Has `job` done on the volume's shard, and waits.
    ///
    /// # Errors
    /// When it is not mounted any more.
    pub fn with<T, F, W>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Here>) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        here::with(&self.home, self.key, job).with_context(|| format!("volume {}", self.name))
    }

    /// Its mount is gone, or about to be.
    pub fn has_ended(&self) -> bool {
        locked(&self.mount).is_none()
    }

    /// Its mount is gone, whoever unmounted it: what is left is to make it durable and to close its bricks.
    pub fn is_ending(&self) -> bool {
        locked(&self.mount).as_ref().is_none_or(|mount| !mount.is_mounted())
    }

    /// Its shard.
    pub fn home(&self) -> &Remote {
        &self.home
    }

    /// Its number there.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Its bricks.
    pub fn bricks(&self) -> Vec<Held> {
        locked(&self.bricks.0).clone()
    }

    /// It has one brick more.
    pub fn hold(&self, brick: Held) {
        locked(&self.bricks.0).push(brick);
    }

    /// It has one brick less, which is closed.
    pub fn let_go(&self, uuid: Uuid) -> Option<Held> {
        let mut bricks = locked(&self.bricks.0);
        let at = bricks.iter().position(|brick| brick.uuid == uuid)?;
        Some(bricks.remove(at))
    }

    /// Where a brick is, as it was given.
    pub fn brick_name(&self, uuid: Uuid) -> Option<String> {
        locked(&self.bricks.0)
            .iter()
            .find(|brick| brick.uuid == uuid)
            .map(|brick| brick.name.clone())
    }

    /// Unmounts it and waits until everything is durable and closed.
    ///
    /// # Errors
    /// When it is in use; it stays mounted then. When the last changes could not be written.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        let Some(mount) = locked(&self.mount).take() else {
            bail!("volume {} is being unmounted already", self.name);
        };
        let done = if lazy { mount.unmount_lazily() } else { mount.unmount() };
        done.map_err(|(error, mount)| {
            *locked(&self.mount) = mount;
            error.into()
        })
    }

    /// Unmounts it at the end of the server, also when it is in use: what was written is durable afterwards.
    ///
    /// # Errors
    /// What could not be written.
    pub fn unmount_at_end(&self) -> Result<()> {
        self.stop_exports();
        let Err(error) = self.unmount(false) else { return Ok(()) };
        output::note(format!(
            "braid: {error}; it is unmounted lazily, since the server ends",
            error = crate::output::said(&error)
        ));
        self.sync_from_above();
        self.unmount(true)?;
        self.take_down()
    }

    /// Whether the kernel's requests come over io_uring.
    pub fn is_over_io_uring(&self) -> bool {
        locked(&self.mount).as_ref().is_some_and(Mount::is_over_io_uring)
    }

    /// Has the kernel hand over what it holds back for writing; what keeps it from that is told to the user, who goes on.
    pub fn sync_from_above(&self) {
        if let Err(error) = self.write_out() {
            output::note(format!("braid: syncing {}: {error}", self.dir.display()));
        }
    }

    /// The same.
    ///
    /// # Errors
    /// When something of it could not be written.
    pub fn write_out(&self) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&self.dir, flags, Mode::empty())?;
        Ok(rustix::fs::syncfs(dir)?)
    }

    /// Has the kernel forget the content of a file that was changed beside it.
    pub fn forget_content(&self, ino: Ino) {
        if let Some(mount) = &*locked(&self.mount)
            && let Err(error) = mount.forget_content(ino, 0)
        {
            tracing::debug!(%error, ino, "the kernel was to forget a file");
        }
    }

    /// Has the kernel forget a name in a directory, or that there is none, which came or went beside it.
    pub fn forget_name(&self, parent: Ino, name: &[u8]) {
        if let Some(mount) = &*locked(&self.mount)
            && let Err(error) = mount.forget_name(parent, name)
        {
            tracing::debug!(%error, parent, "the kernel was to forget a name");
        }
    }

    /// True if a process has a file open to write at the mount point.
    pub fn is_open_to_write(&self, ino: Ino) -> bool {
        locked(&self.mount).as_ref().is_some_and(|mount| mount.is_open_to_write(ino))
    }

    /// True when `dir` is where it is mounted.
    pub fn is_at(&self, dir: &str) -> bool {
        Path::new(dir) == self.dir
    }

    /// The mount is gone: all that was written is made durable, the bricks are closed. Gives the arrays among them.
    fn wind_up(&self, end: &Ended) -> Vec<String> {
        self.stop_exports();
        let down = self.take_down();
        let name = &self.name;
        self.well.store(down.is_ok(), Ordering::Release);
        match (&end.by, down) {
            (_, Err(error)) => output::note(format!(
                "braid: volume {name}: {error}",
                error = crate::output::said(&error)
            )),
            (EndedBy::Failed(error), Ok(())) => {
                output::note(format!(
                    "braid: volume {name} lost its mount: {error}; it is unmounted"
                ));
            }
            (EndedBy::Outside, Ok(())) => {
                output::note(format!("braid: volume {name} was unmounted"))
            }
            (EndedBy::Us, Ok(())) => {}
        }
        let bricks = std::mem::take(&mut *locked(&self.bricks.0));
        locked(&self.mount).take();
        let array = |held: &Held| held.name.strip_prefix(PREFIX).map(str::to_string);
        bricks.iter().filter_map(array).collect()
    }
}

impl Hosted {
    /// Ends all exports.
    pub fn stop_exports(&self) {
        let exports = std::mem::take(&mut *locked(&self.exports));
        exports.iter().for_each(|export| self.stop_export(export));
    }

    pub(super) fn stop_export(&self, export: &Exported) {
        export.door.stop();
        self.close(export.ino);
        self.forget_content(export.ino);
    }

    pub(super) fn close(&self, ino: Ino) {
        // A volume that is gone has closed its files.
        let _ = self.with(move |here| async move {
            here.volume.end_export(ino);
            FileSystem::close(&*here.volume, ino);
        });
    }
}
