//! The reservations of members' disks, by which the disks themselves refuse the writes of a host that has lost the array
//! ([`braid_device::reservation`]). The key of a start is in its heartbeat, so that whoever takes over knows whom to preempt.

use braid_device::Device;
use braid_device::reservation::{Order, OrderError, Reservations};
use std::fmt;
use std::rc::Rc;

/// The key of the start whose heartbeat has this owner: its first 8 bytes.
pub(crate) fn key_of(owner: &[u8; 16]) -> u64 {
    let (first, _) = owner.split_at(8);
    let key = first.iter().fold(0, |key: u64, byte| key << 8 | u64::from(*byte));
    // 0 is no key.
    key.max(1)
}

/// The reservations that a start takes.
#[derive(Clone, Debug)]
pub(crate) struct Reserving {
    /// Its key.
    pub(crate) key: u64,
    /// The keys of earlier starts, of which some may have crashed.
    pub(crate) earlier: Vec<u64>,
}

/// A member's disk that is reserved for this host.
#[derive(Clone)]
pub(crate) struct Held {
    /// The member.
    pub(crate) name: String,
    key: u64,
    disk: Rc<dyn Reservations>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("name", &self.name).field("key", &self.key).finish()
    }
}

/// The outcome of [`Reserving::take`].
pub(crate) enum Taking {
    /// It is reserved.
    Held(Held),
    /// It takes no reservations, or not from this process: why.
    Unable(String),
    /// Another host holds it, by a key that no heartbeat told.
    Elsewhere,
}

impl Reserving {
    /// Reserves the disk of the member `name`. What an earlier start of the array still holds is taken from it.
    pub(crate) async fn take(&self, name: &str, device: &Rc<dyn Device>) -> Taking {
        let Some(disk) = device.reservations() else {
            return Taking::Unable("it is no disk of its own".to_string());
        };
        let key = self.key;
        match disk.carry_out(Order::Register { key }).await {
            Ok(()) => {}
            Err(OrderError::Conflict) => return Taking::Elsewhere,
            Err(error) => return Taking::Unable(error.to_string()),
        }
        let held = Held { name: name.to_string(), key, disk };
        match self.reserve(&held).await {
            Ok(()) => Taking::Held(held),
            Err(error) => {
                held.leave().await;
                match error {
                    OrderError::Conflict => Taking::Elsewhere,
                    error => Taking::Unable(error.to_string()),
                }
            }
        }
    }

    async fn reserve(&self, held: &Held) -> Result<(), OrderError> {
        for of in self.earlier.iter().copied().filter(|of| *of != held.key) {
            match held.disk.carry_out(Order::Preempt { key: held.key, of }).await {
                // Nobody has that key any more.
                Ok(()) | Err(OrderError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        held.disk.carry_out(Order::Reserve { key: held.key }).await
    }
}

/// Ends what this host has reserved by `key`, if it has.
pub(crate) async fn leave(device: &Rc<dyn Device>, key: u64) {
    if let Some(disk) = device.reservations() {
        // A disk that was not reserved refuses it.
        let _ = disk.carry_out(Order::Leave { key }).await;
    }
}

impl Held {
    /// Lets other hosts write to the disk again.
    pub(crate) async fn leave(&self) {
        // If this fails, the next start preempts the key, which the heartbeat tells.
        let _ = self.disk.carry_out(Order::Leave { key: self.key }).await;
    }
}
