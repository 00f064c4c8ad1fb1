//! The volumes that are mounted in this server.
//!
//! Owns the list. Everything is asked of a volume on its shard; nothing here runs on a shard.

use super::arrays::Arrays;
use super::hosted::{Events, Hosted, locked};
use super::kept;
use crate::exit::refused;
use crate::lease::Session;
use crate::members::{Member, parse_bricks};
use crate::output;
use crate::settings::kept::Kept;
use anyhow::{Context, Result, bail};
use braid_control::protocol::Code;
use braid_device::Opener;
use braid_device::file::Mode;
use braid_shard::mailbox::Remote;
use braid_volume::VolumeStatus;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// See the module's documentation.
pub struct Volumes {
    pub(super) list: Mutex<Vec<Arc<Hosted>>>,
    remotes: Vec<Remote>,
    share_mounts: bool,
    pub(super) kept: Kept,
    /// The lease that volumes are mounted under.
    pub(super) lease: Option<Arc<Session>>,
    pub(super) events: Arc<dyn Events>,
    /// Held while volumes are made, mounted or changed: one at a time.
    pub(super) turn: Mutex<()>,
    /// The number of the next brick in memory, so that its name is its own.
    next_in_memory: AtomicU64,
    /// Requests that are not answered yet, and [`ENDING`].
    asked: AtomicUsize,
}

/// Set in the count of requests when no further one is carried out.
const ENDING: usize = 1 << (usize::BITS - 1);

/// A request that is not answered yet.
pub struct Asked<'a>(&'a AtomicUsize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Volumes {
    /// On these shards (true: all of them serve each mount), under `lease`; `events` is told of what happens by itself.
    pub fn new(
        (remotes, share_mounts): (Vec<Remote>, bool),
        kept: Kept,
        lease: Option<Arc<Session>>,
        events: Arc<dyn Events>,
    ) -> Volumes {
        Volumes {
            list: Mutex::default(),
            remotes,
            share_mounts,
            kept,
            lease,
            events,
            turn: Mutex::default(),
            next_in_memory: AtomicU64::new(0),
            asked: AtomicUsize::new(0),
        }
    }

