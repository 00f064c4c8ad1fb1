//! The socket to a front end: messages in, with their descriptors, and replies out.
//!
//! Nothing here waits in the kernel: a message is received as it comes, and a front end that takes no replies is gone.

use crate::protocol::{BODY_BYTES_MAX, DESCRIPTORS_MAX, HEADER_BYTES, Header, Message, Violation};
use braid_shard::Shard;
use braid_shard::ring::RingOp;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Nanoseconds that the rest of a message may take after its first byte.
const MESSAGE_NANOS_MAX: u64 = 10_000_000_000;

/// Why nothing more comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("{0}")]
    Violation(#[from] Violation),
    #[error("more than {DESCRIPTORS_MAX} descriptors came with a message")]
    Descriptors,
    #[error("it went away in the middle of a message")]
    Cut,
    #[error("it did not send the rest of a message within ten seconds")]
    Slow,
    #[error("its socket: {0}")]
    System(#[from] io::Error),
    #[error("shard {0} has no io_uring, so it cannot serve sockets: start shards with a ring")]
    NoRing(u16),
}

/// See the module's documentation.
pub(super) struct Channel {
    shard: Shard,
    socket: Rc<OwnedFd>,
}

impl Channel {
    pub fn new(shard: &Shard, socket: OwnedFd) -> Channel {
        Channel { shard: shard.clone(), socket: Rc::new(socket) }
    }

    /// The next message; `None` when the front end has left between two.
    pub async fn next(&self) -> Result<Option<(Header, Message, Vec<OwnedFd>)>, ChannelError> {
        let mut descriptors = Vec::new();
        let mut head = [0; HEADER_BYTES];
        if !self.fill(&mut head, &mut descriptors, true).await? {
            return Ok(None);
        }
        let header = Header::decode(&head)?;
        // Checked to be at most `BODY_BYTES_MAX`.
        let mut body = vec![0; (header.size as usize).min(BODY_BYTES_MAX)];
        self.fill(&mut body, &mut descriptors, false).await?;
        let message = Message::decode(header, &body, descriptors.len())?;
        Ok(Some((header, message, descriptors)))
    }

    /// Fills `into`. False when `first` and the front end has left before the first byte.
    async fn fill(
        &self,
        into: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        first: bool,
    ) -> Result<bool, ChannelError> {
        let (mut filled, mut begun) = (0, if first { None } else { Some(self.shard.now()) });
        while filled < into.len() {
            match self.receive(&mut into[filled..], descriptors)? {
                Some(0) if begun.is_none() => return Ok(false),
                Some(0) => return Err(ChannelError::Cut),
                Some(received) => {
                    filled += received;
                    begun = begun.or(Some(self.shard.now()));
                }
                None => self.readable(begun).await?,
            }
        }
        Ok(true)
    }

    /// Waits until something comes; once a message has `begun`, not for long.
    async fn readable(&self, begun: Option<u64>) -> Result<(), ChannelError> {
        if begun.is_some_and(|begun| self.shard.now() > begun + MESSAGE_NANOS_MAX) {
            return Err(ChannelError::Slow);
        }
        if begun.is_none() {
            let wait = RingOp::Readable { fd: Rc::clone(&self.socket) };
            let ended = self.shard.perform(wait).await;
            return ended.map(drop).ok_or(ChannelError::NoRing(self.shard.id()));
        }
        // The rest of a message comes at once or hardly ever: a look every millisecond will do, and leaves a limit.
        self.shard.sleep(1_000_000).await;
        Ok(())
    }

    /// The bytes that are there now; `None` when there are none yet.
    fn receive(
        &self,
        into: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Option<usize>, ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(&*self.socket, &mut [IoSliceMut::new(into)], &mut beside, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNRESET) => return Ok(Some(0)),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        };
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                descriptors.extend(files);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
            return Err(ChannelError::Descriptors);
        }
        Ok(Some(received.bytes))
    }

    /// Sends a reply, with a descriptor if there is one.
    pub fn send(&self, bytes: &[u8], with: Option<BorrowedFd<'_>>) -> Result<(), ChannelError> {
        send(&*self.socket, bytes, with).map_err(ChannelError::from)
    }
}

/// Sends a short message without waiting: it fits whole into the socket, or the other end does not take anything.
pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = with.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
