//! The reasons why a table of buckets is refused.

use super::limits::MAX_BRICKS;

/// A table was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// No brick to place anything on.
    #[error(
        "placing stripes: no brick is left to place them on; keep or add at least one data brick"
    )]
    NoBricks,
    /// More bricks than [`MAX_BRICKS`].
    #[error(
        "placing stripes: {bricks} bricks, and a volume has at most {MAX_BRICKS}; use arrays or larger devices as bricks"
    )]
    TooManyBricks {
        /// The number given.
        bricks: usize,
    },
    /// One id given twice.
    #[error(
        "placing stripes: brick {brick} is listed twice; each brick of a volume needs an id of its own"
    )]
    Twice {
        /// The id.
        brick: u16,
    },
    /// A weight of zero.
    #[error(
        "placing stripes: the weight of brick {brick} is 0; give it one of at least 1, or remove the brick to take it out of use"
    )]
    NoWeight {
        /// The brick.
        brick: u16,
    },
    /// Rows are asked for with other bricks than the table's.
    #[error(
        "placing copies: the bricks are not those of the table of buckets; the volume's metadata is damaged, check the volume"
    )]
    OtherBricks,
    /// Stored bytes are not a table.
    #[error(
        "reading the table of buckets: {what} is {found}, which must be {must}; \
         the volume's metadata is damaged, check the volume"
    )]
    Damaged {
        /// The field.
        what: &'static str,
        /// The value found.
        found: usize,
        /// The accepted values.
        must: &'static str,
    },
}
