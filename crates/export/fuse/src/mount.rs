//! A mount from its start to its end.
//!
//! Requests come to the shard, over its io_uring or through the device. Threads: one asks the kernel to write files out;
//! one looks whether shard and kernel wait for each other; one waits for the end, which comes with the unmount, whoever
//! does it, and then winds the mount up on the shard. That one lives as long as the mount, so the mount's guard is its child.

use crate::channel::{Channel, Notices};
use crate::fronts::{self, FRONTS_MAX, Msg, NewFront, Shared};
use crate::install::{Opened, install};
use crate::kernel;
use crate::mountpoint::MountPoint;
use crate::options::{Ended, EndedBy, MountError, MountOptions, UnmountError};
use crate::serve;
use crate::watchdog::{Progress, Pulse, Watchdog};
use crate::write_out::WriteOut;
use braid_filesystem::{Errno, FileSystem, Ino, Leases};
use braid_shard::mailbox::{MeshEnd, Remote, mesh};
use braid_shard::{Shard, ShardId};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A mounted file system. Dropping it unmounts lazily: what is in use goes on until it is not.
pub struct Mount {
    point: MountPoint,
    notices: Notices,
    end: Arc<Known>,
    /// Gives what came of the last sync.
    session: Option<JoinHandle<Result<(), Errno>>>,
}

/// A further shard that serves a mount.
pub struct Front {
    /// The shard.
    pub remote: Remote,
    /// Makes, on that shard, what holds its leases of files.
    pub open: OpenLeases,
}

/// Makes the leases of a shard, there.
pub type OpenLeases = Box<dyn FnOnce(&Shard) -> Rc<dyn Leases> + Send>;

/// A front that was started: its shard, and its number there.
type Started = Vec<(Remote, usize)>;

type IsOpenToWrite = Box<dyn Fn(Ino) -> bool + Send + Sync>;

/// State that both sides share.
#[derive(Default)]
struct Known {
    /// We are the ones who unmount.
    ours: AtomicBool,
    /// The kernel's side is gone, and with it the device number: what is mounted there now is another's.
    gone: AtomicBool,
    /// True if requests come over io_uring.
    over_io_uring: bool,
    /// Asks the shard.
    is_open_to_write: Option<IsOpenToWrite>,
}

