//! The end of arrays: their clients are asked for first, and what is said of their state was read back.

use super::orders::status;
use super::running::Running;
use super::stacking;
use crate::exit::refused;
use crate::on_shard;
use anyhow::{Result, anyhow, bail};
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::state::ArrayId;
use braid_array::status::{Ended, Left};
use braid_control::protocol::{Answer, Code};
use braid_device::Target;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that clients have to be gone after they let go of what they used: Linux tells a FUSE server of the end of a file a
/// moment after the close has come back.
const LEAVING: Duration = Duration::from_millis(500);
/// The time between two looks at who is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How all that ran was left.
pub struct End {
    /// A sentence for each array.
    pub lines: Vec<String>,
    /// Everything is as a stop should leave it, also what was stopped before.
    pub well: bool,
}

impl Running {
    /// The arrays are about to be stopped for another process of this host: other hosts are kept off them meanwhile.
    pub fn hand_over(&self) {
        let arrays = self.arrays().clone();
        for array in arrays {
            // One that has been stopped meanwhile is not handed over.
            let _ = array.control(|control| async move { control.hand_over() });
        }
    }

    /// Unmounts all volumes and stops all arrays that still run.
    ///
    /// # Errors
    /// When a shard is gone.
    pub fn stop_all(&self) -> Result<End> {
        let unmounted = self.volumes.unmount_all();
        let _turn = self.stack_turn();
        let mut lines = Vec::new();
        for array in self.salvaged().drain(..) {
            array.stop();
            // Its members were opened to be read only.
            lines.push(format!("array {}: nothing was written", array.info().name));
        }
        let ends = self.stop_arrays(std::mem::take(&mut *self.arrays()))?;
        lines.extend(ends.iter().map(sentence));
        let well = unmounted && ends.iter().all(Left::is_well);
        Ok(End { lines, well: well && !self.unwell.load(Ordering::Relaxed) })
    }

    pub(super) fn is_stopping(&self, array: &Array) -> bool {
        self.stopping().contains(&array.id())
    }

    fn stopping(&self) -> MutexGuard<'_, Vec<ArrayId>> {
        // Every change of the list is a single call.
        self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the array that is wanted, or all there is. Without `force` not while clients use it.
    ///
    /// # Errors
    /// Clients, arrays and volumes that use it; an array that could not be left as a stop should leave it.
    pub(super) fn stop(&self, wanted: Option<&str>, force: bool) -> Result<Answer> {
        let mut names = Vec::new();
        let chosen = wanted.and_then(|name| self.find_salvaged(Some(name)));
        if !force {
            let name = match (&chosen, wanted) {
                (Some(array), _) => Some(array.info().name),
                (None, Some(wanted)) => Some(self.find(Some(wanted))?.name().to_string()),
                (None, None) => None,
            };
            self.no_clients(name.as_deref())?;
        }
        self.salvaged().retain(|array| {
            let stops = match &chosen {
                Some(chosen) => Arc::ptr_eq(chosen, array),
                None => wanted.is_none(),
            };
            if stops {
                array.stop();
                self.doors.withdraw(&array.info().name);
                names.push(array.info().name);
            }
            !stops
        });
        if wanted.is_none() {
            self.volumes.unmount_all();
        }
        let turn = self.stack_turn();
        let arrays = match wanted {
            Some(_) if chosen.is_some() => Vec::new(),
            Some(name) => vec![self.find(Some(name))?],
            None => stacking::tops_first(self.arrays().clone()).into_iter().flatten().collect(),
        };
        let mut left = Vec::new();
        for array in &arrays {
            let name = array.name();
            let users = stacking::users(&self.arrays())?;
            if let Some(user) = users.get(name).filter(|_| wanted.is_some()) {
                let why = format!(
                    "array {name} is a member of array {user}: stop {user} first, or fail array:{name} there and \
                     remove it"
                );
                return Err(refused(Code::InUse, why));
            }
            self.no_brick(name)?;
            let members = status(array)?.members;
            let below = members.iter().filter_map(|member| stacking::array_of(&member.name));
            left.extend(below.map(str::to_string));
        }
        let ids: Vec<ArrayId> = arrays.iter().map(|array| array.id()).collect();
        self.stopping().extend(&ids);
        self.stopped().extend(arrays.iter().map(|array| array.uuid()));
        // A member that does not answer may hold an array's end up: others go on meanwhile.
        drop(turn);
        let ended = self.stop_arrays(arrays.clone());
        let _turn = self.stack_turn();
        self.stopping().retain(|id| !ids.contains(id));
        let ends = ended?;
        for array in &arrays {
            self.arrays().retain(|known| known.id() != array.id());
            self.doors.withdraw(array.name());
            names.push(array.name().to_string());
        }
        left.retain(|name| self.arrays().iter().any(|array| array.name() == name));
        self.offer_free(left.iter().map(String::as_str))?;
        if ends.iter().any(|end| !end.is_well()) {
            self.unwell.store(true, Ordering::Relaxed);
            let all: Vec<String> = ends.iter().map(sentence).collect();
            bail!(
                "stopped, but not all is well: {}; `braid examine` shows what members say",
                all.join("; ")
            );
        }
        let mut said = match names.as_slice() {
            [] => "no array was running".to_string(),
            names => format!("stopped: {}", names.join(", ")),
        };
        if !left.is_empty() {
            let left = left.join(", ");
            said.push_str(&format!("; what it was made of still runs and is exported: {left}"));
        }
        for end in &ends {
            said.push_str(&format!("; {}", sentence(end)));
        }
        Ok(Answer::Done { text: said })
    }

