//! The bytes of files, as a part of a volume.

use super::settling::Settling;
use crate::extents::{Bricks, ExtentMap};
use crate::gate::Gate;
use crate::namespace::{Inodes, Namespace, Orphans};
use crate::pace::Pace;
use crate::parts::Parts;
use crate::record::Record;
use crate::snapshots::Snapshots;
use crate::stripes::Geometry;
use crate::sums::Sums;
use crate::transactions::Transactions;
use braid_shard::Shard;
use std::rc::Rc;

/// Bytes that a file can have.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64 - (1 << 32);

/// The bytes of files.
pub struct Files {
    pub(super) shard: Shard,
    pub(super) geometry: Geometry,
    pub(super) transactions: Rc<Transactions>,
    pub(super) record: Rc<Record>,
    pub(super) bricks: Rc<Bricks>,
    pub(super) extents: Rc<ExtentMap>,
    pub(super) sums: Rc<Sums>,
    pub(super) snapshots: Rc<Snapshots>,
    pub(super) inodes: Rc<Inodes>,
    pub(super) orphans: Rc<Orphans>,
    pub(super) namespace: Rc<Namespace>,
    pub(super) gate: Rc<Gate>,
    pub(super) pace: Rc<Pace>,
    pub(super) settling: Settling,
}

impl Files {
    /// Over these parts.
    pub fn new(parts: &Parts) -> Files {
        Files {
            shard: parts.shard.clone(),
            geometry: parts.geometry,
            transactions: Rc::clone(&parts.transactions),
            record: Rc::clone(&parts.record),
            bricks: Rc::clone(&parts.bricks),
            extents: Rc::clone(&parts.extents),
            sums: Rc::clone(&parts.sums),
            snapshots: Rc::clone(&parts.snapshots),
            inodes: Rc::clone(&parts.inodes),
            orphans: Rc::clone(&parts.orphans),
            namespace: Rc::clone(&parts.namespace),
            gate: Rc::clone(&parts.gate),
            pace: Rc::clone(&parts.pace),
            settling: Settling::new(&parts.shard),
        }
    }
}
