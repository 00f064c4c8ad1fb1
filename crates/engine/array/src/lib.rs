//! The RAID engine: members, stripes, degraded operation, rebuild, resync, scrub.
//!
//! An array runs on one or more shards. On each of them an [`Engine`](engine::Engine) carries out
//! the requests for the units that the shard owns; on the home shard (number 0) a
//! [`Control`](control::Control) owns the superblocks and decides who is a member. Engines know
//! the members through a [`View`](state::view::View) that control sends.
//!
//! ```text
//!  request ─► read:  straight to the members, or recovered on the owner of the unit
//!          └► write: per unit, on the owner ─► policy ─► lock ─► plan ─► read ─► parity ─► policy ─► members
//!  control ─► views, superblocks, spares      jobs ─► windows of units, on their owners
//! ```
//!
//! | folder or file | subject |
//! |---|---|
//! | `array`, `stacking` | a handle on a running array for any thread; an array as a member of another |
//! | `create`, `assemble`, `salvage` | how members become an array |
//! | `control` | who is a member: superblocks, spares, jobs, on the home shard |
//! | `request` | what clients and other shards ask: taken in, handed on, answered once |
//! | `write`, `read` | the steps of a write and of a read |
//! | `jobs` | resync, rebuild, check, repair |
//! | `redundancy` | what levels compute from blocks of a stripe; where copies are |
//! | `engine` | one array on one shard, and its parts: what the steps share |
//! | `consistency` | the consistency policy: what must be durable before members are written |
//! | `cache`, `metadata`, `state` | the stripe cache; superblocks and bitmap; shape and members |
//! | `status`, `figures`, `options`, `error`, `settings` | what callers see and choose |
//!
//! It does not know files, rings, threads, clocks or sockets. It runs unchanged on simulated
//! members under a virtual clock.
//!
//! Invariants: see `ARCHITECTURE.md`; each is checked by the simulator.

#![forbid(unsafe_code)]

pub mod array;
pub mod assemble;
pub mod cache;
mod consistency;
pub mod control;
pub mod create;
pub mod engine;
pub mod error;
pub mod figures;
pub mod jobs;
pub mod metadata;
pub mod options;
mod read;
mod redundancy;
mod request;
pub mod salvage;
pub mod settings;
pub mod stacking;
pub mod state;
pub mod status;
#[cfg(test)]
mod testing;
mod write;
