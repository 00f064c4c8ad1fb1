//! Requests as they come from the kernel, each started as a task of the server.
//!
//! | file | subject |
//! |---|---|
//! | `asked` | the work that a request asks for |
//! | `device` | requests that are read from /dev/fuse |
//! | `taking` | whoever takes requests, whichever way they come |
//! | `taker` | whoever takes what was read from /dev/fuse |
//! | `ring` | requests that come over io_uring |
//! | `crowd` | requests that wait in the kernel, as far as can be told |
//! | `vigil` | staying awake for the next request |

mod asked;
mod crowd;
mod device;
mod ring;
mod taker;
mod taking;
mod vigil;

pub(crate) use asked::{Asked, asked};
pub(crate) use device::Receiver;
pub(crate) use ring::{RingTaker, Uring};
pub(crate) use taker::Taker;
pub(crate) use taking::Taking;
