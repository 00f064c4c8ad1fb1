//! The deterministic simulator and its oracle
