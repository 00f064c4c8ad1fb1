//! What an array keeps on its members besides data and parity: how it is read, judged and written.
//!
//! | file | subject |
//! |---|---|
//! | `superblock` | the superblock of one member, before and outside of any running array |
//! | `bitmap` | the write-intent bitmap |
//!
//! When superblocks and bad-block logs are written is control's business.

pub(crate) mod bitmap;
pub mod superblock;
