//! The threads of a process's shards: started together, stopped together.

use crate::id::ShardId;
use crate::mailbox::Remote;
use crate::ring::RingError;
use crate::shard::Shard;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The shards could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A shard's io_uring was refused.
    #[error("starting shard {shard}: {source}")]
    Ring {
        /// The shard.
        shard: ShardId,
        /// The kernel's answer.
        source: RingError,
    },
    /// The thread could not be created.
    #[error("starting the thread of shard {shard}: {source}; are there too many threads?")]
    Thread {
        /// The shard.
        shard: ShardId,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Running shards, numbered from 0.
pub struct Shards {
    remotes: Vec<Remote>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts `count` shards (at least one), each on a thread of its own.
///
/// # Errors
/// When a thread or an io_uring is refused; those already started are stopped again.
pub fn start(count: usize) -> Result<Shards, StartError> {
    let mut shards = Shards { remotes: Vec::new(), threads: Vec::new() };
    for id in 0..count.max(1) as ShardId {
        let (send, receive) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("shard-{id}"))
            .spawn(move || match Shard::with_ring(id) {
                Ok(shard) => {
                    let _ = send.send(Ok(shard.remote()));
                    shard.run();
                    shard.abandon();
                }
                Err(source) => {
                    let _ = send.send(Err(source));
                }
            })
            .map_err(|source| StartError::Thread { shard: id, source })?;
        shards.threads.push(thread);
        match receive.recv() {
            Ok(Ok(remote)) => shards.remotes.push(remote),
            Ok(Err(source)) => return Err(StartError::Ring { shard: id, source }),
            Err(_) => {
                let source = std::io::Error::other("the thread ended before it was ready");
                return Err(StartError::Thread { shard: id, source });
            }
        }
    }
    Ok(shards)
}

impl Shards {
    /// Handles on the shards, in order.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for remote in &self.remotes {
            remote.run(|shard| shard.stop());
        }
        for thread in self.threads.drain(..) {
            // An error means that the shard panicked, and the panic has been reported already.
            let _ = thread.join();
        }
    }
}