    /// Those who use an array, or anything.
    fn clients(&self, name: Option<&str>) -> Vec<String> {
        let mut clients: Vec<String> = self
            .doors
            .clients_now()
            .into_iter()
            .filter(|client| name.is_none_or(|name| client.target == name))
            .map(|client| client.to_string())
            .collect();
        if name.is_none() {
            clients.extend(self.volumes.clients());
        }
        clients
    }

    /// Refuses what would cut clients off, and names them.
    fn no_clients(&self, name: Option<&str>) -> Result<()> {
        let until = Instant::now() + LEAVING;
        let clients = loop {
            let clients = self.clients(name);
            if clients.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                break clients;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let (what, again) = match name {
            Some(name) => (format!("array {name} is"), format!("braid stop {name} --force")),
            None => ("arrays are".to_string(), "braid stop --all --force".to_string()),
        };
        let clients = clients.join(", ");
        let why =
            format!("{what} used by clients: {clients}; disconnect them, or cut them off: {again}");
        Err(refused(Code::InUse, why))
    }
}

/// How an array was left, from what its members say.
fn sentence(left: &Left) -> String {
    let Left { name, ended, written, problems, not_durable, .. } = left;
    let state = match ended {
        Ended::Untouched => "nothing was written".to_string(),
        Ended::Clean => format!("clean, as read back from {written} members"),
        Ended::Active => "NOT marked clean, its next start resyncs it".to_string(),
    };
    let mut said = vec![format!("array {name}: {state}")];
    said.extend(problems.iter().cloned());
    said.extend(
        not_durable.iter().map(|why| format!("{why}; check the device, and what is on the array")),
    );
    said.join("; ")
}

/// Stops an array; `None` where it has been stopped already.
fn stop_array(array: &Arc<Array>) -> Result<Option<Left>> {
    let id = array.id();
    on_shard::run(array.home(), move |shard| async move {
        match Control::find(&shard, id) {
            Some(control) => Some(control.stop().await),
            None => None,
        }
    })
}

impl Running {
    /// Stops arrays, each before those that it is made of; those that have nothing to do with each other at the same time.
    /// The results of their checks are kept.
    fn stop_arrays(&self, arrays: Vec<Arc<Array>>) -> Result<Vec<Left>> {
        let mut all = Vec::new();
        for layer in stacking::tops_first(arrays) {
            std::thread::scope(|scope| {
                let stop = |array: &Arc<Array>| {
                    let left = stop_array(array);
                    let scrub = left.as_ref().ok().and_then(|left| left.as_ref()?.scrub.clone());
                    self.scrubs.stopped(array, scrub);
                    if let (Ok(_), Some(lease)) = (&left, &self.lease) {
                        lease.give_up(&array.uuid());
                    }
                    left
                };
                let stops: Vec<_> =
                    layer.iter().map(|array| scope.spawn(move || stop(array))).collect();
                let ends = stops.into_iter().map(|stop| stop.join());
                // The thread does nothing that could panic; if it did, the array would not have been stopped.
                let failed = || Err(anyhow!("stopping an array failed"));
                for end in ends {
                    all.extend(end.unwrap_or_else(|_| failed())?);
                }
                anyhow::Ok(())
            })?;
        }
        Ok(all)
    }
}
