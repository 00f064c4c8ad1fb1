//! The cases, by subject. Each panics with what it found wrong.

pub mod abuse;
pub mod bounds;
pub mod content;
pub mod durability;
pub mod lifecycle;
