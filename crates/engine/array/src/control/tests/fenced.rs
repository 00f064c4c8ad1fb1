//! A disk that several hosts reach and that knows reservations, as one of them reaches it: over any member.
//!
//! The rules are those of SPC for "write exclusive, registrants only" ([`braid_device::reservation`]).

use braid_device::reservation::{Carried, Order, OrderError, Reservations};
use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, OpenError, Opener, Request,
};
use braid_shard::Shard;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The registrations of a disk.
#[derive(Debug, Default)]
pub(super) struct Registrations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The hosts that have registered, with their keys.
    keys: BTreeMap<u64, u64>,
    /// The host that holds the reservation.
    holder: Option<u64>,
    /// All that was ordered.
    orders: Vec<(u64, Order)>,
}

impl Registrations {
    /// Carries out an order of `host`.
    ///
    /// # Errors
    /// [`OrderError::Conflict`].
    pub(super) fn carry_out(&self, host: u64, order: Order) -> Result<(), OrderError> {
        let mut state = self.0.lock().unwrap();
        let State { keys, holder, orders } = &mut *state;
        orders.push((host, order));
        let own = keys.get(&host).copied();
        match order {
            Order::Register { key } => {
                keys.insert(host, key);
            }
            Order::Reserve { key } => {
                if own != Some(key) || holder.is_some_and(|holder| holder != host) {
                    return Err(OrderError::Conflict);
                }
                *holder = Some(host);
            }
            Order::Preempt { key, of } => {
                if own != Some(key) || !keys.values().any(|known| *known == of) {
                    return Err(OrderError::Conflict);
                }
                keys.retain(|known, key| *known == host || *key != of);
                if holder.is_some_and(|holder| !keys.contains_key(&holder)) {
                    *holder = Some(host);
                }
            }
            Order::Leave { key } => {
                if own != Some(key) {
                    return Err(OrderError::Conflict);
                }
                keys.remove(&host);
                holder.take_if(|holder| *holder == host);
            }
        }
        Ok(())
    }

    /// All that hosts have ordered since this was asked last.
    pub(super) fn orders(&self) -> Vec<(u64, Order)> {
        std::mem::take(&mut self.0.lock().unwrap().orders)
    }

    /// Writes of `host` are refused.
    pub(super) fn refuses(&self, host: u64) -> bool {
        let state = self.0.lock().unwrap();
        state.holder.is_some() && !state.keys.contains_key(&host)
    }
}

/// See the module's documentation.
pub(super) struct Fenced {
    inner: Arc<dyn Opener>,
    disk: Arc<Registrations>,
    host: u64,
}

impl Fenced {
    /// `inner`, whose registrations are `disk`, as `host` reaches it.
    pub(super) fn new(inner: Arc<dyn Opener>, disk: &Arc<Registrations>, host: u64) -> Fenced {
        Fenced { inner, disk: Arc::clone(disk), host }
    }
}

impl Opener for Fenced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let (inner, disk) = (self.inner.open(shard)?, Arc::clone(&self.disk));
        Ok(Rc::new(FencedDevice { inner, path: Path { disk, host: self.host } }))
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

#[derive(Clone)]
struct Path {
    disk: Arc<Registrations>,
    host: u64,
}

impl Reservations for Path {
    fn carry_out(&self, order: Order) -> Carried {
        Box::pin(std::future::ready(self.disk.carry_out(self.host, order)))
    }
}

struct FencedDevice {
    inner: Rc<dyn Device>,
    path: Path,
}

impl Device for FencedDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        if !matches!(request.op, Op::Read(_)) && self.path.disk.refuses(self.path.host) {
            return done.finish(Err(IoError::new(IoErrorKind::Reserved)), request.op);
        }
        self.inner.submit(request, done);
    }

    fn reservations(&self) -> Option<Rc<dyn Reservations>> {
        Some(Rc::new(self.path.clone()))
    }

    fn layers(&self) -> u32 {
        self.inner.layers()
    }

    fn may_hang(&self) -> bool {
        self.inner.may_hang()
    }
}