impl Mount {
    /// Mounts what `open` gives, which is called on the shard of `remote` and lives there. `ended` is called, on a
    /// thread of its own, when the mount is gone and everything is durable, whoever unmounted.
    ///
    /// Must not be called on a shard's thread.
    ///
    /// # Errors
    /// When the mount point or the machine does not allow it; nothing is mounted then. See [`MountError`].
    pub fn start<F: FileSystem + 'static>(
        options: MountOptions,
        remote: Remote,
        open: impl FnOnce(&Shard) -> Rc<F> + Send + 'static,
        ended: impl FnOnce(Ended) + Send + 'static,
    ) -> Result<Mount, MountError> {
        Mount::start_on(options, remote, Vec::new(), open, ended)
    }

    /// The same with further shards that take part when there is much to do: as [`Leases`] allow they read by themselves, and what
    /// else they get they pass on to the shard of `remote`. All of them together must be the shards from 0 on.
    ///
    /// # Errors
    /// As [`Mount::start`]. Without a further reader of the device it is served by one shard.
    pub fn start_on<F: FileSystem + 'static>(
        options: MountOptions,
        remote: Remote,
        others: Vec<Front>,
        open: impl FnOnce(&Shard) -> Rc<F> + Send + 'static,
        ended: impl FnOnce(Ended) + Send + 'static,
    ) -> Result<Mount, MountError> {
        let (point, fuse) = MountPoint::mount(&options)?;
        let dir = point.dir().to_path_buf();
        let undo = |error| {
            // A mount that has not even started is not in use.
            if let Err(also) = point.unmount(true) {
                tracing::warn!("after an error: {also}");
            }
            Err(error)
        };
        let channel = Arc::new(Channel::new(fuse));
        let handshake = |error| MountError::Handshake { dir: dir.clone(), error };
        let takes_commands =
            remote.call(|shard| shard.ring().is_some_and(|ring| ring.takes_commands()));
        let Some(takes_commands) = takes_commands else {
            return undo(MountError::ShardGone { dir });
        };
        let agreed = kernel::agree(&channel, &options, takes_commands).and_then(|agreed| {
            channel.do_not_wait()?;
            Ok((agreed, channel.descriptor()?))
        });
        let (agreed, descriptor) = match agreed {
            Ok(agreed) => agreed,
            Err(error) => return undo(handshake(error)),
        };
        let notices = Notices::new(&channel);
        let write_out = Arc::new(WriteOut::default());
        if let Err(error) = write_out.start(notices.clone()) {
            return undo(MountError::Thread { dir, error });
        }
        let (send_end, session_end) = mpsc::channel();
        let watched = Arc::clone(&write_out);
        let further = match are_all(&remote, &others) {
            true => further_readers(&channel, others),
            false => Vec::new(),
        };
        // Shards have parts of the queues in the order of their numbers.
        let parts = if agreed.over_io_uring { further.len() as u16 + 1 } else { 1 };
        let nr = if parts > 1 { remote.id() } else { 0 };
        let queues = (nr, parts);
        let opened = Opened { queues, channel, descriptor, agreed, write_out, ended: send_end };
        let limits = options.clone();
        let Some(key) = remote.call(move |shard| {
            let fs = open(shard);
            install(shard, fs, opened, &limits)
        }) else {
            return undo(MountError::ShardGone { dir });
        };
        let (link, started) = match further.is_empty() {
            true => (None, Started::new()),
            false => start_fronts::<F>(&remote, key, further, &options, agreed.over_io_uring),
        };
        let (pulse, shard) = (Arc::new(Pulse::default()), remote.clone());
        let answers = Arc::clone(&pulse);
        let all: Arc<[(Remote, usize)]> = started.clone().into();
        let ask = move |look| {
            let (pulse, all) = (Arc::clone(&answers), Arc::clone(&all));
            shard.run(move |shard| {
                let at = serve::progress::<F>(shard, key).unwrap_or_default();
                answer(look, at, pulse, all, 0);
            })
        };
        let watchdog = Watchdog::start(point.clone(), watched, options.patience, pulse, ask);
        let watchdog = match watchdog {
            Ok(watchdog) => watchdog,
            Err(error) => return undo(MountError::Thread { dir, error }),
        };
        let shard = remote.clone();
        let is_open_to_write: IsOpenToWrite = Box::new(move |ino| {
            let asked = shard.call(move |shard| serve::is_open_to_write::<F>(shard, key, ino));
            asked.unwrap_or(false)
        });
        let wind_up = WindUp { remote, key, link, fronts: started };
        let abort = point.clone();
        let over_io_uring = agreed.over_io_uring;
        let end = Arc::new(Known {
            over_io_uring,
            is_open_to_write: Some(is_open_to_write),
            ..Known::default()
        });
        let known = Arc::clone(&end);
        let guarded = (options.guard.clone(), point.clone());
        let thread = std::thread::Builder::new().name("fuse-mount".to_owned());
        let spawned = thread.spawn(move || {
            let guard = guarded.1.guard(&guarded.0);
            let lost = |_| Err(std::io::Error::other("the shard has ended"));
            let result = session_end.recv().unwrap_or_else(lost);
            drop(watchdog);
            // A mount that failed may still be in the table of mounts.
            known.gone.store(result.is_ok(), Ordering::Release);
            let by = match result {
                _ if known.ours.load(Ordering::Acquire) => EndedBy::Us,
                Ok(()) => EndedBy::Outside,
                Err(error) => {
                    // Other shards may still have the device open.
                    if !wind_up.fronts.is_empty() {
                        abort.abort();
                    }
                    EndedBy::Failed(error)
                }
            };
            drop(guard);
            let durable = wind_up.run::<F>();
            ended(Ended { by, durable });
            durable
        });
        match spawned {
            Ok(session) => {
                point.tune(&options);
                Ok(Mount { point, notices, end, session: Some(session) })
            }
            Err(error) => undo(MountError::Thread { dir, error }),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.point.dir()
    }

    /// True if it is there still: false as soon as the kernel's side is gone, whoever unmounted it.
    pub fn is_mounted(&self) -> bool {
        !self.end.gone.load(Ordering::Acquire) && self.point.is_mounted()
    }

    /// True if requests come over io_uring, not through /dev/fuse.
    pub fn is_over_io_uring(&self) -> bool {
        self.end.over_io_uring
    }

    /// Unmounts, waits until all requests are answered, and makes everything durable.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] when files are open, with the mount given back; it is as it was.
    /// [`UnmountError::NotDurable`] when it is unmounted but its last sync failed.
    pub fn unmount(mut self) -> Result<(), (UnmountError, Option<Mount>)> {
        if let Err(error) = self.detach(false) {
            return Err((error, Some(self)));
        }
        let durable = self.session.take().map(JoinHandle::join);
        match durable {
            Some(Ok(Err(error))) => {
                let dir = self.point.dir().to_path_buf();
                Err((UnmountError::NotDurable { dir, error }, None))
            }
            // A panic was of the callback, after the end.
            _ => Ok(()),
        }
    }

    /// Takes it out of the tree at once; it ends, with a call of `ended`, when its last user does.
    ///
    /// # Errors
    /// When the kernel refuses; the mount is given back as it was.
    pub fn unmount_lazily(mut self) -> Result<(), (UnmountError, Option<Mount>)> {
        if let Err(error) = self.detach(true) {
            return Err((error, Some(self)));
        }
        self.session = None;
        Ok(())
    }

    fn detach(&self, lazy: bool) -> Result<(), UnmountError> {
        if self.end.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        self.end.ours.store(true, Ordering::Release);
        let result = self.point.unmount(lazy);
        if result.is_err() {
            self.end.ours.store(false, Ordering::Release);
        }
        result
    }

    /// True if a process has `ino` open to write; a mapped file counts as open.
    ///
    /// Must not be called on a shard's thread.
    pub fn is_open_to_write(&self, ino: Ino) -> bool {
        self.end.is_open_to_write.as_ref().is_some_and(|asked| asked(ino))
    }

    /// Has the kernel forget what it knows of a file: attributes, and the content from `offset` on (all of it
    /// for 0). For changes that did not come through the kernel.
    ///
    /// Must not be called on a shard's thread: the kernel may wait for requests under way.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn forget_content(&self, ino: Ino, offset: u64) -> std::io::Result<()> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        self.notices.forget_content(ino, offset)
    }

    /// Has the kernel forget what it knows of a name, or of its absence. As [`Mount::forget_content`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn forget_name(&self, parent: Ino, name: &[u8]) -> std::io::Result<()> {
        self.notices.forget_name(parent, name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.session.take().is_some()
            && let Err(error) = self.detach(true)
        {
            tracing::warn!("{error}");
        }
    }
}

