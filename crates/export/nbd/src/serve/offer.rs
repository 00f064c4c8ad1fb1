//! The offer of a server: its targets, which may come and go while it runs, and the clients of each.
//!
//! It is locked when a connection comes or goes and when the offer changes, never for a request. Invariant: a
//! connection is entered with a target that is offered at that moment, and is disconnected when it no longer is.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_device::Target;
use braid_export::Figures;
use braid_export::gate::Gate;
use braid_shard::mailbox::Remote;
use rustix::net::Shutdown;

use super::exports::export_of;
use super::read_only::ReadOnly;
use crate::protocol::{ExportTable, ExportTableError};

struct Entry {
    name: String,
    target: Arc<dyn Target>,
    gate: Arc<Gate>,
    /// Those who use it.
    clients: Vec<Connected>,
}

/// A client, as others know it.
#[derive(Clone)]
pub(super) struct Connected {
    pub socket: Arc<OwnedFd>,
    pub figures: Arc<Figures>,
}

/// A client's way to the target that it has asked for.
pub(super) struct Entered {
    pub target: Arc<dyn Target>,
    pub gate: Arc<Gate>,
    pub figures: Arc<Figures>,
    pub using: Using,
}

/// See the module's documentation.
pub(super) struct Offer {
    entries: Mutex<Vec<Entry>>,
    default: Option<String>,
    /// Targets that are offered to be read only.
    read_only: Vec<String>,
    /// The shard that keeps the targets' gates.
    home: Remote,
}

/// Keeps a connection entered with the target that it uses.
pub(super) struct Using {
    offer: Arc<Offer>,
    socket: Arc<OwnedFd>,
}

impl Offer {
    /// Offers `targets`, whose gates are kept on the shard `home`; the empty name leads to `default`. Those that `read_only`
    /// names, now or when they come, are offered to be read only.
    ///
    /// # Errors
    /// Names or sizes that cannot be advertised.
    pub fn new(
        home: &Remote,
        targets: Vec<Arc<dyn Target>>,
        default: Option<&str>,
        read_only: &[String],
    ) -> Result<Offer, ExportTableError> {
        let offer = Offer {
            entries: Mutex::default(),
            default: default.map(str::to_owned),
            read_only: read_only.to_vec(),
            home: home.clone(),
        };
        let entries: Vec<Entry> = targets.into_iter().map(|target| offer.entry(target)).collect();
        table(&entries, default)?;
        *offer.entries() = entries;
        Ok(offer)
    }

    /// A panic elsewhere leaves the entries as they were: each change is a single step.
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exports that a client which connects now is told of.
    pub fn table(&self) -> Result<ExportTable, ExportTableError> {
        let entries = self.entries();
        // The default may have gone meanwhile: then nothing is.
        let there = |name: &&str| entries.iter().any(|entry| entry.name == *name);
        table(&entries, self.default.as_deref().filter(there))
    }

    /// Offers one more.
    pub fn add(&self, target: Arc<dyn Target>) -> Result<(), ExportTableError> {
        let entry = self.entry(target);
        let mut entries = self.entries();
        entries.push(entry);
        let refused = table(&entries, None).err();
        if refused.is_some() {
            entries.pop();
        }
        refused.map_or(Ok(()), Err)
    }

    fn entry(&self, target: Arc<dyn Target>) -> Entry {
        let (name, gate) = (target.info().name, Gate::new(self.home.clone()));
        let target = match self.read_only.contains(&name) {
            true => Arc::new(ReadOnly(target)),
            false => target,
        };
        Entry { name, target, gate, clients: Vec::new() }
    }

    /// `name` is offered.
    pub fn has(&self, name: &str) -> bool {
        self.entries().iter().any(|entry| entry.name == name)
    }

    /// Offers `name` no longer and disconnects who uses it.
    pub fn remove(&self, name: &str) {
        let mut entries = self.entries();
        for client in entries.iter().filter(|entry| entry.name == name).flat_map(|e| &e.clients) {
            // Fails only when the client is gone already.
            let _ = rustix::net::shutdown(&client.socket, Shutdown::Both);
        }
        entries.retain(|entry| entry.name != name);
    }

    /// Offers `name` no longer, unless somebody uses it: then gives how many.
    pub fn remove_unused(&self, name: &str) -> Result<(), usize> {
        let mut entries = self.entries();
        let used = entries.iter().find(|entry| entry.name == name).map_or(0, |e| e.clients.len());
        if used > 0 {
            return Err(used);
        }
        entries.retain(|entry| entry.name != name);
        Ok(())
    }

    /// The clients of each target.
    pub fn clients(&self) -> Vec<(String, Connected)> {
        let entries = self.entries();
        let of = |entry: &Entry| {
            let name = entry.name.clone();
            entry
                .clients
                .iter()
                .map(move |client| (name.clone(), client.clone()))
                .collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }

    /// Enters the client at `socket` with the target `name`; `None` when it is not offered any more.
    pub fn enter(self: &Arc<Self>, name: &str, socket: Arc<OwnedFd>) -> Option<Entered> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.name == name)?;
        let figures = Arc::new(Figures::default());
        entry
            .clients
            .push(Connected { socket: Arc::clone(&socket), figures: Arc::clone(&figures) });
        let (target, gate) = (Arc::clone(&entry.target), Arc::clone(&entry.gate));
        Some(Entered { target, gate, figures, using: Using { offer: Arc::clone(self), socket } })
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        for entry in self.offer.entries().iter_mut() {
            entry.clients.retain(|client| !Arc::ptr_eq(&client.socket, &self.socket));
        }
    }
}

fn table(entries: &[Entry], default: Option<&str>) -> Result<ExportTable, ExportTableError> {
    // Sizes may have changed since the last connection (an array that grew).
    ExportTable::new(entries.iter().map(|entry| export_of(&entry.target.info())).collect(), default)
}
