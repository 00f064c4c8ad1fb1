//! The journal device: one more member, with a ring of blocks in place of a component.
//!
//! The format is md's ([`braid_format::journal`]): meta blocks, each followed by the blocks that it names.
//!
//! | file | subject |
//! |---|---|
//! | `ring` | blocks of the device by their ring sectors |

pub(crate) mod ring;
