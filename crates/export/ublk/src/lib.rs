//! ublk: targets as block devices of this machine, `/dev/ublkbN`.
//!
//! The kernel's driver (`ublk_drv`) makes a block device whose requests a process carries out. They come to the shards as
//! completions of their own rings and leave as submissions of them, a queue for each shard, with no thread between. What a
//! request writes and reads is copied from and to the kernel's pages by calls on the device (`UBLK_F_USER_COPY`), into buffers
//! of the shard's pool: a write that waits keeps the kernel's pages and no memory here.
//!
//! | module | subject |
//! |---|---|
//! | `serve` | the door: which targets have devices, and their lives |
//! | `device` | one device: made, or taken back from a server that was killed; started; removed |
//! | `queue` | one queue on its shard: what comes, what is answered |
//! | `execute` | one request |
//! | `control` | commands to the driver, which block |
//! | `in_use` | who has a device open |
//! | `limits` | resources |
//! | `link` | the name of a device by that of its target |
//! | `abi` | the driver's structures as bytes, without I/O |
//! | `raw` | the one module with unsafe code: the memory in which requests are described, and commands |
//!
//! A device survives its server (`UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`): requests wait in the kernel, those
//! under way are given again to the next server, which knows its devices by a number that the driver keeps for each.
//!
//! References are to the kernel's `include/uapi/linux/ublk_cmd.h` and Documentation/block/ublk.rst.
#![deny(unsafe_code)]

mod abi;
mod control;
mod device;
mod execute;
mod in_use;
mod limits;
mod link;
mod queue;
#[allow(unsafe_code)]
mod raw;
mod serve;

pub use limits::Limits;
pub use serve::{Place, ServeError, Server};
