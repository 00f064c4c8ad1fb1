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
//! `exhaust` cuts the power at every write of short histories. `member` opens with the fault model in prose, `run` has runs of arrays and of stacks of arrays (its table says where what
//! befalls them is), `volume` those of volumes of files. A seed that failed once is kept in `seeds.txt`; `plants` is the table of bugs that are planted in the engines
//! to show that runs find them.
//!
//! Invariant: a run depends on its seed alone; nothing reads a clock, a thread or an address.

#![forbid(unsafe_code)]

mod canaries;
pub mod checkers;
pub mod cli;
pub mod client;
pub mod content;
pub mod device;
mod exhaust;
pub mod images;
pub mod machine;
pub mod member;
pub mod oracle;
mod plants;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod seeds;
mod settings;
pub mod verdict;
pub mod volume;
pub mod waiting;
pub mod world;
