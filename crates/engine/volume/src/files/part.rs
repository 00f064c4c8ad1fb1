//! The bytes of files, as a part of a volume.

use crate::extents::{Bricks, ExtentMap};
use crate::gate::Gate;
use crate::namespace::{Inodes, Namespace, Orphans};
use crate::stripes::Geometry;
use crate::transactions::Transactions;
use braid_shard::Shard;
use std::rc::Rc;

/// Bytes that a file can have.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64 - (1 << 32);

/// The parts that the bytes of files need.
pub struct FilesOf {
    /// The shard that they live on.
    pub shard: Shard,
    /// The sizes of the volume.
    pub geometry: Geometry,
    /// Where changes go.
    pub transactions: Rc<Transactions>,
    /// The devices.
    pub bricks: Rc<Bricks>,
    /// Where stripes lie.
    pub extents: Rc<ExtentMap>,
    /// The files in memory.
    pub inodes: Rc<Inodes>,
    /// The files to be removed.
    pub orphans: Rc<Orphans>,
    /// Names, of which a file that is removed must leave none.
    pub namespace: Rc<Namespace>,
    /// Held while something is removed.
    pub gate: Rc<Gate>,
}

/// The bytes of files.
pub struct Files {
    pub(super) shard: Shard,
    pub(super) geometry: Geometry,
    pub(super) transactions: Rc<Transactions>,
    pub(super) bricks: Rc<Bricks>,
    pub(super) extents: Rc<ExtentMap>,
    pub(super) inodes: Rc<Inodes>,
    pub(super) orphans: Rc<Orphans>,
    pub(super) namespace: Rc<Namespace>,
    pub(super) gate: Rc<Gate>,
}

impl Files {
    /// Over these parts.
    pub fn new(of: FilesOf) -> Files {
        Files {
            shard: of.shard,
            geometry: of.geometry,
            transactions: of.transactions,
            bricks: of.bricks,
            extents: of.extents,
            inodes: of.inodes,
            orphans: of.orphans,
            namespace: of.namespace,
            gate: of.gate,
        }
    }
}
