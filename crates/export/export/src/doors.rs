//! All doors of a server as one.
//!
//! Invariant: a target is offered by each door that is for it, or by none.

use crate::{Client, Export, HandOverError, Listening, OfferError, Passed, PassedError};
use braid_device::Target;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// See the module's documentation. Cheap to clone.
#[derive(Clone, Default)]
pub struct Doors {
    doors: Arc<[Arc<dyn Export>]>,
    offered: Arc<Mutex<Vec<Offered>>>,
}

struct Offered {
    /// Its name when it was offered: doors know it by that.
    name: String,
    target: Arc<dyn Target>,
}

impl Doors {
    /// Doors that offer `targets` already, each those that it is for.
    #[must_use]
    pub fn new(doors: Vec<Arc<dyn Export>>, targets: Vec<Arc<dyn Target>>) -> Doors {
        let offered =
            targets.into_iter().map(|target| Offered { name: target.info().name, target });
        Doors { doors: doors.into(), offered: Arc::new(Mutex::new(offered.collect())) }
    }

    fn offered(&self) -> MutexGuard<'_, Vec<Offered>> {
        // Every change of the list is a single call, so a panic elsewhere leaves it whole.
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a target at each door that is for it.
    ///
    /// # Errors
    /// The first door's that refuses it; no door offers it then.
    pub fn offer(&self, target: Arc<dyn Target>) -> Result<(), OfferError> {
        let name = target.info().name;
        let mut offered = self.offered();
        for (at, door) in self.doors.iter().enumerate() {
            if let Err(error) = door.offer(Arc::clone(&target)) {
                self.doors.iter().take(at).for_each(|door| door.withdraw(&name));
                return Err(error);
            }
        }
        offered.push(Offered { name, target });
        Ok(())
    }

    /// True if clients can have the target at some door.
    #[must_use]
    pub fn offers(&self, target: &str) -> bool {
        self.doors.iter().any(|door| door.offers(target))
    }

    /// Where clients find the target, over all doors.
    #[must_use]
    pub fn locations(&self, target: &str) -> Vec<String> {
        self.doors.iter().flat_map(|door| door.locations(target)).collect()
    }

    /// The clients of all doors.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.doors.iter().flat_map(|door| door.clients()).collect()
    }

    /// The clients of all doors at this moment: see [`Export::clients_now`].
    #[must_use]
    pub fn clients_now(&self) -> Vec<Client> {
        self.doors.iter().flat_map(|door| door.clients_now()).collect()
    }

    /// The clients of one target.
    #[must_use]
    pub fn clients_of(&self, target: &str) -> Vec<Client> {
        let mut clients = self.clients();
        clients.retain(|client| client.target == target);
        clients
    }

    /// Offers a target no longer and disconnects its clients.
    pub fn withdraw(&self, target: &str) {
        let mut offered = self.offered();
        self.doors.iter().for_each(|door| door.withdraw(target));
        offered.retain(|known| known.name != target);
    }

    /// Offers a target no longer, unless clients use it.
    ///
    /// # Errors
    /// The number of connections that use it; it is offered as before.
    pub fn withdraw_unused(&self, target: &str) -> Result<(), usize> {
        let mut offered = self.offered();
        for (at, door) in self.doors.iter().enumerate() {
            let Err(used) = door.withdraw_unused(target) else { continue };
            let known = offered.iter().find(|known| known.name == target);
            for (door, known) in self.doors.iter().take(at).zip(known.into_iter().cycle()) {
                if let Err(error) = door.offer(Arc::clone(&known.target)) {
                    tracing::error!(%error, "a target that is in use cannot be offered again");
                }
            }
            return Err(used);
        }
        offered.retain(|known| known.name != target);
        Ok(())
    }

    /// Takes no further requests at any door, and waits for those under way, at most for `limit` over all doors. Gives
    /// how many are left.
    #[must_use]
    pub fn drain(&self, limit: Duration) -> u64 {
        let end = Instant::now() + limit;
        let left =
            |door: &Arc<dyn Export>| door.drain(end.saturating_duration_since(Instant::now()));
        self.doors.iter().map(left).sum()
    }

    /// Takes requests again after a drain.
    pub fn resume(&self) {
        self.doors.iter().for_each(|door| door.resume());
    }

    /// The reason why a successor cannot have some door while this process lives, with a remedy.
    #[must_use]
    pub fn stays(&self) -> Option<String> {
        self.doors.iter().find_map(|door| door.stays())
    }

    /// Gives the listening sockets of all doors to a successor, each after the name of its protocol.
    ///
    /// # Errors
    /// The first door's that cannot; those before it have none any more.
    pub fn hand_over(&self) -> Result<Vec<(&'static str, Listening)>, HandOverError> {
        let mut all = Vec::new();
        for door in self.doors.iter() {
            all.extend(door.hand_over()?.into_iter().map(|one| (door.protocol(), one)));
        }
        Ok(all)
    }

    /// Gives the clients of all doors that can go on there to a successor, each after the name of its protocol.
    #[must_use]
    pub fn pass_clients(&self) -> Vec<(&'static str, Passed)> {
        let of = |door: &Arc<dyn Export>| {
            let protocol = door.protocol();
            door.pass_clients()
                .into_iter()
                .map(move |client| (protocol, client))
                .collect::<Vec<_>>()
        };
        self.doors.iter().flat_map(of).collect()
    }

    /// Goes on with a client of another server.
    ///
    /// # Errors
    /// No door of that protocol, or one that cannot; the client is disconnected.
    pub fn take_client(&self, protocol: &str, client: Passed) -> Result<(), PassedError> {
        match self.doors.iter().find(|door| door.protocol() == protocol) {
            Some(door) => door.take_client(client),
            None => Err(PassedError::NoDoor),
        }
    }

    /// Stops all doors.
    pub fn stop(&self) {
        self.doors.iter().for_each(|door| door.stop());
    }
}

#[cfg(test)]
#[path = "doors_tests.rs"]
mod tests;
