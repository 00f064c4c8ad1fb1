//! The register of what runs for a door: its connections and listeners, on all shards.
//!
//! Owns the bound on connections and the means to end them from another thread. It is locked when
//! a connection comes or goes, never for a request. Invariant: an entry lives as long as its guard.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::Shutdown;

/// Numbers for registers; no two of the process are the same.
fn number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

struct Entry {
    /// A descriptor of its own, to shut the connection down with.
    socket: Arc<OwnedFd>,
    /// It is one of those of which there may be so many.
    counted: bool,
}

#[derive(Default)]
struct Entries {
    connections: Vec<Option<Entry>>,
    listeners: usize,
    closed: bool,
}

impl Entries {
    fn connected(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    fn counted(&self) -> usize {
        self.connections.iter().flatten().filter(|entry| entry.counted).count()
    }
}

/// See the module's documentation.
pub struct Register {
    id: u64,
    held: AtomicBool,
    connections_max: usize,
    entries: Mutex<Entries>,
    changed: Condvar,
}

/// Keeps a connection registered.
pub struct Connected {
    register: Arc<Register>,
    index: usize,
    socket: Arc<OwnedFd>,
}

impl Connected {
    /// A descriptor to shut the connection down with.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Counts it no longer among those of which there may be so many: its door bounds its number in another way.
    pub fn count_no_longer(&self) {
        if let Some(Some(entry)) = self.register.entries().connections.get_mut(self.index) {
            entry.counted = false;
        }
    }

    /// The register that it is in.
    pub fn register(&self) -> &Register {
        &self.register
    }
}

/// Keeps a listener registered.
pub struct Listens {
    register: Arc<Register>,
}

impl Register {
    /// For at most so many connections at a time.
    #[must_use]
    pub fn new(connections_max: usize) -> Register {
        Register {
            id: number(),
            held: AtomicBool::new(false),
            connections_max,
            entries: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The server's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// New connections take no requests, until it is called again with false.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// No connection is to take requests.
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// A panic elsewhere leaves the entries as they were: each change is a single step.
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection; `None` when there are too many or the server is stopping.
    ///
    /// # Errors
    /// When its descriptor cannot be duplicated.
    pub fn connection(self: &Arc<Self>, fd: &OwnedFd) -> io::Result<Option<Connected>> {
        let socket = Arc::new(fd.try_clone()?);
        let mut entries = self.entries();
        if entries.closed || entries.counted() >= self.connections_max {
            return Ok(None);
        }
        let entry = Some(Entry { socket: Arc::clone(&socket), counted: true });
        let free = entries.connections.iter().position(Option::is_none);
        let index = free.unwrap_or(entries.connections.len());
        match entries.connections.get_mut(index) {
            Some(place) => *place = entry,
            None => entries.connections.push(entry),
        }
        Ok(Some(Connected { register: Arc::clone(self), index, socket }))
    }

    /// Connections that there may be.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Registers a listener.
    pub fn listener(self: &Arc<Self>) -> Listens {
        self.entries().listeners += 1;
        Listens { register: Arc::clone(self) }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.entries().connected()
    }

    /// Nothing further is admitted.
    pub fn is_closed(&self) -> bool {
        self.entries().closed
    }

    /// Admits nothing further and shuts every connection down. False when that was done before.
    pub fn close(&self) -> bool {
        let mut entries = self.entries();
        if std::mem::replace(&mut entries.closed, true) {
            return false;
        }
        for entry in entries.connections.iter().flatten() {
            // Fails only when the client is gone already.
            let _ = rustix::net::shutdown(&entry.socket, Shutdown::Both);
        }
        true
    }

    /// Waits until nothing is registered, at most for `limit`; gives what is left.
    pub fn wait(&self, limit: Duration) -> usize {
        self.wait_for(limit, |entries| entries.connected() + entries.listeners)
    }

    /// Waits until no listener is registered, at most for `limit`; gives what is left.
    pub fn wait_for_listeners(&self, limit: Duration) -> usize {
        self.wait_for(limit, |entries| entries.listeners)
    }

    fn wait_for(&self, limit: Duration, left: impl Fn(&Entries) -> usize) -> usize {
        let entries = self
            .changed
            .wait_timeout_while(self.entries(), limit, |entries| left(entries) > 0)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        left(&entries)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(place) = self.register.entries().connections.get_mut(self.index) {
            *place = None;
        }
        self.register.changed.notify_all();
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        self.register.entries().listeners -= 1;
        self.register.changed.notify_all();
    }
}
