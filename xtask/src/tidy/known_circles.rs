//! Modules that still lie on a circle, and crates whose modules have no order yet.
//!
//! Owns nothing but the two lists. They get shorter; nothing is added.

/// By the folder of each crate, the modules on a circle; `lib` is the root.
pub const CIRCLES: &[(&str, &[&str])] = &[];

/// Folders of the crates without a row in ARCHITECTURE.md's table.
pub const UNORDERED: &[&str] = &[];
