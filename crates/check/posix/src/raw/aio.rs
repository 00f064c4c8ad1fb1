//! Asynchronous reads and writes of Linux (io_submit(2)): what direct I/O of databases is made of.
//!
//! Memory that the kernel works on belongs to the queue until the call has ended.

#![allow(unsafe_code)]

use super::{Mapping, last_error};
use crate::bytes::Aligned;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;

/// Where is read to, or what is written.
#[derive(Debug)]
pub enum Memory {
    /// Memory of its own.
    Own(Aligned),
    /// Bytes of a file.
    Mapped(Mapping),
}

impl Memory {
    fn range(&mut self) -> (*mut u8, usize) {
        match self {
            Memory::Own(memory) => (memory.bytes().as_mut_ptr(), memory.bytes().len()),
            Memory::Mapped(map) => (map.at, map.len),
        }
    }
}

/// A call that has ended: the number of bytes, or the error; its memory; and the number that it began with.
pub type Ended = (rustix::io::Result<usize>, Memory, u64);

/// Calls under way. The drop waits for them.
#[derive(Debug)]
pub struct Aio {
    context: libc::c_ulong,
    /// Memory of the calls under way, by their numbers.
    under_way: HashMap<u64, Memory>,
    next: u64,
}

impl Aio {
    /// For up to `depth` calls at a time.
    ///
    /// # Errors
    ///
    /// That of io_setup: EAGAIN when the machine has too many.
    pub fn new(depth: u32) -> rustix::io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number of that type.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        if made < 0 {
            return Err(last_error());
        }
        Ok(Self { context, under_way: HashMap::new(), next: 0 })
    }

    /// Begins to read at `offset` into `memory`; gives the call's number.
    ///
    /// # Errors
    ///
    /// That of io_submit; the call is not under way then.
    pub fn read(
        &mut self,
        file: &impl AsFd,
        offset: u64,
        memory: Memory,
    ) -> rustix::io::Result<u64> {
        self.submit(READ, file, offset, memory)
    }

    /// Begins to write `memory` at `offset`; gives the call's number.
    ///
    /// # Errors
    ///
    /// That of io_submit; the call is not under way then.
    pub fn write(
        &mut self,
        file: &impl AsFd,
        offset: u64,
        memory: Memory,
    ) -> rustix::io::Result<u64> {
        self.submit(WRITE, file, offset, memory)
    }

    fn submit(
        &mut self,
        opcode: u16,
        file: &impl AsFd,
        offset: u64,
        mut memory: Memory,
    ) -> rustix::io::Result<u64> {
        let (at, len) = memory.range();
        let data = self.next;
        self.next += 1;
        let mut request = Request {
            data,
            opcode,
            fd: file.as_fd().as_raw_fd().cast_unsigned(),
            buf: at as u64,
            len: len as u64,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            ..Request::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: the kernel reads one pointer and the request behind it, and takes both over before it returns. The
        // memory that the request names stays in `under_way` until the call has ended.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        if taken != 1 {
            return Err(last_error());
        }
        self.under_way.insert(data, memory);
        Ok(data)
    }

    /// Waits for the next call that ends; `None` when none is under way.
    ///
    /// # Errors
    ///
    /// That of io_getevents.
    pub fn wait(&mut self) -> rustix::io::Result<Option<Ended>> {
        if self.under_way.is_empty() {
            return Ok(None);
        }
        let mut event = Event::default();
        loop {
            // SAFETY: the kernel writes at most one event, for which there is room, and waits without a limit.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    1,
                    1,
                    &raw mut event,
                    std::ptr::null_mut::<libc::timespec>(),
                )
            };
            match got {
                1 => break,
                _ if got < 0 && last_error() == rustix::io::Errno::INTR => {}
                _ => return Err(last_error()),
            }
        }
        let Some(memory) = self.under_way.remove(&event.data) else { return Ok(None) };
        let result = match usize::try_from(event.result) {
            Ok(bytes) => Ok(bytes),
            Err(_) => {
                let code = i32::try_from(event.result).unwrap_or(i32::MIN).wrapping_neg();
                Err(rustix::io::Errno::from_raw_os_error(code))
            }
        };
        Ok(Some((result, memory, event.data)))
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is this value's own. The call returns when nothing is under way any more; only then the
        // memory goes.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_into_a_map() {
        let file = tempfile::tempfile().unwrap();
        let other = tempfile::tempfile().unwrap();
        other.set_len(4096).unwrap();
        let mut aio = Aio::new(2).unwrap();
        assert!(aio.wait().unwrap().is_none());
        aio.write(&file, 0, Memory::Own(Aligned::of(&[7; 4096]))).unwrap();
        assert_eq!(aio.wait().unwrap().unwrap().0, Ok(4096));
        let map = Mapping::new(&other, 0, 4096, super::super::Sharing::Shared, true).unwrap();
        aio.read(&file, 4000, Memory::Mapped(map)).unwrap();
        let (read, memory, _) = aio.wait().unwrap().unwrap();
        assert_eq!(read, Ok(96));
        drop(memory);
        let mut seen = [0; 100];
        std::os::unix::fs::FileExt::read_at(&other, &mut seen, 0).unwrap();
        assert_eq!((&seen[..96], &seen[96..]), (&[7; 96][..], &[0; 4][..]));
    }
}
