//! Running something asynchronous of the engine on a shard, from an ordinary thread.

use anyhow::{Context as _, Result};
use braid_array::metadata::superblock::{self, Examined};
use braid_array::options::Context;
use braid_device::Opener;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::{Shards, start};
use std::future::Future;
use std::sync::Arc;

/// Starts `count` shards.
///
/// # Errors
/// When the system refuses a thread or an io_uring.
pub fn start_shards(count: usize) -> Result<Shards> {
    start(count).context("braid works through the kernel's io_uring, which is not to be had here")
}

/// Runs `job` on the shard `home` and waits for what it gives. Must not be called on a shard.
///
/// # Errors
/// When the shard is gone.
pub fn run<T, F, W>(home: &Remote, job: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(Shard) -> W + Send + 'static,
    W: Future<Output = T> + 'static,
{
    home.call_async(move |shard, done| {
        let work = job(shard.clone());
        shard.spawn(async move { done(work.await) });
    })
    .context("the shard ended before it was done; this is a defect, see what was printed before")
}

/// Opens a device on the shard `home` and reads its superblock; writes nothing. Must not be called on a shard.
///
/// # Errors
/// As [`superblock::examine`].
pub fn examine(home: &Remote, opener: &Arc<dyn Opener>) -> Result<Examined> {
    let opener = Arc::clone(opener);
    Ok(run(home, move |shard| async move { superblock::examine(&shard, &*opener).await })??)
}

/// What the engine may use of the outside world, on its home shard.
pub fn context(shard: &Shard, remotes: &[Remote]) -> Context {
    Context {
        shard: shard.clone(),
        remotes: remotes.to_vec(),
        wall_clock: Arc::new(crate::output::time::now),
        new_uuid: Arc::new(|| uuid::Uuid::new_v4().into_bytes()),
        has_ended: Arc::new(crate::hosts::has_ended),
    }
}
