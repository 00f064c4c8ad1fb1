//! The write hole of parity levels: which blocks a crash and a lost member may take together.
//!
//! A *row* is one logical block of every chunk of a stripe, at the same height. After a crash the
//! parity of a row may not match its data when some block of it was being written, or had been written
//! and not made durable. Nothing is lost as long as every member is there: the data is read from them,
//! and the resync makes parity match. When a member is missing (or fails, or cannot read the block)
//! before that, its block of such a row comes out of wrong parity: it may be anything, although nobody
//! was writing it. A partial parity log closes that: with one in use only what was being written itself may be anything, and
//! only on the member that is missing. With a journal nothing may be anything. Other policies do not promise it.
//!
//! Invariant: no block is forgotten whose row was at rest, and durable, when the power failed.

use crate::oracle::Oracle;
use braid_layout::{Layout, Parity, Role, Slot};
use std::collections::BTreeSet;

/// Rows whose parity may not match.
#[derive(Default)]
pub struct Holes {
    rows: BTreeSet<(u64, u64)>,
    /// Blocks that were open while every write was logged.
    logged: BTreeSet<u64>,
    /// When the power failed last every write was logged.
    pub all_logged: bool,
    /// All that was being written was in a journal.
    pub journaled: bool,
}

fn parity(layout: &Layout) -> Option<&Parity> {
    match layout {
        Layout::Parity(parity) => Some(parity),
        _ => None,
    }
}

impl Holes {
    /// Power has failed while several versions of these blocks were possible.
    pub fn crash(&mut self, layout: &Layout, block_size: u64, open: &[u64]) {
        let Some(parity) = parity(layout) else { return };
        if self.journaled {
            return;
        }
        if self.all_logged {
            self.logged.extend(open);
            return;
        }
        for block in open {
            let (stripe, _, within) = parity.locate(block * block_size);
            self.rows.insert((stripe, within / block_size));
        }
    }

    /// Parity may be wrong anywhere: it never matched, and a forced start took it for right.
    pub fn open_all(&mut self, layout: &Layout, block_size: u64) {
        let Some(parity) = parity(layout) else { return };
        let rows = parity.chunk_size() / block_size;
        self.rows
            .extend((0..parity.stripes()).flat_map(|stripe| (0..rows).map(move |r| (stripe, r))));
    }

    /// Parity matches data everywhere.
    pub fn close(&mut self) {
        self.rows.clear();
        self.logged.clear();
    }

    /// True when parity matches data everywhere.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.logged.is_empty()
    }

    /// The member of `slot` is lost: its blocks of open rows may be anything.
    pub fn lose(&self, layout: &Layout, slot: Slot, oracle: &mut Oracle) {
        self.lose_part(layout, slot, 0..u64::MAX, oracle);
    }

    /// Component bytes `range` of the member of `slot` cannot be read.
    pub fn lose_part(
        &self,
        layout: &Layout,
        slot: Slot,
        range: std::ops::Range<u64>,
        oracle: &mut Oracle,
    ) {
        let Some(parity) = parity(layout) else { return };
        let size = oracle.block_size();
        for block in &self.logged {
            let (stripe, k, within) = parity.locate(block * size);
            let at = parity.member_offset(stripe) + within;
            if parity.data_slot(stripe, k) == slot && at < range.end && at + size > range.start {
                oracle.forget(*block);
            }
        }
        for (stripe, row) in &self.rows {
            let at = parity.member_offset(*stripe) + row * size;
            if at >= range.end || at + size <= range.start {
                continue;
            }
            if let Role::Data(k) = parity.role(*stripe, slot) {
                oracle.forget(parity.array_offset(*stripe, k, row * size) / size);
            }
        }
    }
}
