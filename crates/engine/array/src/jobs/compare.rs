//! Parity held against data in some rows of a stripe: what differs, whose block is wrong where P and Q tell, and
//! what a repair writes.
//!
//! A resync makes parity match data: after a crash any block of a stripe may be old. A check or repair asks P and Q,
//! logical block by logical block: where all of them were read and one alone explains what is found, that one is
//! wrong, data or parity. Where nothing tells (one parity only, a member missing, rows that a resync has not
//! reached) or more than one is wrong, a repair does what md does and computes parity from the data. A repair of
//! parity only does that everywhere, and asks nobody.

use crate::engine::window::WindowKind;
use crate::jobs::correct::{Fix, correct};
use crate::jobs::scrub_parity::{Rows, Scrub};
use crate::jobs::units::differing_sectors;
use crate::redundancy::blocks::Blocks;
use crate::state::findings::{Finding, Verdict};
use crate::state::view::View;
use braid_device::IoError;
use braid_layout::{Slot, StripeMap};
use braid_parity::Wrong;
use braid_shard::Buf;
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// A parity block: as it was read, and as it follows from the data.
struct Parity {
    slot: Slot,
    found: Buf,
    right: Buf,
}

impl Parity {
    fn differs(&self, rows: &Range<usize>) -> bool {
        self.found[rows.clone()] != self.right[rows.clone()]
    }
}

/// Neighbouring rows of which the same is to be said; `None`: nothing tells who is wrong.
struct Run {
    rows: Range<usize>,
    wrong: Option<Wrong>,
}

