//! The doors that the options name. Nothing else in the server knows them by name.

use crate::cli::Serve;
use anyhow::Result;
use braid_device::Target;
use braid_export::{Doors, Export};
use braid_nbd::serve::Server;
use braid_shard::mailbox::Remote;
use std::sync::Arc;

/// Opens all doors, which offer `targets`.
///
/// # Errors
/// An address that is in use, names that a protocol cannot express.
pub(super) fn open(
    options: &Serve,
    shards: &[Remote],
    targets: Vec<Arc<dyn Target>>,
) -> Result<Doors> {
    let limits = options.nbd_limits.limits();
    let nbd = Server::start_within(&limits, shards, &options.nbd, targets.clone(), None)?;
    let doors: Vec<Arc<dyn Export>> = vec![Arc::new(nbd)];
    Ok(Doors::new(doors, targets))
}
