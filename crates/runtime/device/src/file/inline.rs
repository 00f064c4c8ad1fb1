//! Ring operations executed immediately by plain system calls, for files in memory: the
//! kernel would pass them to worker threads.

use braid_shard::ring::RingOp;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, pread, pwrite};

/// Executes `op` and returns the result that the ring would have given: at least 0, or a negative errno.
/// Operations that may block (sockets) are not supported.
pub(super) fn carry_out(op: &mut RingOp) -> i32 {
    let done = match op {
        RingOp::Read { fd, offset, bufs } => {
            let sizes = bufs.iter_mut().map(|buf| (buf.len(), buf));
            in_turn(*offset, sizes, |buf, at| pread(&**fd, &mut buf[..], at))
        }
        RingOp::Write { fd, offset, bufs, .. } => {
            let sizes = bufs.iter().map(|buf| (buf.len(), buf));
            in_turn(*offset, sizes, |buf, at| pwrite(&**fd, buf, at))
        }
        RingOp::Sync { fd } => fdatasync(&**fd).map(|()| 0),
        RingOp::Fallocate { fd, mode, offset, len } => {
            fallocate(&**fd, FallocateFlags::from_bits_retain(*mode as u32), *offset, *len)
                .map(|()| 0)
        }
        RingOp::Receive { .. }
        | RingOp::WriteByWorker { .. }
        | RingOp::Send { .. }
        | RingOp::Accept { .. }
        | RingOp::Readable { .. }
        | RingOp::Command(_) => Err(Errno::OPNOTSUPP),
    };
    match done {
        // The kernel, too, reports no more than an i32 can hold.
        Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
        Err(errno) => -errno.raw_os_error(),
    }
}

/// Transfers one buffer after the other, and stops after a short transfer.
fn in_turn<B>(
    mut at: u64,
    bufs: impl Iterator<Item = (usize, B)>,
    mut each: impl FnMut(B, u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut total = 0;
    for (len, buf) in bufs {
        match each(buf, at) {
            Ok(moved) => {
                total += moved;
                at += moved as u64;
                if moved < len {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            // Report the bytes transferred so far. The caller retries the rest, which then fails with this error.
            Err(_) => break,
        }
    }
    Ok(total)
}
