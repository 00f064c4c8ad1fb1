//! The connections of a shard, by their doors: to hold them all, and to let them go on.
//!
//! Invariant: a connection that is entered while its door is held is held too.

use crate::Register;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// Pause between looks at requests that are to end.
const DRAIN_PAUSE: Duration = Duration::from_millis(1);

/// A connection that can be held.
pub trait Hold {
    /// Takes no further request, until it is called again with false. Gives the number of requests that have not been
    /// answered.
    fn hold(&self, held: bool) -> u64;

    /// Takes no further request, also of those that wait.
    fn stop(&self);

    /// Takes no further request, and ends in such a way that a successor can go on with its client. False when it cannot:
    /// then it does nothing.
    fn leave(&self) -> bool {
        false
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct Connections {
    all: RefCell<Vec<(u64, Weak<dyn Hold>)>>,
}

impl Connections {
    /// Enters a connection of the door with this register, until it is dropped.
    pub fn enter(shard: &Shard, register: &Register, connection: &Rc<dyn Hold>) {
        let connections = shard.local::<Connections>();
        let mut all = connections.all.borrow_mut();
        all.retain(|(_, connection)| connection.strong_count() > 0);
        all.push((register.id(), Rc::downgrade(connection)));
        // A hold is announced before it comes to this shard, so one of the two is seen.
        if register.is_held() {
            connection.hold(true);
        }
    }

    fn of(shard: &Shard, door: u64) -> Vec<Rc<dyn Hold>> {
        let connections = shard.local::<Connections>();
        let all = connections.all.borrow();
        let of_it = all.iter().filter(|(of, _)| *of == door);
        of_it.filter_map(|(_, connection)| connection.upgrade()).collect()
    }

    /// Holds those of a door on all shards, also those that come, and waits, at most for `limit`, for the requests that they
    /// have taken: [`Export::drain`](crate::Export::drain) of a door. Gives the number of those that are still under way.
    /// Must not be called on a shard's thread.
    pub fn drain(shards: &[Remote], register: &Register, limit: Duration) -> u64 {
        let end = Instant::now() + limit;
        register.hold(true);
        loop {
            let left = Connections::hold_all(shards, register, true);
            if left == 0 || Instant::now() >= end {
                return left;
            }
            std::thread::sleep(DRAIN_PAUSE);
        }
    }

    /// Lets those of a door on all shards go on after [`drain`](Connections::drain). Must not be called on a shard's thread.
    pub fn resume(shards: &[Remote], register: &Register) {
        register.hold(false);
        Connections::hold_all(shards, register, false);
    }

    /// Holds those of a door on all shards, or lets them go on. Gives the number of requests that are under way.
    fn hold_all(shards: &[Remote], register: &Register, held: bool) -> u64 {
        let door = register.id();
        let hold = |remote: &Remote| {
            remote.call(move |shard| {
                Connections::of(shard, door).iter().map(|one| one.hold(held)).sum::<u64>()
            })
        };
        // A shard that has ended has no connections.
        shards.iter().map(|remote| hold(remote).unwrap_or(0)).sum()
    }

    /// Has those of a door on all shards that can be gone on with by a successor end, and waits for that, at most for `limit`.
    /// Must not be called on a shard's thread.
    pub fn leave_all(shards: &[Remote], register: &Register, limit: Duration) {
        let (door, end) = (register.id(), Instant::now() + limit);
        let leaving = |remote: &Remote| {
            remote.call(move |shard| {
                Connections::of(shard, door).iter().filter(|connection| connection.leave()).count()
            })
        };
        while shards.iter().map(|remote| leaving(remote).unwrap_or(0)).sum::<usize>() > 0 {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(DRAIN_PAUSE);
        }
    }

    /// Has those of a door on all shards take no further request. Must not be called on a shard's thread.
    pub fn stop_all(shards: &[Remote], register: &Register) {
        let door = register.id();
        for remote in shards {
            remote.call(move |shard| {
                Connections::of(shard, door).iter().for_each(|connection| connection.stop());
            });
        }
    }
}
