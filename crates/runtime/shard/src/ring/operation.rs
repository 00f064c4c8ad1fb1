//! The operations of a ring, and their encoding as submission queue entries.

use super::queues::Prepared;
use crate::buffer::{Buf, BufMut};
use io_uring::{opcode, squeue, types};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use smallvec::SmallVec;
use std::rc::Rc;

/// Read-only buffers of one vectored operation. Nearly all operations have one, which is stored inline: requests are
/// moved often, so they must be small.
pub type Bufs = SmallVec<[Buf; 1]>;
/// Writable buffers of one vectored operation.
pub type BufMuts = SmallVec<[BufMut; 1]>;

/// Bytes of a command's argument that are used; the rest of its 80 bytes are zero.
pub const ARGUMENT: usize = 32;

/// One operation, which owns its descriptor and buffers until it ends. Offsets and lengths are in bytes.
#[derive(Debug)]
#[allow(missing_docs)] // The fields are named after the system calls' arguments.
pub enum RingOp {
    /// Reads into `bufs` from `offset`.
    Read { fd: Rc<OwnedFd>, offset: u64, bufs: BufMuts },
    /// Writes `bufs` at `offset`; with `durable` the data is on stable storage at completion.
    Write { fd: Rc<OwnedFd>, offset: u64, bufs: Bufs, durable: bool },
    /// Writes `bufs` on a worker thread of the kernel, for descriptors on which a write may block until this very thread
    /// has done something.
    WriteByWorker { fd: Rc<OwnedFd>, bufs: Bufs },
    /// Makes written data durable (fdatasync).
    Sync { fd: Rc<OwnedFd> },
    /// `fallocate` with `mode`: punch a hole, or zero a range, of a file or a block device.
    Fallocate { fd: Rc<OwnedFd>, mode: i32, offset: u64, len: u64 },
    /// Receives at most `buf.len()` bytes.
    Receive { fd: Rc<OwnedFd>, buf: BufMut },
    /// Sends all buffers, or as much as fits into the socket now.
    Send { fd: Rc<OwnedFd>, bufs: Bufs },
    /// Accepts one connection; the result is its descriptor.
    Accept { fd: Rc<OwnedFd> },
    /// Waits until the descriptor is readable.
    Readable { fd: Rc<OwnedFd> },
    /// A command that the driver behind the descriptor defines. Only for a ring that
    /// [takes commands](super::Ring::takes_commands); another gives `EOPNOTSUPP`.
    Command(Command),
}

/// A command to a driver (`IORING_OP_URING_CMD`).
#[derive(Debug)]
pub struct Command {
    fd: Rc<OwnedFd>,
    code: u32,
    argument: [u8; ARGUMENT],
    memory: BufMuts,
    with_vectors: bool,
}

impl Command {
    /// Command number `code` of the driver behind `fd`. The driver may read and write `memory`
    /// until the command ends; `with_vectors` passes its addresses along.
    ///
    /// # Safety
    /// Until the command ends the driver must write to no other memory of the process than `memory`, in particular not
    /// to memory that an earlier command has passed to it.
    #[allow(unsafe_code)]
    pub unsafe fn new(
        fd: Rc<OwnedFd>,
        code: u32,
        argument: [u8; ARGUMENT],
        memory: BufMuts,
        with_vectors: bool,
    ) -> Command {
        Command { fd, code, argument, memory, with_vectors }
    }

    /// The memory, now that the command has ended.
    pub fn into_memory(self) -> BufMuts {
        self.memory
    }
}

