//! A handle on a running array that any thread may hold: what an export serves and what commands are
//! sent through.

use crate::control::Control;
use crate::engine::Engine;
use crate::state::ArrayId;
use crate::state::array_size::ArraySize;
use braid_device::{Device, DeviceInfo, OpenError, Target, TargetInfo};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A number that no other array of this process has or had.
pub(crate) fn new_id() -> ArrayId {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// A running array. Dropping the handle does not stop it: [`Control::stop`] does.
pub struct Array {
    id: ArrayId,
    name: String,
    uuid: [u8; 16],
    description: String,
    device: DeviceInfo,
    size: Arc<ArraySize>,
    read_only: bool,
    remotes: Vec<Remote>,
    home: Remote,
}

/// The parts that [`Array::new`] is made of.
pub(crate) struct ArrayParts {
    pub(crate) id: ArrayId,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) description: String,
    pub(crate) device: DeviceInfo,
    /// Its size, shared with the engines.
    pub(crate) size: Arc<ArraySize>,
    pub(crate) read_only: bool,
    pub(crate) remotes: Vec<Remote>,
    pub(crate) home: Remote,
}

impl Array {
    pub(crate) fn new(parts: ArrayParts) -> Array {
        let ArrayParts { id, name, uuid, description, device, size, read_only, remotes, home } =
            parts;
        Array { id, name, uuid, description, device, size, read_only, remotes, home }
    }

    /// Its number within the process.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// The name that it runs under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies it on disk.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The shard with the array's [`Control`].
    pub fn home(&self) -> &Remote {
        &self.home
    }

    /// All its shards, in order.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// Runs `job` with the array's control on the home shard and waits for what it gives; `None`
    /// when the array has been stopped. Must not be called on a shard's thread: there, use
    /// [`Control::find`].
    ///
    /// ```ignore
    /// let status = array.control(|control| async move { control.status().await });
    /// ```
    pub fn control<T, F, W>(&self, job: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        let id = self.id;
        self.home.call_async(move |shard, done| {
            if let Some(control) = Control::find(shard, id) {
                let work = job(control);
                shard.spawn(async move { done(work.await) });
            }
        })
    }
}

impl Target for Array {
    fn info(&self) -> TargetInfo {
        TargetInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            device: DeviceInfo { size: self.size.get(), ..self.device.clone() },
            read_only: self.read_only,
        }
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        Some(self.uuid)
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        match Engine::find(shard, self.id) {
            Some(engine) => Ok(engine.device()),
            None => Err(OpenError {
                name: self.name.clone(),
                why: "the array has been stopped; assemble it again".to_string(),
            }),
        }
    }
}
