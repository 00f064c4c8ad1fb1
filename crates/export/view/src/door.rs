//! The door: a mount, and what a server asks of it.

use crate::content::Valve;
use crate::desk::Desk;
use crate::filesystem::{DATA, View};
use crate::offered::{Offer, Offered};
use crate::texts::Texts;
use braid_device::Target;
use braid_export::gate::Gate;
use braid_export::{
    Client, Connections, Export, HandOverError, Hold, Listening, OfferError, Register,
};
use braid_filesystem::{Caller, Time};
use braid_fuse::{EndedBy, Mount, MountError, MountOptions, UnmountError};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The protocol's name.
const PROTOCOL: &str = "fuse";
/// The largest request of the kernel, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// How long a stop waits for calls that are about to end. Files that stay open longer lose the view under them.
const CALLS_END: Duration = Duration::from_secs(1);

/// The resources that all users of a view may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of reads and, again, of writes under way.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 32 << 20 }
    }
}

/// The views of a shard, by the registers of their doors.
#[derive(Default)]
struct Views(RefCell<Vec<(u64, Weak<View>)>>);

/// A mounted view. Dropping it unmounts it.
pub struct Door {
    dir: PathBuf,
    limits: Limits,
    mount: Mutex<Option<Mount>>,
    offered: Arc<Offered>,
    register: Arc<Register>,
    /// The one shard that serves the mount.
    shard: Remote,
}

impl Door {
    /// Mounts a tree at `dir`, an empty directory, with `targets` and `texts`. It is served by `shard`. Must not be called
    /// on a shard's thread.
    ///
    /// # Errors
    /// When the mount point or the machine does not allow it. See [`MountError`].
    pub fn start(
        limits: &Limits,
        shard: &Remote,
        dir: &Path,
        texts: &Arc<dyn Texts>,
        targets: &[Arc<dyn Target>],
    ) -> Result<Door, MountError> {
        let thread = |error| MountError::Thread { dir: dir.to_path_buf(), error };
        let desk = Desk::start(texts).map_err(thread)?;
        let offered = Arc::new(Offered::default());
        let register = Arc::new(Register::new(0));
        for target in targets {
            offered.add(Offer::new(Arc::clone(target), Gate::new(shard.clone())));
        }
        let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
        let options = MountOptions {
            // Nothing is kept: others write through other doors.
            writeback_cache: false,
            attr_timeout: Duration::ZERO,
            entry_timeout: Duration::ZERO,
            max_write: REQUEST_BYTES_MAX,
            memory,
            ..MountOptions::new(dir, "arrays")
        };
        let (known, door) = (Arc::clone(&offered), Arc::clone(&register));
        let open = move |shard: &Shard| {
            let valve = Valve::new(shard);
            let hold = Rc::clone(&valve) as Rc<dyn Hold>;
            Connections::enter(shard, &door, &hold);
            let view = Rc::new(View::new(shard, known, desk, valve, (now(), owner())));
            let views = shard.local::<Views>();
            views.0.borrow_mut().push((door.id(), Rc::downgrade(&view)));
            view
        };
        let place = dir.to_path_buf();
        let mount = Mount::start(options, shard.clone(), open, move |end| {
            let dir = place.display();
            match end.by {
                EndedBy::Us => {}
                EndedBy::Outside => {
                    tracing::warn!("{dir} was unmounted: there is no FUSE view any more")
                }
                EndedBy::Failed(error) => {
                    tracing::error!(%error, "the FUSE view at {dir} has ended")
                }
            }
        })?;
        Ok(Door {
            dir: dir.to_path_buf(),
            limits: *limits,
            mount: Mutex::new(Some(mount)),
            offered,
            register,
            shard: shard.clone(),
        })
    }

    fn mount(&self) -> MutexGuard<'_, Option<Mount>> {
        // Every change is a single step, so a panic elsewhere leaves it whole.
        self.mount.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_of(&self, target: &str) -> PathBuf {
        self.dir.join(target).join(DATA)
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Time { seconds, nanos: since.subsec_nanos() }
}

fn owner() -> Caller {
    use rustix::process::{getegid, geteuid};
    Caller { uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

impl Export for Door {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn locations(&self, target: &str) -> Vec<String> {
        let location = || self.file_of(target).display().to_string();
        self.offers(target).then(location).into_iter().collect()
    }

    fn limits(&self) -> braid_export::Limits {
        braid_export::Limits {
            // As many as the system has open files.
            connections: usize::MAX,
            memory: self.limits.memory.saturating_mul(2),
            request_bytes: u64::from(REQUEST_BYTES_MAX),
        }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let name = target.info().name;
        if self.offered.add(Offer::new(target, Gate::new(self.shard.clone()))) {
            return Ok(());
        }
        let source = "there is one of that name; give it another".into();
        Err(OfferError { target: name, protocol: PROTOCOL, source })
    }

    fn offers(&self, target: &str) -> bool {
        let is_mounted = self.mount().as_ref().is_some_and(Mount::is_mounted);
        is_mounted && self.offered.find(target).is_some()
    }

    fn clients(&self) -> Vec<Client> {
        let opened = |offer: &Arc<Offer>| {
            let opens = offer.opens();
            let times = if opens == 1 { "once" } else { "several times" };
            (opens > 0).then(|| Client {
                target: offer.name.clone(),
                protocol: PROTOCOL,
                address: format!("{}, open {times}", self.file_of(&offer.name).display()),
                traffic: offer.figures.traffic(),
            })
        };
        self.offered.list().iter().filter_map(opened).collect()
    }

    fn withdraw(&self, target: &str) {
        let Some(offer) = self.offered.remove(target) else { return };
        let (door, number) = (self.register.id(), offer.number);
        self.shard.call(move |shard| {
            let views = shard.local::<Views>();
            let view = views.0.borrow().iter().find(|(of, _)| *of == door).cloned();
            if let Some(view) = view.and_then(|(_, view)| view.upgrade()) {
                view.withdraw(number);
            }
        });
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        let unused = self.offered.remove_unused(target);
        unused.map_err(|opens| usize::try_from(opens).unwrap_or(usize::MAX))
    }

    fn drain(&self, limit: Duration) -> u64 {
        Connections::drain(std::slice::from_ref(&self.shard), &self.register, limit)
    }

    fn resume(&self) {
        Connections::resume(std::slice::from_ref(&self.shard), &self.register);
    }

    /// Nothing: the successor mounts a view of its own.
    fn hand_over(&self) -> Result<Vec<Listening>, HandOverError> {
        Ok(Vec::new())
    }

    fn stop(&self) {
        // Taken out at once: a second call does nothing.
        let Some(mount) = self.mount().take() else { return };
        self.register.close();
        Connections::stop_all(std::slice::from_ref(&self.shard), &self.register);
        let Err((error, still)) = unmount_after_calls(mount) else { return };
        let lazily = matches!(error, UnmountError::Busy { .. });
        if !lazily {
            tracing::warn!("{error}");
        }
        // Those who still use it get errors until they leave.
        if let Some(mount) = still
            && let Err((error, _)) = mount.unmount_lazily()
        {
            tracing::warn!("{error}");
        }
    }
}

/// Unmounts, and waits [`CALLS_END`] for that: who has just written the order that ended the last target is still in that
/// call, and is to have its answer.
fn unmount_after_calls(mut mount: Mount) -> Result<(), (UnmountError, Option<Mount>)> {
    let patience = Instant::now() + CALLS_END;
    loop {
        match mount.unmount() {
            Err((UnmountError::Busy { .. }, Some(still))) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(2));
                mount = still;
            }
            done => return done,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop();
    }
}
