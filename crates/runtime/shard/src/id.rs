//! The number of a shard, which messages, loans and threads name it by.

/// Number of a shard, from 0.
pub type ShardId = u16;
