//! The deterministic simulator: the engine, unchanged, on simulated members under a virtual clock, with
//! all choices from one 64-bit seed, and an oracle that knows what every logical block may hold.
//!
//! ```text
//!   scenario (from the seed) ─► run: rounds of requests, faults, crashes, restarts, the end
//!        │                        │
//!   client ──requests──► machine: shards of the engine ──requests──► world: members, clock
//!        │                        ▲                                     │
//!      oracle                     └──────────── completions ────────────┘
//!        └──────────────► checkers: one for each invariant of the architecture
//! ```
//!
//! `member` opens with the fault model in prose, `mishaps` has what befalls an array as a whole, `aimed` what is done to it on purpose, `stack` is the same for arrays of arrays, `volume` for volumes of
//! files. A seed that failed once is kept in `seeds.txt`; `plants` is the table of bugs that are planted in the engines
//! to show that runs find them.
//!
//! Invariant: a run depends on its seed alone; nothing reads a clock, a thread or an address.

#![forbid(unsafe_code)]

mod aimed;
mod canaries;
mod chances;
pub mod checkers;
pub mod cli;
pub mod client;
pub mod content;
pub mod device;
mod ending;
mod faults;
pub mod holes;
pub mod images;
mod left_out;
mod lives;
pub mod machine;
pub mod member;
mod metadata;
mod mishaps;
pub mod oracle;
mod plants;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod seeds;
mod settings;
mod settings_under_load;
pub mod stack;
mod steps;
pub mod volume;
pub mod waiting;
pub mod world;
