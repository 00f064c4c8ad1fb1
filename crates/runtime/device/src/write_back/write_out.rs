//! What was kept goes to the device: in the order of its places there, neighbours together.

use super::device::WriteBack;
use super::kept::{BLOCK, Blocks};
use crate::error::{IoError, IoErrorKind};
use crate::request::Request;
use braid_shard::{Buf, Nanos};

/// Bytes of a request that is made of neighbours, at most.
const RUN_MAX: usize = 512 << 10;
/// Requests on their way at a time: enough for any disk, and few enough for a reader not to wait long behind them.
const AT_ONCE: usize = 32;
/// A device without space (a sparse file on a full file system) is asked again so often.
const SPACE_INTERVAL: Nanos = 5_000_000_000;
/// Times that it is asked again before the data is given up.
const SPACE_TRIES: u32 = 24;

/// Neighbours: the first byte, and one block after the other.
type Run<'a> = (u64, Vec<(&'a u64, &'a Buf)>);

impl WriteBack {
    /// Writes out what is kept now, and waits for it. What could not be written is noted in `failure`.
    pub(super) async fn write_out(&self) {
        self.ended.wait_for(|| (!self.leaving.get()).then_some(())).await;
        let batch = {
            let mut kept = self.kept.borrow_mut();
            if kept.new_bytes() == 0 {
                return;
            }
            kept.begin_batch()
        };
        self.leaving.set(true);
        let refused = self.write_batch(&batch).await;
        drop(batch);
        self.kept.borrow_mut().end_batch(refused);
        self.leaving.set(false);
        self.ended.notify_all();
    }

    /// Writes a batch, and gives the blocks that the device did not take.
    async fn write_batch(&self, batch: &Blocks) -> Blocks {
        let mut refused = Blocks::new();
        let runs = runs(batch);
        for some in runs.chunks(AT_ONCE) {
            let mut writes = self.sets.start();
            for ((start, blocks), tag) in some.iter().zip(0u32..) {
                writes.submit(tag, &*self.below, self.request(*start, blocks));
            }
            let outcomes = writes.finish().await;
            let failed: Vec<(u32, IoError)> =
                outcomes.filter_map(|(tag, outcome)| Some((tag, outcome.result.err()?))).collect();
            for (tag, error) in failed {
                let Some((_, blocks)) = some.get(tag as usize) else { continue };
                for (at, block) in blocks {
                    // One bad block is no reason to lose its neighbours.
                    let written = match error.means_gone() {
                        true => Err(error),
                        false => self.write_one(**at, block).await,
                    };
                    if let Err(error) = written {
                        self.failure.set(self.failure.get().or(Some(error)));
                        refused.insert(**at, block.slice(0..block.len()));
                    }
                }
            }
        }
        refused
    }

    /// The request that writes neighbours.
    fn request(&self, start: u64, blocks: &[(&u64, &Buf)]) -> Request {
        if let [(_, block)] = blocks {
            return Request::write(start, block.slice(0..block.len()), false);
        }
        let mut run = self.shard.pool().get(blocks.len() * BLOCK as usize);
        for (place, (_, block)) in run.chunks_exact_mut(BLOCK as usize).zip(blocks) {
            place.copy_from_slice(block);
        }
        Request::write(start, run.freeze(), false)
    }

    /// Writes one block again that was not taken.
    async fn write_one(&self, at: u64, block: &Buf) -> Result<(), IoError> {
        let mut tries = 0;
        loop {
            let request = Request::write(at, block.slice(0..block.len()), false);
            match self.sets.one(&*self.below, request).await.result {
                Err(error) if error.kind == IoErrorKind::NoSpace && tries < SPACE_TRIES => {
                    if tries == 0 {
                        let device = &self.below.info().name;
                        tracing::warn!(%device, "{error}: writes wait; free some space below it");
                    }
                    tries += 1;
                    self.shard.sleep(SPACE_INTERVAL).await;
                }
                result => return result,
            }
        }
    }
}

/// Cuts a batch into runs of neighbours.
fn runs(batch: &Blocks) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (at, block) in batch {
        match runs.last_mut() {
            Some((start, blocks))
                if *start + blocks.len() as u64 * BLOCK == *at
                    && blocks.len() * (BLOCK as usize) < RUN_MAX =>
            {
                blocks.push((at, block));
            }
            _ => runs.push((*at, vec![(at, block)])),
        }
    }
    runs
}
