//! The disk below the members, by itself: one file written and read in order, as large as a member,
//! in requests as large as those of a rebuild.

use super::stage::Interrupt;
use crate::on_shard;
use anyhow::{Context, Result};
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Opener, Request};
use std::path::Path;
use std::time::Instant;

/// Bytes of a request.
const PIECE: usize = 1 << 20;
/// Requests in flight.
const DEPTH: u64 = 8;

/// Bytes per second of writing and of reading.
#[derive(Clone, Copy)]
pub struct Rates {
    /// Written and flushed.
    pub write: f64,
    /// Read.
    pub read: f64,
}

/// Measures with a file of `bytes` bytes (whole MiB) at `path`, which is gone afterwards.
///
/// # Errors
/// When the disk is full or fails, or a signal came.
pub fn measure(path: &Path, bytes: u64, interrupt: &Interrupt) -> Result<Rates> {
    create_sparse(path, bytes)?;
    let member = FileMember::open(path, Mode::ReadWrite)?;
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let interrupt = interrupt.clone();
    let rates = on_shard::run(home, move |shard| async move {
        let device = member.open(&shard)?;
        let sets = IoSets::new(&shard);
        let payload = shard.pool().copy_of(&vec![0x5a; PIECE]).freeze();
        let mut rates = [0.0; 2];
        for (rate, write) in rates.iter_mut().zip([true, false]) {
            let began = Instant::now();
            for first in (0..bytes).step_by(PIECE * DEPTH as usize) {
                interrupt.go_on()?;
                let mut set = sets.start();
                let end = bytes.min(first + PIECE as u64 * DEPTH);
                for (tag, at) in (0..).zip((first..end).step_by(PIECE)) {
                    let request = match write {
                        true => Request::write(at, payload.clone(), false),
                        false => Request::read(at, shard.pool().get(PIECE)),
                    };
                    set.submit(tag, &*device, request);
                }
                for (_, outcome) in set.finish().await {
                    outcome.result.context("measuring the disk below")?;
                }
            }
            if write {
                let flushed = sets.one(&*device, Request::flush()).await;
                flushed.result.context("flushing the disk below")?;
            }
            *rate = bytes as f64 / began.elapsed().as_secs_f64().max(1e-9);
        }
        let [write, read] = rates;
        Ok::<_, anyhow::Error>(Rates { write, read })
    })?;
    std::fs::remove_file(path).context("removing the file that was measured with")?;
    rates
}
