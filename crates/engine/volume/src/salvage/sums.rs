//! The checksums of a range of blocks of a file, as far as the metadata has them.
//!
//! Invariant: a block is called rotten only by a checksum that was recorded with it. Those of a region that was being written
//! over when the volume was stopped may be of before, so there none is known.

use super::read::Salvage;
use braid_format::volume::keys;
use braid_format::volume::snapshot::{file_of, snapshot_of};
use braid_format::volume::sums::{IntentRecord, PER_REGION, PER_WINDOW, UNKNOWN, parse};
use braid_kv::Store;
use std::ops::Range;

/// The checksums of the blocks from `first` on.
pub(super) struct Known {
    first: u64,
    sums: Vec<u32>,
    /// Why there may be more, if there may.
    pub damaged: Option<String>,
    /// Bricks whose copies of some of these blocks have lost something.
    pub stale: Vec<u16>,
}

impl Known {
    /// That of a block, counted from the start of the file; [`UNKNOWN`] where it is not known.
    pub(super) fn get(&self, block: u64) -> u32 {
        let at = block.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.sums.get(at)).copied().unwrap_or(UNKNOWN)
    }
}

impl Salvage {
    /// The checksums of these blocks of a file, which are those of a stripe at most.
    pub(super) async fn known_of(&self, ino: u64, blocks: Range<u64>) -> Known {
        let count = blocks.end.saturating_sub(blocks.start) as usize;
        let (first, stale) = (blocks.start, Vec::new());
        let mut known = Known { first, sums: vec![UNKNOWN; count], damaged: None, stale };
        if !self.has_sums {
            return known;
        }
        let windows = blocks.start / PER_WINDOW..blocks.end.div_ceil(PER_WINDOW);
        // A block that a snapshot has is not written over.
        let is_now = snapshot_of(ino) == 0;
        let mut marked = None;
        for window in windows {
            let region = window / PER_REGION;
            let is_marked = match marked {
                Some((of, is_marked)) if of == region => is_marked,
                _ => match self.store.get(&keys::intent(file_of(ino), region)).await {
                    Ok(mark) => {
                        let mark = mark.map(|bytes| IntentRecord::parse(ino, region, &bytes));
                        let is_marked = match mark {
                            Some(Ok(mark)) => {
                                known.stale.extend(mark.stale);
                                mark.written_over && is_now
                            }
                            // As good as the one that it was.
                            Some(Err(_)) => is_now,
                            None => false,
                        };
                        marked.insert((region, is_marked)).1
                    }
                    Err(error) => {
                        known.damaged = Some(error.to_string());
                        continue;
                    }
                },
            };
            if is_marked {
                continue;
            }
            let recorded = match self.value(&keys::sums(ino, window)).await {
                Ok(None) => continue,
                Ok(Some(bytes)) => parse(ino, window, &bytes).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match recorded {
                Ok(recorded) => {
                    for (block, sum) in (window * PER_WINDOW..).zip(recorded) {
                        let at = block.checked_sub(blocks.start).map(|at| at as usize);
                        if let Some(place) = at.and_then(|at| known.sums.get_mut(at)) {
                            *place = sum;
                        }
                    }
                }
                Err(why) => known.damaged = Some(why),
            }
        }
        known
    }
}
