//! The real md and real clients
