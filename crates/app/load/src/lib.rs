//! The load generator behind `braid bench`, and behind the tables of docs/benchmarks.
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

mod bare;
mod counted;
mod error;
mod generator;
mod ideal;
mod machine;
mod measure;
mod offsets;
mod on_shards;
mod options;
mod payload;
mod rebuild;
mod report;
mod rows;
mod run;
mod served;
mod stack;
mod sweep;
mod under_test;
mod virtual_time;

pub use counted::{Counted, count_requests};
pub use error::LoadError;
pub use ideal::{RawLoad, raw_load};
pub use machine::Machine;
pub use measure::{Contender, Measured, Slice, Spread, Until, in_turn};
pub use options::{
    Beside, Clock, Length, Options, OptionsError, Over, PAYLOAD, Pattern, PatternError,
};
pub use rebuild::rebuild;
pub use report::{Absolute, Ratio, Report, megabytes, significant, thousands};
pub use run::{run, run_beside};
pub use stack::{
    Below, LayerFigures, Stack, StackFigures, StackLoad, stack_in_virtual_time, stack_on_the_clock,
};
pub use sweep::{Variant, scaling, sweep};
pub use virtual_time::{VirtualClock, sweep_in_virtual_time};
