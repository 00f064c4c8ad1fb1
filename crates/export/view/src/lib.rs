//! Targets as files of a mounted tree, beside texts about them: the FUSE view.
//!
//! ```text
//!  DIR/NAME/data     the bytes of target NAME          content ──► Device, on the shard of the mount
//!  DIR/…             texts, folders and links          desk ──► whoever knows them, on a thread
//! ```
//!
//! `NAME/data` is used as a block device is: it never grows, cutting it changes nothing, and nothing of it is kept in
//! the page cache, so that what other doors write is seen at once. The tree around it comes from a [`Texts`], which is
//! asked anew each time.
//!
//! It does not know arrays: what the texts say is none of its business.

#![forbid(unsafe_code)]

mod content;
mod desk;
mod door;
mod filesystem;
mod numbers;
mod offered;
mod texts;

pub use door::{Door, Limits};
pub use texts::{Listed, Node, Rights, TEXT_BYTES_MAX, Texts};
