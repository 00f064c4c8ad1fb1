//! A controller: what the connections of one host to one subsystem have in common, over all shards.
//!
//! It is locked when a queue comes or goes, for admin commands and when a command fails; never for a request that succeeds.

use crate::protocol::Status;
use crate::protocol::identify::ERRORS_MAX;
use crate::protocol::log::ErrorEntry;
use braid_device::Target;
use braid_export::{Figures, Traffic};
use rustix::net::Shutdown;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The array behind a subsystem.
#[derive(Clone)]
pub(super) struct Subject {
    pub name: String,
    pub uuid: [u8; 16],
    pub target: Arc<dyn Target>,
}

/// An I/O queue.
struct Queue {
    id: u16,
    socket: Arc<OwnedFd>,
    figures: Arc<Figures>,
}

#[derive(Default)]
struct State {
    enabled: bool,
    queues: Vec<Queue>,
    /// I/O queues that the host may have.
    granted: u16,
    /// The newest first.
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    /// Of queues that are gone.
    past: Traffic,
}

/// See the module's documentation.
pub(super) struct Controller {
    pub id: u16,
    /// The subsystem's name.
    pub subsystem: String,
    /// `None`: discovery only.
    pub subject: Option<Subject>,
    pub host: String,
    pub host_id: [u8; 16],
    /// The admin queue's.
    pub socket: Arc<OwnedFd>,
    state: Mutex<State>,
}

/// Keeps an I/O queue in its controller.
pub(super) struct Joined {
    pub controller: Arc<Controller>,
    pub figures: Arc<Figures>,
    id: u16,
}

impl Controller {
    pub fn new(
        id: u16,
        (subsystem, subject): (String, Option<Subject>),
        (host, host_id): (String, [u8; 16]),
        socket: Arc<OwnedFd>,
    ) -> Controller {
        let state = Mutex::default();
        Controller { id, subsystem, subject, host, host_id, socket, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a single step, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enables it, or resets it, which ends its I/O queues.
    pub fn enable(&self, enabled: bool) {
        let mut state = self.state();
        state.enabled = enabled;
        if !enabled {
            state.granted = 0;
            state.queues.iter().for_each(|queue| shut(&queue.socket));
        }
    }

    /// Grants the host so many I/O queues.
    pub fn grant(&self, queues: u16) {
        self.state().granted = queues;
    }

    /// The queues that were granted.
    pub fn granted(&self) -> u16 {
        self.state().granted
    }

    /// Makes the connection of `socket` the I/O queue `id`.
    ///
    /// # Errors
    /// The status when there cannot be such a queue now.
    pub fn join(self: &Arc<Self>, id: u16, socket: Arc<OwnedFd>) -> Result<Joined, Status> {
        let mut state = self.state();
        if !state.enabled {
            return Err(Status::COMMAND_SEQUENCE);
        }
        if id == 0 || id > state.granted {
            return Err(Status::CONNECT_INVALID_PARAMETERS);
        }
        if state.queues.iter().any(|queue| queue.id == id) {
            // The connection of before may just be ending.
            return Err(Status::CONNECT_CONTROLLER_BUSY);
        }
        let figures = Arc::new(Figures::default());
        state.queues.push(Queue { id, socket, figures: Arc::clone(&figures) });
        Ok(Joined { controller: Arc::clone(self), figures, id })
    }

    /// The counters of all its queues.
    pub fn traffic(&self) -> Traffic {
        let state = self.state();
        let of_queues = state.queues.iter().map(|queue| queue.figures.traffic());
        of_queues.fold(state.past, added)
    }

    /// Notes that a command has failed.
    pub fn failed(&self, mut entry: ErrorEntry) {
        let mut state = self.state();
        state.error_count += 1;
        entry.count = state.error_count;
        state.errors.push_front(entry);
        state.errors.truncate(ERRORS_MAX);
    }

    /// The last commands that failed, and how many have.
    pub fn errors(&self) -> (Vec<ErrorEntry>, u64) {
        let state = self.state();
        (state.errors.iter().copied().collect(), state.error_count)
    }

    /// Ends all of its connections.
    pub fn disconnect(&self) {
        shut(&self.socket);
        self.state().queues.iter().for_each(|queue| shut(&queue.socket));
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut state = self.controller.state();
        state.past = added(state.past, self.figures.traffic());
        state.queues.retain(|queue| queue.id != self.id);
    }
}

fn shut(socket: &OwnedFd) {
    // Fails only when the host is gone already.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

fn added(one: Traffic, other: Traffic) -> Traffic {
    Traffic {
        requests: one.requests + other.requests,
        read_bytes: one.read_bytes + other.read_bytes,
        written_bytes: one.written_bytes + other.written_bytes,
        errors: one.errors + other.errors,
        in_flight: one.in_flight + other.in_flight,
    }
}
