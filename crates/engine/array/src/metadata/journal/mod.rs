//! The journal device: one more member, with a ring of blocks in place of a component.
//!
//! The format is md's ([`braid_format::journal`]): meta blocks, each followed by the blocks that it names.
//!
//! | file | subject |
//! |---|---|
//! | `ring` | blocks of the device by their ring sectors |
//! | `place` | where the ring of a new one lies |

pub(crate) mod place;
pub(crate) mod ring;

/// Where the log goes on: at an empty meta block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Ring sector of the empty meta block.
    pub(crate) position: u64,
    /// Its sequence number.
    pub(crate) seq: u64,
}
