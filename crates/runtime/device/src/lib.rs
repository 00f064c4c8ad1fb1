//! The Device trait, its kinds, and the filters that stack over any device
