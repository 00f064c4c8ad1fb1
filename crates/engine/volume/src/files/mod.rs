//! The bytes of files: how they are read, written, cut and moved.
//!
//! | file | subject |
//! |---|---|
//! | `part` | what this part is made of |
//! | `read` | reading |
//! | `write` | writing: resolve once, submit, publish |
//! | `resolve` | the extents of a write, found or made under the lock of its range |
//! | `payload` | the bytes of a write, completed to whole blocks |
//! | `cut` | truncating, the unaligned tail of a file, removing what is beyond it |
//! | `allocate` | reserved space, holes, zeroes |
//! | `seek` | the next data, the next hole |
//! | `moving` | a stripe goes to another extent |
//! | `removal` | files that nobody can reach any more |

mod allocate;
mod cut;
mod moving;
mod part;
mod payload;
mod read;
mod removal;
mod resolve;
mod seek;
#[cfg(test)]
mod tests;
mod write;

pub use moving::Moved;
pub use part::Files;