/// These are the shards from 0 on, each once, so that there can be a mesh between them.
fn are_all(home: &Remote, others: &[Front]) -> bool {
    let mut ids: Vec<ShardId> = others.iter().map(|front| front.remote.id()).collect();
    ids.push(home.id());
    ids.sort_unstable();
    ids.len() <= FRONTS_MAX && ids.into_iter().zip(0..).all(|(id, nr)| id == nr)
}

/// A further reader of the device for each of `others`; none at all where one cannot be had.
fn further_readers(channel: &Channel, others: Vec<Front>) -> Vec<(Front, Channel)> {
    let with_reader = |front| Ok((front, channel.another()?));
    let further: std::io::Result<Vec<_>> = others.into_iter().map(with_reader).collect();
    further.unwrap_or_else(|error| {
        tracing::warn!("the mount is served by one shard: a further reader of /dev/fuse: {error}");
        Vec::new()
    })
}

/// Starts `fronts` of mount `key` of the shard of `home`; gives the number of their link there, and them.
fn start_fronts<F: FileSystem + 'static>(
    home: &Remote,
    key: usize,
    fronts: Vec<(Front, Channel)>,
    options: &MountOptions,
    over_io_uring: bool,
) -> (Option<usize>, Started) {
    let mut shards: Vec<Remote> = fronts.iter().map(|(front, _)| front.remote.clone()).collect();
    shards.push(home.clone());
    shards.sort_by_key(Remote::id);
    let ends = mesh::<Msg>(&shards, MESSAGES);
    let mut ends: BTreeMap<ShardId, MeshEnd<Msg>> =
        shards.iter().map(Remote::id).zip(ends).collect();
    let shared = Arc::new(Shared::default());
    // As many as there can be numbers of shards.
    let parts = shards.len() as u16;
    let (mut devices, mut started) = (BTreeMap::new(), Started::new());
    for (front, channel) in fronts {
        let Front { remote, open } = front;
        let channel = Arc::new(channel);
        let both = channel.descriptor().and_then(|own| Ok((own, channel.descriptor()?)));
        let (Ok((descriptor, at_home)), Some(end)) = (both, ends.remove(&remote.id())) else {
            continue;
        };
        let new = NewFront {
            home: home.id(),
            channel: Arc::clone(&channel),
            descriptor,
            end,
            shared: Arc::clone(&shared),
            memory: options.memory.max(options.max_write as usize) as u64,
            largest: options.max_write as usize,
            queues: over_io_uring.then(|| (remote.id(), parts)),
            writeback: options.writeback_cache,
            share_from: options.share_from,
        };
        devices.insert(remote.id(), (channel, at_home));
        if let Some(nr) = remote.call(move |shard| fronts::start(shard, open(shard), new)) {
            started.push((remote, nr));
        }
    }
    let Some(end) = ends.remove(&home.id()) else { return (None, started) };
    let from = options.share_from;
    let link = home.call(move |shard| fronts::attach::<F>(shard, key, end, devices, &shared, from));
    (link, started)
}

