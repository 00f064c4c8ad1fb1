//! The subsystems of a server, which may come and go while it runs, and the controllers of each.
//!
//! A target is a subsystem with one namespace. It is locked when a controller comes or goes and when the offer changes,
//! never for a request. Invariant: a controller is made for a target that is offered at that moment, and ends when it no
//! longer is.

use super::controller::{Controller, Subject};
use super::limits::Limits;
use crate::protocol::{ConnectData, DISCOVERY_NQN, Status, nqn_of_uuid};
use braid_device::Target;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbers of controllers: the rest have a meaning of their own.
const CONTROLLERS_MAX: u16 = 0xffef;
/// A host asks for a new controller.
const ANY_CONTROLLER: u16 = 0xffff;
/// Positions in the data of a Connect command, for a host that has a wrong value there.
const AT_CONTROLLER: u32 = 16;
const AT_SUBSYSTEM: u32 = 256;
/// The wrong value is in the data, not in the command.
const IN_DATA: u32 = 1 << 16;

/// A target cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedTarget {
    #[error("another array of the same name is offered already; stop it, or rename one")]
    Name,
    #[error("the array {0} with the same UUID is offered already: is this a copy of its members?")]
    Uuid(String),
    #[error(
        "its blocks of {0} bytes cannot be a namespace's: they must be a power of two from 512 on"
    )]
    Block(u32),
}

/// A host that may not connect: the status, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedHost(pub Status, pub u32);

#[derive(Default)]
struct State {
    subjects: Vec<Subject>,
    controllers: Vec<Arc<Controller>>,
    last: u16,
}

/// See the module's documentation.
pub(super) struct Subsystems {
    state: Mutex<State>,
    limits: Limits,
    /// Counts changes of the offer.
    generation: AtomicU64,
}

/// Keeps a controller in its subsystem.
pub(super) struct Attached {
    subsystems: Arc<Subsystems>,
    pub controller: Arc<Controller>,
}

/// The UUID of targets without one of their own: it follows from the name, so that hosts find it again.
fn uuid_of(target: &dyn Target, name: &str) -> [u8; 16] {
    let of_name = || *uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).as_bytes();
    target.uuid().unwrap_or_else(of_name)
}

