//! The number by which a file notes the transaction that holds its last change.

/// Number of a transaction; the first is 1.
pub type TransactionNr = u64;
