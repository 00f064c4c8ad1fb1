//! The door: targets and their devices.

use crate::abi::request::REQUEST_BYTES_MAX;
use crate::control::{Control, ControlError};
use crate::device::{Common, Device};
use crate::in_use::InUse;
use crate::limits::Limits;
use braid_device::Target;
use braid_export::{
    Client, Connections, Export, HandOverError, Listening, OfferError, Register, Traffic,
};
use braid_shard::mailbox::Remote;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The protocol's name.
const PROTOCOL: &str = "ublk";
/// Devices that the kernel lets one driver have, unless it was told otherwise (`ublks_max`).
const DEVICES_MAX: usize = 64;
/// The time that requests get to be answered by the server that leaves its devices to the next.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// Which targets have devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The target; each one without a name.
    pub target: Option<String>,
    /// The number of its device; the kernel chooses one without.
    pub number: Option<u32>,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The driver is not there or not to be used.
    #[error(transparent)]
    Driver(#[from] ControlError),
    /// A target has no device.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// No shard was given.
    #[error("a ublk server needs at least one shard")]
    Nothing,
}

/// A target that is offered.
struct Offered {
    name: String,
    device: Device,
}

/// A running server. Dropping it stops it.
pub struct Server {
    common: Common,
    places: Vec<Place>,
    offered: Mutex<Vec<Offered>>,
}

impl Server {
    /// Makes devices of those `targets` that `places` name, or takes those back that a server which was killed has left; later
    /// ones follow when they are [offered](Export::offer). Must not be called on a shard's thread.
    ///
    /// # Errors
    /// No driver, no rights, and a device that cannot be had; those that were made are removed again.
    pub fn start(
        limits: &Limits,
        shards: &[Remote],
        places: &[Place],
        targets: &[Arc<dyn Target>],
    ) -> Result<Server, ServeError> {
        let home = shards.first().ok_or(ServeError::Nothing)?;
        let common = Common {
            control: Control::open(home)?,
            shards: shards.to_vec(),
            limits: Limits {
                request_bytes: limits.request_bytes.clamp(4096, REQUEST_BYTES_MAX),
                ..limits.clone()
            },
            register: Arc::new(Register::new(DEVICES_MAX)),
            in_use: InUse::default(),
        };
        shards.iter().for_each(may_not_wait_for_itself);
        let server = Server { common, places: places.to_vec(), offered: Mutex::default() };
        for target in targets {
            server.offer(Arc::clone(target))?;
        }
        Ok(server)
    }

    fn offered(&self) -> MutexGuard<'_, Vec<Offered>> {
        // Every change is a single step, so a panic elsewhere leaves it whole.
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place that is for the target of that name: one with its name before one for all.
    fn place(&self, name: &str) -> Option<&Place> {
        let named = self.places.iter().find(|place| place.target.as_deref() == Some(name));
        named.or_else(|| self.places.iter().find(|place| place.target.is_none()))
    }

    /// A device that somebody has open is one client, whoever that is; see [`InUse::users`] for `surely`.
    fn clients_seen(&self, surely: bool) -> Vec<Client> {
        let offered = self.offered();
        let client = |known: &Offered| {
            let users = self.common.in_use.users(known.device.number, surely);
            (!users.is_empty()).then(|| Client {
                target: known.name.clone(),
                protocol: PROTOCOL,
                address: format!("/dev/ublkb{}: {}", known.device.number, users.join(", ")),
                traffic: sum(known.device.figures.iter().map(|figures| figures.traffic())),
            })
        };
        offered.iter().filter_map(client).collect()
    }

    fn take(&self, target: &str) -> Option<Device> {
        let mut offered = self.offered();
        let at = offered.iter().position(|known| known.name == target)?;
        Some(offered.swap_remove(at).device)
    }
}

impl Export for Server {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn locations(&self, target: &str) -> Vec<String> {
        let offered = self.offered();
        let known = offered.iter().find(|known| known.name == target);
        known.map(|known| known.device.places()).unwrap_or_default()
    }

