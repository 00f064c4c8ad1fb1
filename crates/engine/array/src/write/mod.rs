//! Writes, in the order of their steps.
//!
//! | file | step |
//! |---|---|
//! | `start` | cut at the ends of units, handed to their owners, where they enter under the consistency policy |
//! | `record` | a write of which the policy has not recorded yet what it wants |
//! | `waiting` | writes of one stripe wait for each other, and their rows are locked |
//! | `one_block` | the commonest write, a part of one chunk by itself, from plan to reply |
//! | `full_stripe` | a write of all of a stripe by itself, the same |
//! | `batch` | all others: segments planned, what is missing read, parity computed, members written |
//! | `segment` | row ranges that are planned one by one |
//! | `plan` | how the parity of a segment is updated, and what is read for it |
//! | `widen` | writes of less than a journal's blocks made whole |
//! | `compute` | the new parity of a segment |
//! | `copies` | writes of levels 1 and 10 |
//! | `members` | data and parity to the members, once the policy lets them: all writes come by here |
//! | `write_errors` | writes that members refused: recorded as bad blocks, or the member as failed, before the reply |

pub(crate) mod batch;
mod compute;
pub(crate) mod copies;
mod full_stripe;
mod members;
mod one_block;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod start;
pub(crate) mod waiting;
mod widen;
pub(crate) mod write_errors;
