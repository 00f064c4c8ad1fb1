//! The load generator behind `braid bench`, and behind the tables of docs/benchmarks, which make further loads of its parts.
//!
//! Runs one load on an array and, in turn in the same run, on what the array is to be compared
//! with: its members by themselves (`raw`), a loop that only copies and computes parity (`bare`),
//! one plain device in memory (`device`). Absolute figures of a shared machine mean nothing
//! tomorrow; quotients of things measured side by side do.
//!
//! ```text
//!  run ─► contenders ─► rounds A B C, C B A, … ─► report: ratios, then absolutes
//!           │
//!           ├─ array   generators on the array's shards (or behind an NBD client)
//!           ├─ raw     generators on the members, the least that the load costs them
//!           ├─ bare    copies and XORs on plain memory
//!           └─ device  generators on one RAM device
//! ```
//!
//! What it does not know: the command line, tables of several loads, other programs.
//! Invariant: a request that fails ends the run; no figure stands for work that was not done.

#![forbid(unsafe_code)]

pub mod bare;
pub mod error;
pub mod generator;
pub mod ideal;
mod machine;
pub mod measure;
pub mod offsets;
pub mod on_shards;
pub mod options;
mod payload;
pub mod report;
mod rows;
pub mod run;
pub mod served;
pub mod under_test;

pub use error::LoadError;
pub use ideal::{RawLoad, raw_load};
pub use machine::Machine;
pub use measure::{Contender, Measured, Slice, Spread, Until, by_turns, in_turn};
pub use options::{
    Beside, Clock, Length, Options, OptionsError, Over, PAYLOAD, Pattern, PatternError,
};
pub use report::{Absolute, Ratio, Report, megabytes, significant, thousands};
pub use run::{run, run_beside};
