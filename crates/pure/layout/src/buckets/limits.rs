//! The numbers of buckets and of bricks.

/// Number of buckets.
pub const BUCKETS: usize = 16384;
/// The most bricks that a table can have; with equal weights each has four buckets.
pub const MAX_BRICKS: usize = 4096;
/// The most rows that a table has.
pub const ROWS_MAX: usize = 4;