    /// A request comes; it is answered when what is given is dropped. `None`: the server ends.
    pub fn ask(&self) -> Option<Asked<'_>> {
        let before = self.asked.fetch_add(1, Ordering::AcqRel);
        let asked = Asked(&self.asked);
        (before & ENDING == 0).then_some(asked)
    }

    /// Ends it when no volume is mounted and nobody but `own` requests waits for an answer: none is carried out from
    /// then on. True when it has ended.
    pub fn end_if_idle(&self, own: usize) -> bool {
        // Whoever mounts a volume puts it on the list before the request is over.
        let list = locked(&self.list);
        let (from, to) = (own, own | ENDING);
        let ends = || self.asked.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        list.is_empty() && (self.asked.load(Ordering::Acquire) & ENDING != 0 || ends().is_ok())
    }

    /// The volumes that are mounted.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        locked(&self.list).clone()
    }

    /// Takes a volume that has ended off the list.
    pub fn forget(&self, hosted: &Arc<Hosted>) {
        locked(&self.list).retain(|known| !Arc::ptr_eq(known, hosted));
    }

    /// The volume that has this array as a brick.
    pub fn user_of(&self, array: &str) -> Option<String> {
        let brick = format!("{}{array}", braid_array::stacking::PREFIX);
        let uses = |hosted: &&Arc<Hosted>| hosted.bricks().iter().any(|held| held.name == brick);
        self.all().iter().find(uses).map(|hosted| hosted.name.clone())
    }

    /// Clients of files that are exported.
    pub fn clients(&self) -> Vec<String> {
        self.all().iter().flat_map(|hosted| hosted.clients()).collect()
    }

    /// Unmounts all, also those in use. False when one could not be unmounted in order.
    pub fn unmount_all(&self) -> bool {
        let mut well = true;
        for hosted in self.all() {
            if let Err(error) = hosted.unmount_at_end() {
                well = false;
                output::note(format!(
                    "braid: volume {}: {error}",
                    hosted.name,
                    error = crate::output::said(&error)
                ));
            }
            self.forget(&hosted);
        }
        well
    }

    /// A brick was emptied and let go.
    pub fn brick_gone(&self, hosted: &Hosted, uuid: Uuid, arrays: &dyn Arrays) {
        let Some(held) = hosted.let_go(uuid) else {
            // It was missing: the next mount is not to look for it.
            self.note_bricks(hosted, None);
            return;
        };
        let name = held.name.clone();
        let array = held.name.strip_prefix(braid_array::stacking::PREFIX).map(str::to_string);
        drop(held);
        arrays.give_back(&array.into_iter().collect::<Vec<_>>());
        self.note_bricks(hosted, Some(&name));
    }

    /// Notes where the bricks of a volume are now, of which `gone` is none any more. What cannot be noted is said and
    /// no reason to fail.
    pub(super) fn note_bricks(&self, hosted: &Hosted, gone: Option<&str>) {
        let mut names: Vec<String> = hosted.bricks().into_iter().map(|held| held.name).collect();
        let missing = |status: &VolumeStatus| status.bricks.iter().any(|brick| !brick.is_there);
        if hosted.status().is_ok_and(|status| missing(&status)) {
            // Those that are missing may come back where they were.
            for known in kept::named(&self.kept, &hosted.uuid.to_string()) {
                let away = |name: &String| !names.contains(name) && Some(name.as_str()) != gone;
                let away: Vec<String> = known.bricks.into_iter().filter(away).collect();
                names.extend(away);
            }
        }
        if let Err(error) = kept::store(&self.kept, &hosted.name, hosted.uuid, &names) {
            output::note(format!(
                "note: {error}; give the bricks to `braid volume mount` next time",
                error = crate::output::said(&error)
            ));
        }
    }

    /// The volume that is meant.
    ///
    /// # Errors
    /// When there is none, or several could be meant.
    pub fn find(&self, wanted: Option<&str>) -> Result<Arc<Hosted>> {
        let all = self.all();
        let names = || all.iter().map(|hosted| hosted.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(wanted) = wanted else {
            return match all.as_slice() {
                [only] => Ok(Arc::clone(only)),
                [] => Err(refused(
                    Code::NoSuchVolume,
                    "no volume is mounted; `braid volume mount NAME DIR` mounts one",
                )),
                _ => bail!("several volumes are mounted, say which: {}", names()),
            };
        };
        let none = |why: String| Err(refused(Code::NoSuchVolume, why));
        let uuid = Uuid::parse_str(wanted).ok();
        let is = |hosted: &&Arc<Hosted>| {
            hosted.name == wanted || Some(hosted.uuid) == uuid || hosted.is_at(wanted)
        };
        let found: Vec<_> = all.iter().filter(is).collect();
        match found.as_slice() {
            [only] => Ok(Arc::clone(only)),
            [] if all.is_empty() => none(format!(
                "no volume {wanted} is mounted; `braid volume mount {wanted} DIR` mounts it"
            )),
            [] => none(format!("no volume {wanted} is mounted here; there is: {}", names())),
            _ => bail!("several volumes are called {wanted}: give the directory or UUID of one"),
        }
    }

    pub(super) fn home(&self) -> Result<&Remote> {
        self.remotes.first().context("a server has a shard")
    }

    /// The shard with the fewest volumes.
    pub(super) fn least_used(&self) -> Result<Remote> {
        let all = self.all();
        let volumes = |remote: &&Remote| {
            all.iter().filter(|hosted| hosted.home().id() == remote.id()).count()
        };
        Ok(self.remotes.iter().min_by_key(volumes).context("a server has a shard")?.clone())
    }

    /// The shards that serve a mount beside its home: of a server that was not told how many there are to be, none.
    pub(super) fn others_than(&self, home: &Remote) -> Vec<Remote> {
        let others = self.remotes.iter().filter(|remote| remote.id() != home.id());
        others.filter(|_| self.share_mounts).cloned().collect()
    }

    /// Understands bricks; those in memory get names that no other has.
    pub(super) fn members(&self, texts: &[String]) -> Result<Vec<Member>> {
        let mut members = parse_bricks(texts)?;
        for member in &mut members {
            if member.in_memory() {
                let number = self.next_in_memory.fetch_add(1, Ordering::Relaxed);
                let kind = member.name.split('#').next().unwrap_or_default();
                member.name = format!("{kind}#{number}");
            }
        }
        Ok(members)
    }

    /// Opens bricks for use; arrays are taken from their clients.
    pub(super) fn open(
        &self,
        members: &[Member],
        mode: Mode,
        arrays: &dyn Arrays,
    ) -> Result<Vec<(Member, Arc<dyn Opener>)>> {
        let mut taken = Vec::new();
        let opened = members
            .iter()
            .map(|member| {
                let mut member = member.clone();
                if let Some(array) = member.array().map(str::to_string) {
                    member.found(arrays.take(&array)?);
                    taken.push(array);
                }
                let opener = member.prepare(mode)?;
                Ok((member, opener))
            })
            .collect::<Result<Vec<_>>>();
        if opened.is_err() {
            arrays.give_back(&taken);
        }
        opened
    }
}
