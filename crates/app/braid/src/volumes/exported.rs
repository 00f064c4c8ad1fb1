//! A file of a volume that is offered as a block device.

use braid_filesystem::Ino;
use braid_nbd::serve::Server;

/// See the module's documentation.
pub struct Exported {
    /// Its path from the volume's root.
    pub(super) file: String,
    pub(super) ino: Ino,
    pub(super) uri: String,
    pub(super) server: Server,
}
