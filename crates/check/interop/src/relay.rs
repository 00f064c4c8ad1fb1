//! Between a guest's vhost-user driver and its back end: what a virtual machine's monitor does when the back end dies.
//!
//! The driver of User Mode Linux does not connect again. So this stands between: it passes messages and descriptors on,
//! keeps what the driver has set up, and when the back end has gone connects to the next one and sets the same up there,
//! with the memory that tracks requests under way. Requests themselves never come here: they are in the guest's memory.

use braid_vhost::protocol::{BODY_BYTES_MAX, DESCRIPTORS_MAX, HEADER_BYTES, feature};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
/// In the order in which a back end wants to be told; the memory for tracking comes before the kicks.
const SET_UP: [u32; 11] = [
    SET_OWNER,
    SET_FEATURES,
    SET_PROTOCOL_FEATURES,
    SET_BACKEND_REQ_FD,
    SET_MEM_TABLE,
    SET_VRING_NUM,
    SET_VRING_BASE,
    SET_VRING_ADDR,
    SET_VRING_CALL,
    SET_VRING_KICK,
    SET_VRING_ENABLE,
];
const FLAG_NEED_REPLY: u32 = 8;
const VERSION: u32 = 1;

#[derive(Debug)]
struct Message {
    code: u32,
    flags: u32,
    body: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Message {
    fn new(code: u32, body: Vec<u8>, files: Vec<OwnedFd>) -> Message {
        Message { code, flags: VERSION, body, files }
    }

    /// The queue that it is about, where it is about one.
    fn queue(&self) -> u32 {
        match self.code {
            SET_VRING_NUM..=SET_VRING_CALL | SET_VRING_ENABLE => self.word(0) & 0xff,
            _ => 0,
        }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    /// The next message; `None` at the end of the connection.
    fn receive(mut from: &UnixStream) -> io::Result<Option<Message>> {
        let mut head = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(from, &mut [IoSliceMut::new(&mut head)], &mut beside, flags);
        let bytes = match received {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        if bytes == 0 {
            return Ok(None);
        }
        let files = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files.collect::<Vec<OwnedFd>>()),
            _ => None,
        });
        let files = files.flatten().collect();
        from.read_exact(&mut head[bytes..])?;
        let mut message = Message { code: 0, flags: 0, body: head.to_vec(), files };
        let (code, flags, size) = (message.word(0), message.word(4), message.word(8) as usize);
        if size > BODY_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        (message.code, message.flags, message.body) = (code, flags, vec![0; size]);
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    fn send(&self, to: &UnixStream) -> io::Result<()> {
        let size = self.body.len() as u32;
        let head = [self.code, self.flags, size].map(u32::to_ne_bytes).concat();
        let bytes = [&head[..], &self.body].concat();
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(to, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// The driver's set-up, by message and queue.
#[derive(Default)]
struct SetUp {
    known: BTreeMap<(u32, u32), Message>,
    /// The shape of the memory for tracking, and its file.
    tracking: Option<(Vec<u8>, OwnedFd)>,
}

impl SetUp {
    /// Changes a message on its way, and does what must come before it.
    fn before(&mut self, message: &mut Message, back: &UnixStream) -> io::Result<()> {
        if message.code == SET_PROTOCOL_FEATURES {
            // All protocol features that there are have bits in the lower half.
            let features = u64::from(message.word(0)) | feature::INFLIGHT_SHMFD;
            message.body = features.to_ne_bytes().to_vec();
        }
        if message.code == SET_VRING_KICK && self.tracking.is_none() {
            let size = self.known.get(&(SET_VRING_NUM, message.queue()));
            let size = size.map_or(0, |message| message.word(4)) as u16;
            let mut shape = vec![0; 16];
            shape.extend_from_slice(&1u16.to_ne_bytes());
            shape.extend_from_slice(&size.to_ne_bytes());
            Message::new(GET_INFLIGHT_FD, shape, Vec::new()).send(back)?;
            let answer = Message::receive(back)?.ok_or(ErrorKind::UnexpectedEof)?;
            let file = answer.files.into_iter().next().ok_or(ErrorKind::InvalidData)?;
            self.tracking = Some((answer.body, file));
            self.track(back)?;
        }
        Ok(())
    }

    fn track(&self, back: &UnixStream) -> io::Result<()> {
        let Some((shape, file)) = &self.tracking else { return Ok(()) };
        Message::new(SET_INFLIGHT_FD, shape.clone(), vec![file.try_clone()?]).send(back)
    }

    fn keep(&mut self, mut message: Message) {
        if SET_UP.contains(&message.code) {
            message.flags &= !FLAG_NEED_REPLY;
            self.known.insert((message.code, message.queue()), message);
        }
    }

    /// Tells a new back end all of it.
    fn repeat(&self, back: &UnixStream) -> io::Result<()> {
        for code in SET_UP {
            if code == SET_VRING_CALL {
                self.track(back)?;
            }
            for (_, message) in self.known.range((code, 0)..=(code, u32::MAX)) {
                message.send(back)?;
            }
        }
        Ok(())
    }
}

/// A relay at work.
pub struct Relay {
    again: Arc<AtomicU32>,
}

impl Relay {
    /// Listens at `front` for one driver, and takes it to the back end at `back`, again and again.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(front: &Path, back: &Path) -> io::Result<Relay> {
        let listener = UnixListener::bind(front)?;
        let again = Arc::new(AtomicU32::new(0));
        let (back, count) = (back.to_path_buf(), Arc::clone(&again));
        std::thread::spawn(move || {
            // The test sees what becomes of the guest.
            let _ = listener.accept().and_then(|(driver, _)| relay(&driver, &back, &count));
        });
        Ok(Relay { again })
    }

    /// Back ends after the first that were told all of it.
    #[must_use]
    pub fn again(&self) -> u32 {
        self.again.load(Ordering::SeqCst)
    }
}

/// Connects to a back end that answers. The kernel takes some time to close the socket of one that was killed, and takes
/// connections for it until then.
fn connect(back: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(back) {
            Ok(stream) if answers(&stream).unwrap_or(false) => return stream,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn answers(back: &UnixStream) -> io::Result<bool> {
    Message::new(GET_FEATURES, Vec::new(), Vec::new()).send(back)?;
    Ok(Message::receive(back)?.is_some())
}

fn relay(driver: &UnixStream, back: &Path, again: &AtomicU32) -> io::Result<()> {
    let mut set_up = SetUp::default();
    let mut stream = connect(back);
    loop {
        if !readable_is_first(driver, &stream)? {
            // The back end says something of itself, which is its end.
            if Message::receive(&stream)?.is_some() {
                return Err(ErrorKind::InvalidData.into());
            }
            stream = connect(back);
            // One that ends meanwhile is seen to have ended in the next round.
            if set_up.repeat(&stream).is_ok() {
                again.fetch_add(1, Ordering::SeqCst);
            }
            continue;
        }
        let Some(mut message) = Message::receive(driver)? else { return Ok(()) };
        set_up.before(&mut message, &stream)?;
        message.send(&stream)?;
        if message.flags & FLAG_NEED_REPLY != 0 || is_question(message.code) {
            let answer = Message::receive(&stream)?.ok_or(ErrorKind::UnexpectedEof)?;
            answer.send(driver)?;
        }
        set_up.keep(message);
    }
}

/// Messages that are answered in any case.
fn is_question(code: u32) -> bool {
    const GET_VRING_BASE: u32 = 11;
    const GET_PROTOCOL_FEATURES: u32 = 15;
    const GET_QUEUE_NUM: u32 = 17;
    const GET_CONFIG: u32 = 24;
    let questions =
        [GET_FEATURES, GET_VRING_BASE, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_CONFIG];
    questions.contains(&code)
}

/// Waits for either; true if there is something from the first.
fn readable_is_first(first: &UnixStream, second: &UnixStream) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut both = [PollFd::new(first, PollFlags::IN), PollFd::new(second, PollFlags::IN)];
    poll(&mut both, None)?;
    Ok(!both[0].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: [u8; 8] = 0x1234_5678_u64.to_ne_bytes();

    /// Takes a connection, and answers the question that finds out if somebody is there.
    fn take(back: &UnixListener) -> UnixStream {
        let (stream, _) = back.accept().unwrap();
        assert_eq!(Message::receive(&stream).unwrap().unwrap().code, GET_FEATURES);
        Message::new(GET_FEATURES, FEATURES.to_vec(), Vec::new()).send(&stream).unwrap();
        stream
    }

    #[test]
    fn a_back_end_that_takes_a_connection_and_ends_is_not_one() {
        let folder = tempfile::tempdir().unwrap();
        let (front, path) = (folder.path().join("front"), folder.path().join("back"));
        let back = UnixListener::bind(&path).unwrap();
        let relay = Relay::start(&front, &path).unwrap();
        let driver = UnixStream::connect(&front).unwrap();
        let first = take(&back);
        Message::new(SET_FEATURES, FEATURES.to_vec(), Vec::new()).send(&driver).unwrap();
        assert_eq!(Message::receive(&first).unwrap().unwrap().body, FEATURES);
        drop(first);
        for _ in 0..3 {
            drop(back.accept().unwrap());
        }
        let next = take(&back);
        let told = Message::receive(&next).unwrap().unwrap();
        assert_eq!((told.code, &told.body[..]), (SET_FEATURES, &FEATURES[..]));
        // It counts after it has told all, of which this was the last.
        let counted = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            relay.again() > 0
        });
        assert!(counted && relay.again() == 1);
    }
}
