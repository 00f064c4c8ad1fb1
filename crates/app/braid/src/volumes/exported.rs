//! A file of a volume that is offered as a block device.

use braid_export::Export;
use braid_filesystem::Ino;

/// See the module's documentation.
pub struct Exported {
    /// Its path from the volume's root.
    pub(super) file: String,
    pub(super) ino: Ino,
    pub(super) uri: String,
    pub(super) door: Box<dyn Export>,
}
