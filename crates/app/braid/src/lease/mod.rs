//! Which of several hosts may use an array, as etcd has it: its holder alone, and only for as long as the lease lasts.
//!
//! | file | subject |
//! |---|---|
//! | `place` | where etcd is, as it is typed |
//! | `access` | TLS, and the user that etcd knows this server as |
//! | `etcd` | its requests, over its JSON gateway |
//! | `deadline` | until when this process may write, and its end when that has passed |
//! | `session` | the lease of a server, and the keys that it holds by it |
//!
//! A server has one lease, and under it a key for each of its arrays. A key goes with the lease, so it means: whoever made it may
//! write. The holder counts from the moment at which it *sent* the last renewal that succeeded, on a clock that goes on
//! while the machine sleeps, and stops a fifth of the time before etcd could give the key to another; it asks nobody for that.
//! To stop is to end the process at once, as `kill -9` would: requests that lie in queues of this process end with it. A thread does
//! so when the time has come, and each shard looks before it hands anything to the kernel, so that a process that was stopped
//! for a while does not go on where it was.
//!
//! The revision at which a key was made is the token: a later holder has a greater one. The key `…/used` beside it has no lease
//! and names the heartbeat of the last holder, so that the next knows whose beats on the members are over.

mod access;
mod deadline;
mod etcd;
mod place;
mod session;

pub use access::{Access, Said};
pub use etcd::Etcd;
pub use place::Place;
pub use session::{NotTaken, Session, Taken, holder};
