//! The arrays that run in this server.
//!
//! Owns the list of arrays. Everything is asked of an array's control on its home shard; nothing here
//! runs on a shard.

use super::End;
use super::control_socket::Door;
use super::events::Events as KeptEvents;
use super::grouping::Group;
use super::orders::{NoSuchArray, status};
use super::scrubs::Scrubs;
use super::setting::Setter;
use super::smart::Warnings;
use super::sought::Sought;
use super::spares::Spares;
use super::to_mount::Mounting;
use crate::hosts::Guard;
use crate::lease::Session;
use crate::settings::kept::Kept;
use crate::volumes::{Events, Volumes};
use anyhow::{Context, Result, bail};
use braid_array::array::Array;
use braid_array::salvage::Salvage;
use braid_array::stacking::PREFIX;
use braid_array::state::ArrayId;
use braid_device::Target;
use braid_export::Doors;
use braid_format::uuid_text;
use braid_shard::mailbox::Remote;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// See the module's documentation.
pub struct Running {
    arrays: Mutex<Vec<Arc<Array>>>,
    /// Arrays that are only read, beside the engine.
    salvaged: Mutex<Vec<Arc<Salvage>>>,
    /// Where clients reach arrays that are no members of others.
    pub(super) doors: Doors,
    pub(super) remotes: Vec<Remote>,
    /// Bytes that the caches of an array may take.
    pub(super) memory_max: u64,
    /// The means that keep other hosts off the arrays.
    pub(super) guard: Guard,
    /// The lease that arrays are run under.
    pub lease: Option<Arc<Session>>,
    pub(super) setter: Setter,
    pub(super) scrubs: Arc<Scrubs>,
    /// Spares that arrays share.
    pub(super) spares: Arc<Spares>,
    /// Held while arrays are made, stacked or chosen to be stopped: which array uses which does not change otherwise.
    stack: Mutex<()>,
    /// Arrays that are being stopped: nothing is made of them any more.
    pub(super) stopping: Mutex<Vec<ArrayId>>,
    /// Some array could not be left as a stop should leave it.
    pub(super) unwell: AtomicBool,
    pub(super) volumes: Volumes,
    /// Volumes that are to be mounted.
    pub mounting: Mounting,
    pub(super) ends: Mutex<Sender<End>>,
    pub(super) door: Door,
    /// The number of the next member in memory, so that its name is its own.
    pub(super) next_in_memory: AtomicU64,
    /// The warnings of the members' disks.
    pub(super) smart: Warnings,
    /// Members that were given to the server or removed since: those that are no members now are missing.
    pub(super) known: Mutex<Vec<String>>,
    /// The members and arrays that are looked for; `None`: no longer, or never.
    pub(super) sought: Mutex<Option<Sought>>,
    /// Arrays that a command has stopped.
    pub(super) stopped: Mutex<HashSet<[u8; 16]>>,
    /// It goes on with nothing to serve.
    pub(super) resident: bool,
    /// The last events.
    pub(super) events: KeptEvents,
}

/// What arrays run on.
pub struct Around {
    /// All shards, the home shard first.
    pub remotes: Vec<Remote>,
    /// All of them serve each mounted volume, which was asked for by their number; else one does.
    pub share_mounts: bool,
    /// Where settings are kept.
    pub kept: Kept,
    /// The arrays' checks and repairs.
    pub scrubs: Arc<Scrubs>,
    /// The groups in which they share spares.
    pub spares: Arc<Spares>,
    /// Bytes that the caches of an array may take.
    pub memory_max: u64,
    /// The means that keep other hosts off the arrays.
    pub guard: Guard,
    /// The lease that arrays are run under.
    pub lease: Option<Arc<Session>>,
    /// The way in, to be closed when nothing is left to be served.
    pub door: Door,
    /// The members that were given, by name.
    pub given: Vec<String>,
    /// The members and arrays that are looked for.
    pub sought: Option<Sought>,
    /// It goes on with nothing to serve.
    pub resident: bool,
}

