//! What a level makes of several members' blocks: the blocks of one stripe and what can be computed from them, or the
//! copies of the same bytes. Knows no request and no job.
//!
//! | file | subject |
//! |---|---|
//! | `blocks` | blocks of one stripe, their parity, and those that are recovered from the others |
//! | `copies` | where the copies of some bytes are, and in which order they are asked |
//! | `holes` | rows of a stripe that some members cannot give |

pub(crate) mod blocks;
pub(crate) mod copies;
pub(crate) mod holes;