impl Subsystems {
    pub fn new(limits: &Limits) -> Subsystems {
        Subsystems {
            state: Mutex::default(),
            limits: limits.clone(),
            generation: AtomicU64::new(1),
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The number of changes of the offer, which a host compares.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a single step, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a target.
    pub fn add(&self, target: Arc<dyn Target>) -> Result<(), RefusedTarget> {
        let info = target.info();
        let uuid = uuid_of(&*target, &info.name);
        let block = info.device.logical_block;
        if !block.is_power_of_two() || block < 512 {
            return Err(RefusedTarget::Block(block));
        }
        let mut state = self.state();
        if let Some(known) = state.subjects.iter().find(|known| known.uuid == uuid) {
            return Err(RefusedTarget::Uuid(known.name.clone()));
        }
        if state.subjects.iter().any(|known| known.name == info.name) {
            return Err(RefusedTarget::Name);
        }
        state.subjects.push(Subject { name: info.name, uuid, target });
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The qualified name of the target `name`, if it is offered.
    pub fn nqn(&self, name: &str) -> Option<String> {
        let state = self.state();
        let subject = state.subjects.iter().find(|subject| subject.name == name)?;
        Some(nqn_of_uuid(&subject.uuid))
    }

    /// The qualified names of all subsystems.
    pub fn all(&self) -> Vec<String> {
        self.state().subjects.iter().map(|subject| nqn_of_uuid(&subject.uuid)).collect()
    }

    /// Offers `name` no longer, and ends its controllers.
    pub fn remove(&self, name: &str) {
        let mut state = self.state();
        state.controllers_of(name).for_each(|controller| controller.disconnect());
        state.forget(name);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Offers `name` no longer, unless it has controllers: then gives how many.
    pub fn remove_unused(&self, name: &str) -> Result<(), usize> {
        let mut state = self.state();
        let used = state.controllers_of(name).count();
        if used > 0 {
            return Err(used);
        }
        state.forget(name);
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The controllers of all subsystems, those for discovery not counted.
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        let state = self.state();
        state.controllers.iter().filter(|one| one.subject.is_some()).cloned().collect()
    }

    /// Numbers of the controllers of one subsystem.
    pub fn ids(&self, subsystem: &str) -> Vec<u16> {
        let state = self.state();
        let of_it = state.controllers.iter().filter(|one| one.subsystem == subsystem);
        let mut ids: Vec<u16> = of_it.map(|one| one.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Makes a controller for a host whose admin queue is the connection of `socket`.
    ///
    /// # Errors
    /// The host may not connect, or not to this: one line in the log says why.
    pub fn attach(
        self: &Arc<Self>,
        data: ConnectData,
        socket: Arc<OwnedFd>,
    ) -> Result<Attached, RefusedHost> {
        let ConnectData { host_id, controller, subsystem, host } = data;
        if !self.limits.admits(&host) {
            tracing::warn!(%host, "NVMe host is not on the list of hosts (--nvme-allow, --nvme-secret): refused");
            return Err(RefusedHost(Status::CONNECT_INVALID_HOST, 0));
        }
        if controller != ANY_CONTROLLER {
            tracing::warn!(%host, controller, "NVMe host asks for a certain controller, and all are dynamic: refused");
            let at = IN_DATA | AT_CONTROLLER;
            return Err(RefusedHost(Status::CONNECT_INVALID_PARAMETERS, at));
        }
        let mut state = self.state();
        let find = || state.subjects.iter().find(|one| nqn_of_uuid(&one.uuid) == subsystem);
        let subject = match subsystem == DISCOVERY_NQN {
            true => None,
            false => match find() {
                Some(subject) => Some(subject.clone()),
                None => {
                    tracing::warn!(%host, %subsystem, "NVMe host asks for a subsystem that is not offered: refused");
                    let at = IN_DATA | AT_SUBSYSTEM;
                    return Err(RefusedHost(Status::CONNECT_INVALID_PARAMETERS, at));
                }
            },
        };
        let most = self.limits.controllers.max(1).min(CONTROLLERS_MAX.into());
        if state.controllers.len() >= most {
            tracing::warn!(%host, most, "too many NVMe controllers: a host is refused; --nvme-connections sets how many there may be");
            return Err(RefusedHost(Status::CONNECT_CONTROLLER_BUSY, 0));
        }
        let id = state.next_id();
        let whose = (host, host_id);
        let controller = Arc::new(Controller::new(id, (subsystem, subject), whose, socket));
        state.controllers.push(Arc::clone(&controller));
        Ok(Attached { subsystems: Arc::clone(self), controller })
    }

    /// The controller that an I/O queue is to be part of.
    ///
    /// # Errors
    /// There is no such controller of this host.
    pub fn find(&self, data: &ConnectData) -> Result<Arc<Controller>, RefusedHost> {
        let state = self.state();
        let is = |one: &&Arc<Controller>| {
            one.id == data.controller
                && one.subsystem == data.subsystem
                && (&one.host, one.host_id) == (&data.host, data.host_id)
        };
        let found = state.controllers.iter().find(is);
        let at = IN_DATA | AT_CONTROLLER;
        found.cloned().ok_or(RefusedHost(Status::CONNECT_INVALID_PARAMETERS, at))
    }
}

impl State {
    fn controllers_of(&self, name: &str) -> impl Iterator<Item = &Arc<Controller>> {
        let is = move |one: &&Arc<Controller>| {
            one.subject.as_ref().is_some_and(|subject| subject.name == name)
        };
        self.controllers.iter().filter(is)
    }

    fn forget(&mut self, name: &str) {
        self.subjects.retain(|subject| subject.name != name);
    }

    /// A number that no controller has. There are fewer controllers than numbers.
    fn next_id(&mut self) -> u16 {
        loop {
            self.last = if self.last >= CONTROLLERS_MAX { 1 } else { self.last + 1 };
            if self.controllers.iter().all(|controller| controller.id != self.last) {
                return self.last;
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.controller.disconnect();
        let is_other = |one: &Arc<Controller>| !Arc::ptr_eq(one, &self.controller);
        self.subsystems.state().controllers.retain(is_other);
    }
}
