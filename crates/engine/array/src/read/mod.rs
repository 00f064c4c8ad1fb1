//! Reads, in the order of their steps.
//!
//! | file | step |
//! |---|---|
//! | `start` | a part goes to the member that has it, or to the owner of its unit for recovery |
//! | `locate` | the member that has the bytes, chosen among copies where there are several |
//! | `from_parity` | a block computed from the rest of its stripe |
//! | `from_copies` | a block of another copy |
//! | `agreeing` | bytes that are known by their checksum, from whichever member or combination has them |
//! | `wide` | both recover whole pieces of what a member could not read |

pub(crate) mod agreeing;
pub(crate) mod from_copies;
pub(crate) mod from_parity;
pub(crate) mod locate;
pub(crate) mod start;
mod wide;