impl Scrub<'_> {
    /// Computes parity from data and compares; corrects what differs unless it only checks. `whole`: every block
    /// of the stripe was read in these rows.
    pub(crate) async fn compare(
        &mut self,
        view: &Rc<View>,
        rows: Rows,
        map: &StripeMap,
        blocks: &mut Blocks,
        whole: bool,
    ) -> Result<(), IoError> {
        let pool = self.engine.shard.pool();
        let len = rows.len as usize;
        let passes_over = planted("resync-without-missing-data") && self.kind == WindowKind::Resync;
        if blocks.one_data_block_missing() && !passes_over {
            // It counts as what P says; then Q can be held against it.
            let _ = blocks.complete_data(pool, len);
        }
        let at_hand = |slot: &Slot| blocks.get(*slot).is_some();
        let mut p = Some(map.p_slot()).filter(at_hand).map(|slot| (slot, pool.get(len)));
        let mut q = map.q_slot().filter(at_hand).map(|slot| (slot, pool.get(len)));
        let computed = blocks
            .parity(p.as_mut().map(|(_, buf)| &mut **buf), q.as_mut().map(|(_, buf)| &mut **buf));
        if computed.is_err() {
            // More data is missing than one parity can stand for: nothing to compare with.
            return Ok(());
        }
        let with_found = |(slot, right): (Slot, braid_shard::BufMut)| {
            Some(Parity { slot, found: blocks.get(slot)?.clone(), right: right.freeze() })
        };
        let parities: SmallVec<[Parity; 2]> =
            p.into_iter().chain(q).filter_map(with_found).collect();
        let seen = parities
            .iter()
            .filter(|one| !planted("check-blind-to-q") || Some(one.slot) != map.q_slot());
        let differing = seen.map(|one| differing_sectors(&one.found, &one.right)).max();
        let Some(differing @ 1..) = differing else { return Ok(()) };
        self.mismatches += differing;
        if self.kind == WindowKind::Resync {
            let wrong = parities.iter().filter(|one| one.differs(&(0..len)));
            let wrong: SmallVec<[_; 2]> = wrong.map(|one| (one.slot, one.right.clone())).collect();
            return self.write(view, rows, wrong).await;
        }
        let asked = whole && rows.at + rows.len <= view.resynced && self.kind.asks_who_is_wrong();
        let runs = self.runs(map, &parities, len, asked);
        let mut mended = vec![false; runs.len()];
        if self.kind.repairs() {
            let fixes = self.fixes(rows, map, blocks, &parities, &runs);
            self.forget(rows);
            mended = correct(self.engine, view, &fixes, runs.len()).await?;
        }
        for (run, mended) in runs.iter().zip(mended) {
            self.tell(view, rows, map, run, mended);
        }
        Ok(())
    }

    fn runs(&self, map: &StripeMap, parities: &[Parity], len: usize, ask: bool) -> Vec<Run> {
        let block = self.engine.info.logical_block as usize;
        let mut runs: Vec<Run> = Vec::new();
        for start in (0..len).step_by(block) {
            let rows = start..(start + block).min(len);
            if !parities.iter().any(|one| one.differs(&rows)) {
                continue;
            }
            let wrong = match parities {
                [p, q] if ask => Some(braid_parity::locate(
                    (&p.found[rows.clone()], &q.found[rows.clone()]),
                    (&p.right[rows.clone()], &q.right[rows.clone()]),
                    |exponent| chunk_of(map, exponent).is_some(),
                )),
                _ => None,
            };
            match runs.last_mut() {
                Some(last) if last.rows.end == rows.start && last.wrong == wrong => {
                    last.rows.end = rows.end;
                }
                _ => runs.push(Run { rows, wrong }),
            }
        }
        runs
    }

    fn fixes(
        &self,
        rows: Rows,
        map: &StripeMap,
        blocks: &Blocks,
        parities: &[Parity],
        runs: &[Run],
    ) -> Vec<Fix> {
        let mut fixes = Vec::new();
        for (nr, run) in runs.iter().enumerate() {
            let at = rows.at + run.rows.start as u64;
            let data = match run.wrong {
                Some(Wrong::Data(exponent)) => chunk_of(map, exponent),
                _ => None,
            };
            if let (Some(k), Some(p)) = (data, parities.first()) {
                let slot = map.data_slot(k);
                let Some(found) = blocks.get(slot) else { continue };
                // The error of the block is the difference between P stored and P computed.
                let mut right = self.engine.shard.pool().copy_of(&found[run.rows.clone()]);
                let (stored, computed) = (&p.found[run.rows.clone()], &p.right[run.rows.clone()]);
                braid_parity::xor_into(&mut right, &[stored, computed]);
                fixes.push(Fix { group: nr, slot, at, right: right.freeze() });
                continue;
            }
            for one in parities.iter().filter(|one| one.differs(&run.rows)) {
                let right = one.right.slice(run.rows.clone());
                fixes.push(Fix { group: nr, slot: one.slot, at, right });
            }
        }
        fixes
    }

    fn tell(&mut self, view: &View, rows: Rows, map: &StripeMap, run: &Run, mended: bool) {
        let start = rows.at + run.rows.start as u64;
        let component = start..start + run.rows.len() as u64;
        let (verdict, slot) = match run.wrong {
            None | Some(Wrong::Nobody) => (Verdict::Unknown, None),
            Some(Wrong::Several) => (Verdict::Several, None),
            Some(Wrong::P) => (Verdict::Wrong, Some(map.p_slot())),
            Some(Wrong::Q) => (Verdict::Wrong, map.q_slot()),
            Some(Wrong::Data(exponent)) => {
                (Verdict::Wrong, chunk_of(map, exponent).map(|k| map.data_slot(k)))
            }
        };
        self.note(view, rows.stripe, component, verdict, slot.as_slice(), mended);
    }

    /// Notes what was found of `slots` at these component bytes of a stripe.
    pub(crate) fn note(
        &mut self,
        view: &View,
        stripe: u64,
        component: Range<u64>,
        verdict: Verdict,
        slots: &[Slot],
        mended: bool,
    ) {
        let parity = self.parity;
        let array = match slots {
            [slot] => parity.logical(*slot, component.start).map(|at| {
                let len = component.end - component.start;
                at..at + len
            }),
            _ => None,
        };
        let size = parity.stripe_size();
        let array = array.unwrap_or(stripe * size..(stripe + 1) * size);
        let mut members: SmallVec<[_; 2]> =
            slots.iter().filter_map(|slot| view.member_nr(*slot)).collect();
        members.sort_unstable();
        let finding = Finding { array, component, verdict, members, mended };
        self.findings.add(finding, self.kind.repairs());
    }
}

/// The data chunk with this exponent; `None` for a gap of the layout.
fn chunk_of(map: &StripeMap, exponent: usize) -> Option<usize> {
    (0..map.data_chunks()).find(|k| map.exponent(*k) == exponent)
}
