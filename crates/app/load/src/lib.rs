//! The load generator behind braid bench
