//! The checksums of files' blocks: against which data is read, so that what a brick gives is what was written to it.
//!
//! | file | subject |
//! |---|---|
//! | `window` | the checksums of 1 MiB of a file, in memory |
//! | `intents` | regions of files that are being written over in place |
//! | `part` | checksums are loaded, compared, changed and recorded |
//!
//! Data of new extents needs no care: checksum and extent are in one transaction, which is committed when the data is durable.
//! Data that is written over in place does: after a crash the brick may hold the new bytes, and the record the checksum of the
//! old ones. So before the first such write to a region of a file an intent is made durable, as a write-intent bitmap has
//! it. While there is one, checksums of the region that change stay in memory; they are recorded, and the intent taken away,
//! in one transaction when the region has been left alone for a while. After a crash the checksums of a region that has an
//! intent are in doubt: bytes that do not agree are taken as they are, and get a checksum again.
//!
//! Copies rely on the same marks: after a crash those of a region that has one are made equal, and where a brick has lost what it had
//! not made durable, the mark says that its copies of the region are stale.

mod intents;
mod part;
mod window;

pub use intents::{Stale, Unsettled};
pub use part::{Of, Over, Prepared, Sums};
pub use window::Windows;
