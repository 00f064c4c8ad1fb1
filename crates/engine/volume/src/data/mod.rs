//! The bytes of files: where stripes lie, how they are read, written, cut and moved.
//!
//! | file | subject |
//! |---|---|
//! | `placing` | extents: loaded, chosen, grown, freed |
//! | `read` | reading |
//! | `write` | writing |
//! | `cut` | truncating, the ragged end of a file, removing what is beyond it |
//! | `allocate` | setting space aside, holes, zeroes |
//! | `seek` | the next data, the next hole |
//! | `moving` | a stripe goes to another extent |

mod allocate;
mod cut;
mod moving;
mod placing;
mod read;
mod seek;
mod write;

pub use moving::Moved;
pub(crate) use write::clear_setid_bits;