impl Running {
    /// `arrays` and `salvaged`, which clients reach through `doors`; `ends` is told when the last one was stopped. `events` gives what is
    /// told of what happens to volumes by themselves.
    pub fn new(
        arrays: Vec<Arc<Array>>,
        salvaged: Vec<Arc<Salvage>>,
        doors: Doors,
        around: Around,
        ends: Sender<End>,
        events: impl FnOnce(Weak<Running>) -> Arc<dyn Events>,
    ) -> Arc<Running> {
        let Around { remotes, share_mounts, kept, scrubs, spares, .. } = around;
        let Around { memory_max, guard, lease, door, .. } = around;
        Arc::new_cyclic(|own| Running {
            arrays: Mutex::new(arrays),
            salvaged: Mutex::new(salvaged),
            doors,
            memory_max,
            guard,
            volumes: Volumes::new(
                (remotes.clone(), share_mounts),
                kept.clone(),
                lease.clone(),
                events(Weak::clone(own)),
            ),
            lease,
            mounting: Mounting::default(),
            remotes,
            setter: Setter::new(kept, Arc::clone(&scrubs), Arc::clone(&spares)),
            scrubs,
            spares,
            stack: Mutex::new(()),
            stopping: Mutex::default(),
            unwell: AtomicBool::new(false),
            ends: Mutex::new(ends),
            door,
            next_in_memory: AtomicU64::new(1000),
            smart: Warnings::default(),
            known: Mutex::new(around.given),
            sought: Mutex::new(around.sought),
            stopped: Mutex::default(),
            resident: around.resident,
            events: KeptEvents::default(),
        })
    }

    /// Memory is short: caches that size themselves give back half of what they have.
    pub fn shrink_caches(&self) {
        let arrays = self.arrays().clone();
        for array in arrays {
            // One that has been stopped meanwhile has no cache.
            let _ = array.control(|control| async move { control.shrink_caches().await });
        }
    }

    /// Checks and repairs that may go on do, and what they have come to is kept.
    pub fn look_at_scrubs(&self) {
        let arrays = self.arrays().clone();
        arrays.iter().for_each(|array| self.scrubs.look(array));
    }

    /// The members of all arrays that run, each after the name of its array.
    pub fn names_of_members(&self) -> Vec<(String, String)> {
        let arrays = self.arrays().clone();
        let of_one = |array: Arc<Array>| {
            // One that has been stopped meanwhile has none.
            let members = status(&array).map(|status| status.members).unwrap_or_default();
            let name = array.name().to_string();
            members.into_iter().map(move |member| (name.clone(), member.name))
        };
        arrays.into_iter().flat_map(of_one).collect()
    }

    /// The members of all arrays that another server needs to start them: without arrays that are made of those.
    pub fn members_to_serve(&self) -> Vec<String> {
        let all = self.names_of_members().into_iter().map(|(_, member)| member);
        all.filter(|name| !name.starts_with(PREFIX)).collect()
    }

    pub(super) fn stack_turn(&self) -> MutexGuard<'_, ()> {
        // It protects no data, only an order.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrays(&self) -> MutexGuard<'_, Vec<Arc<Array>>> {
        // Every change of the list is a single call, so a panic elsewhere leaves it whole.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn salvaged(&self) -> MutexGuard<'_, Vec<Arc<Salvage>>> {
        self.salvaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array of that name if it is one that is only read; the only one there is, without a name.
    pub(super) fn find_salvaged(&self, wanted: Option<&str>) -> Option<Arc<Salvage>> {
        let none_runs = self.arrays().is_empty();
        let salvaged = self.salvaged();
        match (wanted, salvaged.as_slice()) {
            (Some(wanted), _) => salvaged.iter().find(|array| is_called(array, wanted)).cloned(),
            (None, [only]) if none_runs => Some(Arc::clone(only)),
            (None, _) => None,
        }
    }

