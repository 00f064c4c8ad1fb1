//! /dev/fuse: requests read from it, replies and notices written to it.
//!
//! A write of the kernel's is read in two parts, so that its payload comes to lie in an aligned buffer and nowhere else
//! before.

use crate::abi::fields::Out;
use crate::abi::{BEFORE_PAYLOAD, HEADER, OUT_HEADER};
use crate::clone;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

// Codes of notices (linux/fuse.h).
const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;

/// The device of one mount. The mount ends when the last of them is dropped.
pub(crate) struct Channel(OwnedFd);

/// The result of a read of the device.
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// There is none now.
    Nothing,
    /// There will be none any more.
    End,
}

impl Channel {
    /// Over the opened device.
    pub fn new(device: OwnedFd) -> Channel {
        Channel(device)
    }

    /// A further descriptor of the same device.
    ///
    /// # Errors
    /// When the process has too many.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// A further reader of the same mount, which does not wait. A request is answered by the one that has read it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn another(&self) -> std::io::Result<Channel> {
        Ok(Channel(clone::another(&self.0)?))
    }

    /// From now on a read of nothing returns at once.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn do_not_wait(&self) -> std::io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0)? | rustix::fs::OFlags::NONBLOCK;
        Ok(rustix::fs::fcntl_setfl(&self.0, flags)?)
    }

    /// Reads a request: its first bytes into `head`, the rest into `rest`.
    ///
    /// # Errors
    /// The kernel's error, except those that mean that there is no request now, or none any more.
    pub fn receive(
        &self,
        head: &mut [u8; BEFORE_PAYLOAD],
        rest: &mut [u8],
    ) -> std::io::Result<Received> {
        loop {
            let parts = &mut [IoSliceMut::new(head), IoSliceMut::new(rest)];
            match rustix::io::readv(&self.0, parts) {
                Ok(len) => return Ok(Received::Request(len)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // Unmounted, or aborted.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::End),
                // Interrupted; or the request was, before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a reply or, with number 0 and its code as `error`, a notice; `body` has at most three parts.
    ///
    /// # Errors
    /// The kernel's error: ENOENT when nobody waits for the reply any more.
    pub fn send(&self, unique: u64, error: i32, body: &[&[u8]]) -> Result<(), Errno> {
        let header = reply_header(body.iter().map(|part| part.len()).sum(), error, unique);
        let mut parts =
            [IoSlice::new(header.bytes()), IoSlice::new(&[]), IoSlice::new(&[]), IoSlice::new(&[])];
        for (place, part) in parts.iter_mut().skip(1).zip(body) {
            *place = IoSlice::new(part);
        }
        rustix::io::writev(&self.0, parts.get(..=body.len()).unwrap_or(&parts)).map(|_| ())
    }
}

/// The header of a reply whose body has so many bytes.
pub(crate) fn reply_header(bytes: usize, error: i32, unique: u64) -> Out {
    // A reply is at most as long as the largest read.
    let len = OUT_HEADER + u32::try_from(bytes).unwrap_or(u32::MAX - OUT_HEADER);
    Out::new().u32(len).u32(error.cast_unsigned()).u64(unique)
}

/// Tells the kernel what it is to forget. Does not keep the mount alive.
#[derive(Clone)]
pub(crate) struct Notices(Weak<Channel>);

impl Notices {
    pub fn new(channel: &Arc<Channel>) -> Notices {
        Notices(Arc::downgrade(channel))
    }

    /// A file's attributes, and its content from `offset` on; what is held back of it is written first. A negative
    /// offset: the attributes only.
    ///
    /// # Errors
    /// The kernel's error; ENOENT when it does not know the file.
    pub fn forget_content(&self, ino: u64, offset: i64) -> std::io::Result<()> {
        self.send(INVAL_INODE, &[Out::new().u64(ino).i64(offset).i64(0).bytes()])
    }

    /// A name, or that there is none such.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn forget_name(&self, parent: u64, name: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.send(INVAL_ENTRY, &[Out::new().u64(parent).u32(len).u32(0).bytes(), name, &[0]])
    }

    fn send(&self, code: i32, body: &[&[u8]]) -> std::io::Result<()> {
        let Some(channel) = self.0.upgrade() else { return Err(Errno::NODEV.into()) };
        Ok(channel.send(0, code, body)?)
    }
}

/// The request that `head` begins, `len` bytes long, as one slice after its header: in `head` where it fits, else
/// put together in `scratch`.
pub(crate) fn body<'a>(
    head: &'a [u8; BEFORE_PAYLOAD],
    rest: &[u8],
    len: usize,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    if len <= BEFORE_PAYLOAD {
        return head.get(HEADER..len).unwrap_or_default();
    }
    scratch.clear();
    scratch.extend_from_slice(&head[HEADER..]);
    scratch.extend_from_slice(rest.get(..len - BEFORE_PAYLOAD).unwrap_or_default());
    scratch
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub fn pair() -> (Arc<Channel>, OwnedFd) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.expect("a pair of sockets");
        (Arc::new(Channel::new(ours)), theirs)
    }

    pub fn read(from: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        let len = rustix::io::read(from, &mut bytes[..]).expect("something was sent");
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{pair, read};
    use super::*;

    #[test]
    fn notices_end_with_the_mount() {
        let (channel, kernel) = pair();
        let notices = Notices::new(&channel);
        notices.forget_name(1, b"name").expect("it is sent");
        let expected = Out::new().u32(16 + 16 + 5).u32(3).u64(0).u64(1).u32(4).u32(0);
        assert_eq!(read(&kernel), [expected.bytes(), b"name\0"].concat());
        drop(channel);
        assert!(notices.forget_content(1, 0).is_err());
    }

    #[test]
    fn a_request_in_two_parts_is_put_together() {
        let mut head = [1; BEFORE_PAYLOAD];
        head[HEADER - 1] = 0;
        let mut scratch = vec![9; 3];
        assert_eq!(body(&head, &[], HEADER + 5, &mut scratch), [1; 5]);
        assert_eq!(body(&head, &[], 3, &mut scratch), []);
        let whole = body(&head, &[2; 8], BEFORE_PAYLOAD + 2, &mut scratch).to_vec();
        assert_eq!((whole.len(), &whole[38..]), (42, &[1, 1, 2, 2][..]));
    }
}
