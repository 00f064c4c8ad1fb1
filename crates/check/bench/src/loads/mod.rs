//! Loads that only the tables need, made of the parts of `braid-load`.
//!
//! | file | subject |
//! |---|---|
//! | `counted` | so many requests, for a counter of instructions |
//! | `sweep` | one load under several settings, or on several shards |
//! | `virtual_time` | the same on modelled members, whose time is virtual |
//! | `jobs` | jobs on modelled members, alone and beside a client |
//! | `stack` | arrays of arrays |
//! | `rebuild` | a rebuild beside a copy of as much |

pub mod counted;
pub mod jobs;
pub mod rebuild;
pub mod stack;
pub mod sweep;
pub mod virtual_time;
