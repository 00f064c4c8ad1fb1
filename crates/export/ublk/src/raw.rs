//! Memory that the driver shares, and commands to it: all that the compiler cannot check.
//!
//! Invariant: a command names to the driver no memory but what it owns until it has ended.

use crate::abi::command;
use crate::abi::request::{DESCRIPTION_BYTES, descriptions_at};
use braid_shard::BufMut;
use braid_shard::ring::{BufMuts, Command, RingOp};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use smallvec::smallvec;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// The descriptions of a queue's requests, which the driver writes and we read.
pub struct Descriptions {
    address: *mut c_void,
    len: usize,
    depth: u16,
}

impl Descriptions {
    /// Maps those of `queue`, which has `depth` tags.
    ///
    /// # Errors
    /// The system call's.
    pub fn map(file: impl AsFd, queue: u16, depth: u16) -> io::Result<Descriptions> {
        let page = rustix::param::page_size();
        let len = (usize::from(depth) * DESCRIPTION_BYTES).next_multiple_of(page);
        let at = descriptions_at(queue, page as u64);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else of the process is changed.
        let address = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, at)?
        };
        Ok(Descriptions { address, len, depth })
    }

    /// A copy of the description of a tag's request, which has come and was not answered; `None` for a tag that there is not.
    pub fn get(&self, tag: u16) -> Option<[u8; DESCRIPTION_BYTES]> {
        if tag >= self.depth {
            return None;
        }
        let at = usize::from(tag) * DESCRIPTION_BYTES;
        // SAFETY: the mapping has `depth` descriptions, lives as long as `self` and begins with a page, so this lies within it
        // and is aligned for an array of bytes. The driver writes a description before it completes the tag's command, and
        // not again before the next one; if it did, bytes of either would be read, each of which is valid.
        Some(unsafe { self.address.byte_add(at).cast::<[u8; DESCRIPTION_BYTES]>().read_volatile() })
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, nothing points into it, and it is not used again.
        // It fails only for what is no mapping.
        let _ = unsafe { munmap(self.address, self.len) };
    }
}

/// A command about `device` to the driver's control file, with `memory` that the driver reads and writes, and a number.
pub fn control(
    file: Rc<OwnedFd>,
    code: u32,
    device: u32,
    mut memory: Option<BufMut>,
    number: u64,
) -> RingOp {
    let place = memory.as_mut().map_or((0, 0), |memory| {
        // Structures of the driver are far shorter than 64 KiB.
        (memory.as_mut_ptr() as u64, u16::try_from(memory.len()).unwrap_or(0))
    });
    let argument = command::control(device, place, number);
    let memory: BufMuts = memory.into_iter().collect();
    // SAFETY: the driver knows the address of `memory` only, with its length, and the command owns that until it has ended.
    RingOp::Command(unsafe { Command::new(file, code, argument, memory, false) })
}

/// A command of a tag of `queue`: [`FETCH`](command::FETCH), or [`COMMIT_AND_FETCH`](command::COMMIT_AND_FETCH) with the answer
/// `result`.
pub fn io(file: Rc<OwnedFd>, code: u32, queue: u16, tag: u16, result: i32) -> RingOp {
    let argument = command::io(queue, tag, result);
    // SAFETY: the argument has no address, and devices of ours have `UBLK_F_USER_COPY`: the driver writes to no memory of the
    // process. Requests are described in memory that it has mapped itself.
    RingOp::Command(unsafe { Command::new(file, code, argument, smallvec![], false) })
}
