//! The new parity of a segment, from what was read and what is written.

use crate::redundancy::blocks::{Blocks, TooManyMissing, change_parity};
use crate::state::view::View;
use crate::write::batch::{Batch, Work};
use crate::write::plan::Plan;
use braid_layout::Slot;
use braid_shard::BufMut;
use braid_shard::plant::planted;
use std::ops::Range;

impl Batch<'_> {
    /// Computes the parity of `work`, for the parity members that there are.
    pub(crate) fn compute(&self, view: &View, work: &mut Work) -> Result<(), TooManyMissing> {
        let segment = &work.segment;
        let low = segment.rows.start == 0 && segment.rows.end < self.chunk;
        if planted("parity-of-a-segment") && low && segment.touched.len() == 1 {
            return Ok(());
        }
        let p_slot = Some(self.map.p_slot()).filter(|slot| view.writable(*slot));
        let q_slot = self.map.q_slot().filter(|slot| view.writable(*slot));
        match work.plan {
            Plan::DataOnly => return Ok(()),
            Plan::Rmw => {
                self.engine.measured.count(|counters| counters.rmw += 1);
                return self.read_modify(work, p_slot, q_slot);
            }
            Plan::Full => self.engine.measured.count(|counters| counters.full_stripes += 1),
            Plan::Reconstruct | Plan::Recover => {
                self.engine.measured.count(|counters| counters.reconstruct += 1);
            }
        }
        let pool = self.engine.shard.pool();
        let len = (segment.rows.end - segment.rows.start) as usize;
        let mut p = p_slot.map(|slot| (slot, pool.get(len)));
        let mut q = q_slot.map(|slot| (slot, pool.get(len)));
        for rows in self.bands(&segment.rows) {
            let at = within(&segment.rows, &rows);
            let mut blocks = Blocks::new(self.map, self.parity.q_width());
            for (slot, buf) in &work.reads {
                if let Some(buf) = buf {
                    blocks.set(*slot, buf.slice(at.clone()));
                }
            }
            if work.plan == Plan::Recover {
                blocks.complete_data(pool, at.len())?;
            }
            for k in &segment.touched {
                let k = usize::from(*k);
                if let Some(new) = self.payload(k, &rows) {
                    blocks.set(self.map.data_slot(k), new);
                }
            }
            blocks.parity(
                p.as_mut().and_then(|(_, buf)| buf.get_mut(at.clone())),
                q.as_mut().and_then(|(_, buf)| buf.get_mut(at.clone())),
            )?;
        }
        work.parity = p.into_iter().chain(q).map(|(slot, buf)| (slot, buf.freeze())).collect();
        Ok(())
    }

    fn read_modify(
        &self,
        work: &mut Work,
        p_slot: Option<Slot>,
        q_slot: Option<Slot>,
    ) -> Result<(), TooManyMissing> {
        let pool = self.engine.shard.pool();
        let mut take = |slot: Slot| -> Result<BufMut, TooManyMissing> {
            let read = work.reads.iter_mut().find(|(read, _)| *read == slot);
            let old = read.and_then(|(_, buf)| buf.take()).ok_or(TooManyMissing)?;
            Ok(old.try_into_mut().unwrap_or_else(|shared| pool.copy_of(&shared)))
        };
        let mut p = p_slot.map(&mut take).transpose()?;
        let mut q = q_slot.map(&mut take).transpose()?;
        let segment = &work.segment;
        for k in &segment.touched {
            let k = usize::from(*k);
            let slot = self.map.data_slot(k);
            let read = work.reads.iter().find(|(read, _)| *read == slot);
            let old = read.and_then(|(_, buf)| buf.as_ref()).ok_or(TooManyMissing)?;
            for rows in self.bands(&segment.rows) {
                let Some(new) = self.payload(k, &rows) else { continue };
                let at = within(&segment.rows, &rows);
                let old = old.get(at.clone()).ok_or(TooManyMissing)?;
                let p = p.as_mut().and_then(|buf| buf.get_mut(at.clone()));
                let q = q.as_mut().and_then(|buf| buf.get_mut(at.clone()));
                change_parity(&self.map, k, (old, &new), (p, q));
            }
        }
        let p = p_slot.zip(p);
        let q = q_slot.zip(q);
        work.parity = p.into_iter().chain(q).map(|(slot, buf)| (slot, buf.freeze())).collect();
        Ok(())
    }
}

/// Where rows `part` lie in a block of rows `whole`.
fn within(whole: &Range<u64>, part: &Range<u64>) -> Range<usize> {
    (part.start - whole.start) as usize..(part.end - whole.start) as usize
}