    pub(super) fn find(&self, wanted: Option<&str>) -> Result<Arc<Array>> {
        if let Some(array) = self.find_salvaged(wanted) {
            bail!(
                "array {} is only read, as its members hold it; `braid detail` and `braid stop` are what it knows",
                array.info().name
            );
        }
        let arrays = self.arrays();
        let salvaged: Vec<String> = self.salvaged().iter().map(|array| array.info().name).collect();
        let names = || {
            let running = arrays.iter().map(|array| array.name());
            running.chain(salvaged.iter().map(String::as_str)).collect::<Vec<_>>().join(", ")
        };
        let Some(wanted) = wanted else {
            return match arrays.as_slice() {
                [only] if salvaged.is_empty() => Ok(Arc::clone(only)),
                [] if salvaged.is_empty() => {
                    Err(NoSuchArray("no array is running".to_string()).into())
                }
                _ => bail!("several arrays are running, say which: {}", names()),
            };
        };
        let uuid = uuid_text::parse(wanted).ok();
        let found =
            arrays.iter().find(|array| array.name() == wanted || Some(array.uuid()) == uuid);
        match found {
            Some(array) => Ok(Arc::clone(array)),
            None => Err(NoSuchArray(self.why_no_array(wanted, &names())).into()),
        }
    }

    /// There is no such array; what else that can be, and which there are.
    fn why_no_array(&self, wanted: &str, arrays: &str) -> String {
        if let Ok(volume) = self.volumes.find(Some(wanted)) {
            return format!(
                "no array {wanted:?} is running here: that is a volume, mounted at {}; see `braid volume status {}`",
                volume.dir.display(),
                volume.name
            );
        }
        let mut there = Vec::new();
        if !arrays.is_empty() {
            there.push(format!("there is: {arrays}"));
        }
        let volumes = self.volumes_here();
        if !volumes.is_empty() {
            there.push(format!("volumes, of `braid volume`: {}", volumes.join(", ")));
        }
        match there.as_slice() {
            [] => format!("no array {wanted:?} is running here, nor any other"),
            some => format!("no array {wanted:?} is running here; {}", some.join("; ")),
        }
    }

    /// The names of the volumes that are mounted by this server.
    pub fn volumes_here(&self) -> Vec<String> {
        self.volumes.all().iter().map(|hosted| hosted.name.clone()).collect()
    }

    /// All shards.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// The shard that arrays have their control on.
    ///
    /// # Errors
    /// When there is none.
    pub fn home(&self) -> Result<&Remote> {
        self.remotes.first().context("a server has a shard")
    }

    /// Where clients reach arrays.
    pub fn doors(&self) -> &Doors {
        &self.doors
    }

    /// An array with this UUID runs here.
    pub fn runs(&self, uuid: &[u8; 16]) -> bool {
        self.arrays().iter().any(|array| array.uuid() == *uuid)
    }

    /// Gives an array that is about to be started a name that no other has here.
    pub fn name_apart(&self, group: &mut Group) {
        let known = self.arrays().iter().any(|array| array.name() == group.name);
        if known || self.salvaged().iter().any(|array| array.info().name == group.name) {
            let uuid = uuid_text::format(&group.uuid);
            group.name = format!("{}-{}", group.name, uuid.split(':').next().unwrap_or_default());
        }
    }

    /// Enters an array that was started while others ran; `free`: no other is made of it.
    ///
    /// # Errors
    /// When it cannot be offered to clients.
    pub fn enter_late(&self, array: Arc<Array>, free: bool) -> Result<()> {
        let _turn = self.stack_turn();
        if free {
            return self.enter(array);
        }
        self.arrays().push(array);
        Ok(())
    }

    /// Enters an array that was started, and offers it to clients.
    pub(super) fn enter(&self, array: Arc<Array>) -> Result<()> {
        self.arrays().push(Arc::clone(&array));
        Ok(self.doors.offer(array)?)
    }
}

/// The array is meant by `wanted`: its name or UUID.
fn is_called(array: &Salvage, wanted: &str) -> bool {
    let uuid = uuid_text::parse(wanted).ok();
    array.info().name == wanted || Some(array.superblock().set_uuid) == uuid
}
