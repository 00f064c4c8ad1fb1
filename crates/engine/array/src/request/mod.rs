//! A request of a client, of an array above or of another shard: taken in, handed on, answered once.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the array as a device: each request goes to the step that carries it out |
//! | `route` | parts of requests that another shard owns, sent there and answered |
//! | `gather` | the parts of one request, joined when the last has ended |
//! | `flush` | flushes, which the home shard carries out for all |
//! | `zeroing` | write-zeroes and discard, unit by unit |
//! | `spawners` | the kinds of tasks that requests start |
//! | `cut_from` | the size of the requests that all is cut from |
//! | `unanswered` | members that do not answer, as one shard sees them |

pub(crate) mod cut_from;
pub(crate) mod device;
pub(crate) mod flush;
pub(crate) mod gather;
pub(crate) mod route;
pub(crate) mod spawners;
pub(crate) mod unanswered;
pub(crate) mod zeroing;
