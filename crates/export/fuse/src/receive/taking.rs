//! Whoever takes requests of a mount, as the loops that receive them see it.

use crate::serve::Server;
use braid_filesystem::FileSystem;
use braid_shard::Shard;

/// Takes requests of one mount, on one shard.
pub(crate) trait Taking: 'static {
    /// The shard.
    fn shard(&self) -> &Shard;

    /// Nothing is under way: whoever asks next does not wait for another.
    fn is_idle(&self) -> bool;
}

impl<F: FileSystem + 'static> Taking for Server<F> {
    fn shard(&self) -> &Shard {
        &self.shard
    }

    fn is_idle(&self) -> bool {
        Server::is_idle(self)
    }
}
