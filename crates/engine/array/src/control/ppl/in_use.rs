//! The state of a log's use.

/// The state of the log's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The array has none.
    Absent,
    /// It has one, and writes are not logged.
    Not,
    /// Writes that are not logged end, and others wait.
    Opening,
    /// Every write is logged.
    All,
}
