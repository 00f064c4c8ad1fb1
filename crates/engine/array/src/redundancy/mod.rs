//! Redundancy as such: parity and lost blocks computed from the others of a stripe, and where copies of the same bytes
//! are. Knows no request and no job.
//!
//! | file | subject |
//! |---|---|
//! | `blocks` | blocks of one stripe, their parity, and those that are recovered from the others |
//! | `copies` | where the copies of some bytes are, and in which order they are asked |
//! | `mend` | good data over blocks that could not be read, and blocks that cannot be held recorded as bad |
//! | `holes` | rows of a stripe that some members cannot give |

pub(crate) mod blocks;
pub(crate) mod copies;
pub(crate) mod holes;
pub(crate) mod mend;
