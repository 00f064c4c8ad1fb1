//! The state of an array as one shard knows it: its shape, its members, and how far each can be relied on.
//!
//! | file | subject |
//! |---|---|
//! | `geometry` | the shape: level, chunk, layout, which shard owns what |
//! | `geometries` | which part of the array has which: one shape everywhere, or two with a border |
//! | `array_size` | the bytes that users see, for all shards and handles |
//! | `view` | the members, their states and the geometry, as control has decided; replaced as a whole |
//! | `bad_blocks` | blocks of a member that hold nothing, as a set |
//! | `reports` | failures that all shards see before a message could tell them |
//! | `extent` | a run of bytes of one stripe |
//! | `flags` | the flags of a member in its superblock |
//! | `findings` | what checks and repairs found, place by place |
//! | `in_doubt` | places that may be wrong since a start by force |
//! | `apart` | halves of one array that ran apart, told from their superblocks |

pub mod apart;
pub(crate) mod array_size;
pub(crate) mod bad_blocks;
pub(crate) mod extent;
pub mod findings;
pub mod flags;
pub mod geometries;
pub mod geometry;
pub mod in_doubt;
pub(crate) mod reports;
pub mod view;

/// Identifies a running array within the process.
pub type ArrayId = u64;
