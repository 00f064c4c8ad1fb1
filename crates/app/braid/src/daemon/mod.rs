//! The foreground server: shards, arrays, NBD exports, the control socket, and their orderly end.
//!
//! | file | subject |
//! |---|---|
//! | `grouping` | which of the members given make which array |
//! | `starting` | arrays are started of the members that are there |
//! | `sought`, `looking` | members and arrays that are not there yet, and what a command wants started |
//! | `announce` | the lines that say that an array is served |
//! | `layers` | which arrays are members of others, before any is started |
//! | `answering` | what each request on the control socket does |
//! | `running` | the arrays that run |
//! | `orders` | what is asked of one of them, and how that can fail |
//! | `membership` | their members: added, taken back, found by name |
//! | `replacing` | those that are to be replaced |
//! | `several` | the commands over several of them at once |
//! | `stacking` | which running array is a member of which |
//! | `creating` | arrays that are made while the server runs |
//! | `salvaged` | the arrays that are only read, beside the engine |
//! | `setting` | settings of running arrays: changed, kept, shown |
//! | `scrubs` | checks and repairs over restarts and pauses, and their reports |
//! | `scrub_watch` | they go on by themselves |
//! | `spares`, `sharing` | groups of arrays that share spares; a spare goes from one array to another |
//! | `spare_watch` | arrays that lack a member are looked for |
//! | `away_watch` | members that were lost with their connections are taken back |
//! | `details` | what running arrays say of their state |
//! | `jobs` | a job, as both of these have it |
//! | `figures` | what running arrays say that they have done |
//! | `metrics` | the same for monitoring, over HTTP |
//! | `smart` | what disks say of their own health |
//! | `smart_watch` | they are asked for it now and then |
//! | `event_watch` | events are told |
//! | `events` | the last of them are kept for those who look |
//! | `service_watch` | the service manager hears that the server works |
//! | `watch` | the threads that look at arrays now and then |
//! | `memory_watch` | caches give memory back while the machine is short of it |
//! | `control_socket` | the socket file and its connections |
//! | `volumes` | volumes, whose bricks may be arrays of this server |
//! | `to_mount`, `mounting` | those of the configuration that are not mounted yet; they are |
//! | `signals` | SIGINT and SIGTERM |
//! | `stopping` | the end of arrays: who still uses them, and how they were left |
//!
//! Everything here is control: no request of a client passes through.

pub mod announce;
mod answering;
pub mod away_watch;
pub mod control_socket;
mod creating;
mod details;
pub mod event_watch;
mod events;
pub mod figures;
mod flags;
pub mod grouping;
mod jobs;
pub mod layers;
mod levels;
pub mod looking;
mod membership;
pub mod memory_watch;
pub mod metrics;
pub mod mounting;
mod orders;
mod replacing;
mod reshaping;
mod resizing;
pub mod running;
pub mod salvaged;
pub mod scrub_watch;
pub mod scrubs;
pub mod service_watch;
pub mod setting;
mod several;
mod sharing;
pub mod signals;
mod smart;
pub mod smart_watch;
pub mod sought;
pub mod spare_watch;
pub mod spares;
mod stacking;
pub mod starting;
pub mod stopping;
mod to_mount;
pub mod volumes;
mod watch;

use std::path::PathBuf;

/// Why the server ends.
#[derive(Debug)]
pub enum End {
    /// A signal came.
    Signal,
    /// The last array was stopped by a command, or the last volume unmounted.
    Stopped,
    /// Another process takes over, which waits at this socket. The server may refuse, and does not end then.
    TakeOver(PathBuf),
    /// It is to start a process that takes over.
    Renew,
}