    fn limits(&self) -> braid_export::Limits {
        let shards = self.common.shards.len();
        braid_export::Limits {
            connections: DEVICES_MAX,
            memory: self.common.limits.memory_of_a_shard(shards) * shards as u64,
            request_bytes: u64::from(self.common.limits.request_bytes),
        }
    }

    fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let name = target.info().name;
        let Some(place) = self.place(&name) else { return Ok(()) };
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| OfferError {
            target: name.clone(),
            protocol: PROTOCOL,
            source,
        };
        if self.offers(&name) {
            return Err(failed("it is offered already; stop it first".into()));
        }
        let device = Device::open(&self.common, &target, place.number);
        let device = device.map_err(|error| failed(Box::new(error)))?;
        self.offered().push(Offered { name, device });
        Ok(())
    }

    fn offers(&self, target: &str) -> bool {
        self.offered().iter().any(|known| known.name == target)
    }

    fn clients(&self) -> Vec<Client> {
        self.clients_seen(false)
    }

    fn clients_now(&self) -> Vec<Client> {
        self.clients_seen(true)
    }

    fn withdraw(&self, target: &str) {
        if let Some(device) = self.take(target) {
            device.remove(&self.common.control);
        }
    }

    fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        let users = {
            let offered = self.offered();
            let known = offered.iter().find(|known| known.name == target);
            known.map_or(0, |known| self.common.in_use.users(known.device.number, true).len())
        };
        match users {
            0 => {
                self.withdraw(target);
                Ok(())
            }
            users => Err(users),
        }
    }

    fn drain(&self, limit: Duration) -> u64 {
        Connections::drain(&self.common.shards, &self.common.register, limit)
    }

    fn resume(&self) {
        Connections::resume(&self.common.shards, &self.common.register);
    }

    fn stays(&self) -> Option<String> {
        let offered = self.offered();
        let known = offered.first()?;
        Some(format!(
            "array {} is /dev/ublkb{}, which the kernel gives to another server only when this one has ended: end this one \
             (SIGTERM; requests for a device that is open wait meanwhile) and start the other",
            known.name, known.device.number
        ))
    }

    /// Nothing listens: a successor takes devices back when this server has ended.
    fn hand_over(&self) -> Result<Vec<Listening>, HandOverError> {
        Ok(Vec::new())
    }

    /// Removes the devices that nobody has open. Others stay, and their requests wait for the next server.
    fn stop(&self) {
        let devices = std::mem::take(&mut *self.offered());
        if devices.is_empty() {
            return;
        }
        // What has come meanwhile is part of what a removal waits for.
        self.resume();
        let mut stay = Vec::new();
        for Offered { name, device } in devices {
            let number = device.number;
            match self.common.in_use.users(number, true).as_slice() {
                [] => device.remove(&self.common.control),
                users => {
                    tracing::warn!(
                        "/dev/ublkb{number} (array {name}) is in use and stays ({}): its requests wait for the next \
                         braid serve --ublk",
                        users.join(", ")
                    );
                    stay.push(device);
                }
            }
        }
        if !stay.is_empty() {
            self.drain(LEAVE_WAIT);
            Connections::stop_all(&self.common.shards, &self.common.register);
            stay.into_iter().for_each(Device::leave);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Memory that a shard needs may be had by writing pages out, and those may belong to a device that this shard serves: the
/// kernel is told to look for other memory.
fn may_not_wait_for_itself(shard: &Remote) {
    let told = shard.call(|_| rustix::process::configure_io_flusher_behavior(true));
    if let Some(Err(error)) = told {
        tracing::warn!(%error, "a server of block devices that runs short of memory may wait for itself (needs CAP_SYS_RESOURCE)");
    }
}

fn sum(all: impl Iterator<Item = Traffic>) -> Traffic {
    all.fold(Traffic::default(), |sum, one| Traffic {
        requests: sum.requests + one.requests,
        read_bytes: sum.read_bytes + one.read_bytes,
        written_bytes: sum.written_bytes + one.written_bytes,
        errors: sum.errors + one.errors,
        in_flight: sum.in_flight + one.in_flight,
    })
}
