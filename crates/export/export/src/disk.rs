//! A target as the client of one connection has it: opened on the shard that serves the connection.

use braid_device::{Device, OpenError, Target};
use braid_shard::Shard;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// See the module's documentation.
pub struct Disk {
    device: RefCell<Rc<dyn Device>>,
    target: Arc<dyn Target>,
    shard: Shard,
    read_only: bool,
}

impl Disk {
    /// Opens it on `shard`.
    ///
    /// # Errors
    /// The target is being stopped.
    pub fn open(target: &Arc<dyn Target>, shard: &Shard) -> Result<Disk, OpenError> {
        let device = RefCell::new(target.open(shard)?);
        let read_only = target.info().read_only;
        Ok(Disk { device, target: Arc::clone(target), shard: shard.clone(), read_only })
    }

    /// The device that takes requests now. One that has begun ends at the device that it was given to.
    #[must_use]
    pub fn device(&self) -> Rc<dyn Device> {
        Rc::clone(&self.device.borrow())
    }

    /// Nothing that changes content is to be done.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// True when the target is larger than it was when it was opened: it is opened anew then. For requests behind the end that
    /// was known, of clients that have been told of growth.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        let known = self.device.borrow().info().size;
        if self.target.info().device.size <= known {
            return false;
        }
        match self.target.open(&self.shard) {
            Ok(device) => {
                *self.device.borrow_mut() = device;
                true
            }
            Err(_) => false,
        }
    }
}
