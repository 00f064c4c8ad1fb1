//! Requests as they come from the kernel, each started as a task of the server.
//!
//! | file | subject |
//! |---|---|
//! | `asked` | the work that a request asks for |
//! | `device` | requests that are read from /dev/fuse |
//! | `ring` | requests that come over io_uring |
//! | `vigil` | staying awake for the next request |

mod asked;
mod device;
mod ring;
mod vigil;

pub(crate) use device::Receiver;
pub(crate) use ring::Uring;
