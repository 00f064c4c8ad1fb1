//! The connections of a shard, by their servers: to hold them all, and to let them go on.
//!
//! Invariant: a connection that is entered while its server is held is held too.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use braid_shard::Shard;

use super::register::Register;
use super::replies::Replies;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Connections {
    all: RefCell<Vec<(u64, Weak<Replies>)>>,
}

impl Connections {
    /// Enters a connection of the server with this register.
    pub fn enter(shard: &Shard, register: &Register, replies: &Rc<Replies>) {
        let connections = shard.local::<Connections>();
        let mut all = connections.all.borrow_mut();
        all.retain(|(_, replies)| replies.strong_count() > 0);
        all.push((register.id(), Rc::downgrade(replies)));
        // Whoever holds them says so first and comes to this shard then: one of the two is seen.
        if register.is_held() {
            replies.hold(true);
        }
    }

    fn of(shard: &Shard, server: u64) -> Vec<Rc<Replies>> {
        let connections = shard.local::<Connections>();
        let all = connections.all.borrow();
        let of_it = all.iter().filter(|(of, _)| *of == server);
        of_it.filter_map(|(_, replies)| replies.upgrade()).collect()
    }

    /// Holds those of a server, or lets them go on. Gives the number of requests that are under way.
    pub fn hold(shard: &Shard, server: u64, held: bool) -> u64 {
        Connections::of(shard, server).iter().map(|replies| replies.hold(held)).sum()
    }

    /// Has those of a server take no further request.
    pub fn stop(shard: &Shard, server: u64) {
        Connections::of(shard, server).iter().for_each(|replies| replies.stop());
    }
}
