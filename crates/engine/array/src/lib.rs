//! The RAID engine: members, stripes, degraded operation, rebuild, resync, scrub.
//!
//! An array runs on one or more shards. On each of them an [`Engine`](engine::Engine) carries out
//! the requests for the units that the shard owns; on the home shard (number 0) a
//! [`Control`](control::Control) owns the superblocks and decides who is a member. Engines know
//! the members through a [`View`](view::View) that control sends.
//!
//! ```text
//!  Device::submit (front) ─► read: straight to the members
//!                        └─► write: per unit, on the owner ─► lock ─► plan ─► read ─► parity ─► write
//!  control ─► views, superblocks, spares      jobs ─► windows of units, on their owners
//! ```
//!
//! It does not know files, rings, threads, clocks or sockets. It runs unchanged on simulated
//! members under a virtual clock.
//!
//! Invariants: see `ARCHITECTURE.md`; each is checked by the simulator.

#![forbid(unsafe_code)]

pub mod array;
pub mod assemble;
pub mod bad_blocks;
mod bitmap;
pub mod cache;
pub mod control;
mod correct;
pub mod create;
mod cut_from;
pub mod engine;
pub mod error;
pub mod examine;
pub mod figures;
pub mod findings;
mod flush;
mod front;
mod gather;
pub mod geometry;
pub mod jobs;
mod lock;
mod mirror;
pub mod options;
mod parity;
mod reports;
mod route;
pub mod settings;
mod settle;
mod spawners;
pub mod stacking;
pub mod status;
mod unanswered;
pub mod view;
mod zeroing;