/// Answers a look when all of `fronts` from number `from` on have added to its answer.
fn answer(look: u64, at: Progress, pulse: Arc<Pulse>, fronts: Arc<[(Remote, usize)]>, from: usize) {
    let Some((remote, key)) = fronts.get(from).cloned() else { return pulse.answer(look, at) };
    // A shard that has ended answers no more, and neither does the mount.
    remote.run(move |shard| {
        let here = fronts::progress(shard, key).unwrap_or_default();
        let at = Progress {
            under_way: at.under_way + here.under_way,
            begun: at.begun.wrapping_add(here.begun),
        };
        answer(look, at, pulse, fronts, from + 1);
    });
}

/// The steps after the last request.
struct WindUp {
    remote: Remote,
    key: usize,
    link: Option<usize>,
    fronts: Started,
}

/// Messages that a ring between two shards holds; more wait at the sender.
const MESSAGES: usize = 256;

impl WindUp {
    /// The result of the last sync; when the shard is gone nothing is left to be synced.
    fn run<F: FileSystem + 'static>(self) -> Result<(), Errno> {
        let key = self.key;
        let result = self.remote.call_async(move |shard, done| {
            serve::end::<F>(shard, key, done);
        });
        for (remote, key) in self.fronts {
            remote.call_async(move |shard, done| fronts::end(shard, key, done));
        }
        if let Some(link) = self.link {
            self.remote.call(move |shard| fronts::detach(shard, link));
        }
        result.unwrap_or(Ok(()))
    }
}