/// Encodes `op`. The entry points to `vectors` and `message`, which must stay where they are while it is in
/// flight.
pub(super) fn prepare(
    op: &mut RingOp,
    vectors: &mut Vec<libc::iovec>,
    message: &mut libc::msghdr,
) -> Prepared {
    vectors.clear();
    let fd_of = |fd: &Rc<OwnedFd>| -> RawFd { fd.as_raw_fd() };
    let entry = match op {
        RingOp::Read { fd, offset, bufs } => {
            let fd = types::Fd(fd_of(fd));
            if let [buf] = bufs.as_mut_slice() {
                opcode::Read::new(fd, buf.as_mut_ptr(), buf.len() as u32).offset(*offset).build()
            } else {
                vectors.extend(bufs.iter_mut().map(|buf| vector_of(buf.as_mut_ptr(), buf.len())));
                opcode::Readv::new(fd, vectors.as_ptr(), vectors.len() as u32)
                    .offset(*offset)
                    .build()
            }
        }
        RingOp::Write { fd, offset, bufs, durable } => {
            let fd = types::Fd(fd_of(fd));
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            if let [buf] = bufs.as_slice() {
                opcode::Write::new(fd, buf.as_ptr(), buf.len() as u32)
                    .offset(*offset)
                    .rw_flags(flags as _)
                    .build()
            } else {
                vectors.extend(bufs.iter().map(|buf| vector_of(buf.as_ptr(), buf.len())));
                opcode::Writev::new(fd, vectors.as_ptr(), vectors.len() as u32)
                    .offset(*offset)
                    .rw_flags(flags as _)
                    .build()
            }
        }
        RingOp::WriteByWorker { fd, bufs } => {
            let fd = types::Fd(fd_of(fd));
            vectors.extend(bufs.iter().map(|buf| vector_of(buf.as_ptr(), buf.len())));
            opcode::Writev::new(fd, vectors.as_ptr(), vectors.len() as u32)
                .build()
                .flags(squeue::Flags::ASYNC)
        }
        RingOp::Sync { fd } => {
            opcode::Fsync::new(types::Fd(fd_of(fd))).flags(types::FsyncFlags::DATASYNC).build()
        }
        RingOp::Fallocate { fd, mode, offset, len } => {
            opcode::Fallocate::new(types::Fd(fd_of(fd)), *len).offset(*offset).mode(*mode).build()
        }
        RingOp::Receive { fd, buf } => {
            opcode::Recv::new(types::Fd(fd_of(fd)), buf.as_mut_ptr(), buf.len() as u32).build()
        }
        RingOp::Send { fd, bufs } => {
            let fd = types::Fd(fd_of(fd));
            vectors.extend(bufs.iter().map(|buf| vector_of(buf.as_ptr(), buf.len())));
            message.msg_iov = vectors.as_mut_ptr();
            message.msg_iovlen = vectors.len() as _;
            opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
        }
        RingOp::Accept { fd } => {
            opcode::Accept::new(types::Fd(fd_of(fd)), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        RingOp::Readable { fd } => {
            opcode::PollAdd::new(types::Fd(fd_of(fd)), libc::POLLIN as u32).build()
        }
        RingOp::Command(command) => return Prepared::Command(prepare_command(command, vectors)),
    };
    Prepared::Plain(entry)
}

fn vector_of(bytes: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: len }
}

fn prepare_command(command: &mut Command, vectors: &mut Vec<libc::iovec>) -> squeue::Entry128 {
    let mut argument = [0; 80];
    argument[..ARGUMENT].copy_from_slice(&command.argument);
    let fd = types::Fd(command.fd.as_raw_fd());
    let plain = opcode::UringCmd80::new(fd, command.code).cmd(argument);
    if !command.with_vectors {
        return plain.build();
    }
    let memory = command.memory.iter_mut();
    vectors.extend(memory.map(|buf| vector_of(buf.as_mut_ptr(), buf.len())));
    let mut entry = plain.addr(Some(vectors.as_ptr() as u64)).build();
    /// Offset of `len` in `struct io_uring_sqe` of linux/io_uring.h. The io-uring crate leaves the field zero.
    const LEN_AT: usize = 24;
    // SAFETY: an Entry128 is the kernel's structure of 128 bytes, which consists of integers. The four bytes from 24 on
    // are within it, and they are aligned for a u32 because the structure is aligned for a u64.
    unsafe { (&raw mut entry).byte_add(LEN_AT).cast::<u32>().write(vectors.len() as u32) };
    entry
}
