//! A write whose parity is computed and of which no member knows yet.
//!
//! A policy looks at it, and then its blocks go to the members: both see the same. The partial parity of a stripe (what
//! its P is without the chunks that are written) is P, with the new data of the same rows taken out again.

use crate::state::extent::Extent;
use braid_device::{Op, Request};
use braid_layout::Slot;
use braid_shard::Buf;
use std::ops::Range;

/// See the module's documentation.
pub(crate) trait Outgoing {
    /// The unit that it is part of: a stripe at parity levels.
    fn unit(&self) -> u64;

    /// The bytes of the unit's data that are written.
    fn extents(&self) -> impl Iterator<Item = Extent>;

    /// The blocks for the members, by slot; a slot may be without a member.
    fn blocks(&self) -> impl Iterator<Item = Block>;

    /// It is to be durable when it ends.
    fn fua(&self) -> bool;
}

/// A part of a write that one member gets.
pub(crate) struct Block {
    pub(crate) slot: Slot,
    /// Component byte of its first.
    pub(crate) at: u64,
    pub(crate) role: Role,
    pub(crate) content: Content,
}

/// The place of a block in its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Bytes of the array, or one copy of them.
    Data,
    /// P or Q.
    Parity,
}

/// The bytes of a block.
pub(crate) enum Content {
    /// These.
    Bytes(Buf),
    /// So many zeroes, which the member makes by itself; with `unmap` it may release the space.
    Zeroes { len: u64, unmap: bool },
}

impl Content {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Bytes(buf) => buf.len() as u64,
            Content::Zeroes { len, .. } => *len,
        }
    }

    /// A part of them.
    fn part(&self, range: Range<u64>) -> Content {
        match self {
            Content::Bytes(buf) => {
                Content::Bytes(buf.slice(range.start as usize..range.end as usize))
            }
            Content::Zeroes { unmap, .. } => {
                Content::Zeroes { len: range.end - range.start, unmap: *unmap }
            }
        }
    }

    /// The request that gives them to a member, at its byte `offset`.
    #[inline]
    pub(crate) fn into_request(self, offset: u64, fua: bool) -> Request {
        match self {
            Content::Bytes(buf) => Request::write(offset, buf, fua),
            Content::Zeroes { len, unmap } => {
                Request { offset, op: Op::WriteZeroes { len, unmap, fua } }
            }
        }
    }
}

/// Some of the rows of a write, in component bytes.
pub(crate) struct Part<'a, W> {
    pub(crate) whole: &'a W,
    pub(crate) rows: Range<u64>,
}

impl<W: Outgoing> Outgoing for Part<'_, W> {
    fn unit(&self) -> u64 {
        self.whole.unit()
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        self.whole.extents()
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        self.whole.blocks().filter_map(|block| {
            let start = self.rows.start.max(block.at);
            let end = self.rows.end.min(block.at + block.content.len());
            let content =
                (start < end).then(|| block.content.part(start - block.at..end - block.at))?;
            Some(Block { at: start, content, ..block })
        })
    }

    fn fua(&self) -> bool {
        self.whole.fua()
    }
}
