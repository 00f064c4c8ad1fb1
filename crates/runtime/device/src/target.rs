//! The traits of things that can be exported, and of things that can be opened as a device on a shard.

use crate::device::Device;
use crate::info::DeviceInfo;
use braid_shard::Shard;
use std::rc::Rc;

/// A device could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("opening {name}: {why}")]
pub struct OpenError {
    /// The device, as the user named it.
    pub name: String,
    /// The error, and a remedy.
    pub why: String,
}

/// Makes the device on any shard: each shard has handles of its own.
pub trait Opener: Send + Sync {
    /// The device as the user named it.
    fn name(&self) -> &str;

    /// Opens the device for use on `shard`.
    ///
    /// # Errors
    /// When it is not there, is in use, or may not be opened.
    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError>;

    /// Messages for the user, in the ordinary case none.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// It comes over a network, as far as is known, so that other hosts may reach it, too. May block: not for a shard's
    /// thread.
    fn is_remote(&self) -> bool {
        false
    }
}

/// The properties that an export announces to its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// The export's name.
    pub name: String,
    /// One line for people; may be empty.
    pub description: String,
    /// Size, block sizes and abilities.
    pub device: DeviceInfo,
    /// Writes are refused.
    pub read_only: bool,
}

/// Something that can be served: an array, a volume's file, a plain device.
pub trait Target: Send + Sync {
    /// The properties for clients. May change between calls (an array that was grown).
    fn info(&self) -> TargetInfo;

    /// The UUID that it has on every host and after each restart; `None` when it has none of its own.
    fn uuid(&self) -> Option<[u8; 16]> {
        None
    }

    /// The front end for requests that arrive on `shard`.
    ///
    /// # Errors
    /// When the target is being stopped.
    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError>;
}
