//! The channel between two servers: messages of JSON, each after its length, and descriptors beside them.
//!
//! Nothing is read ahead: a descriptor is lost when the byte that it comes with is read in another way.

use super::Given;
use anyhow::{Context, Result, bail};
use braid_export::{Listening, Passed};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Descriptors of one message; the kernel takes 253 (SCM_MAX_FD).
const BATCH: usize = 128;
/// Bytes of a message, at most. A list of ten thousand clients is smaller.
const MESSAGE_MAX: u32 = 16 << 20;
/// Clients, sockets, and bytes of a client that may come: more is a mistake.
const CLIENTS_MAX: usize = 1 << 17;
const STATE_MAX: u64 = 64 << 20;
/// Of this form of the messages.
pub const VERSION: u32 = 1;

/// A message of one process to the other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// The old process begins.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The arguments that it was started with.
        arguments: Vec<String>,
        /// The members of its arrays now.
        members: Vec<String>,
    },
    /// The old process will not be taken over.
    Refused { error: String },
    /// The new process has started its threads.
    Prepared,
    /// The list of all that is given; the control socket, the listening sockets and those of the clients follow as descriptors, then the
    /// states of the clients.
    Given {
        listening: Vec<Place>,
        clients: Vec<Known>,
        /// The control socket is a service manager's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        managed: bool,
    },
    /// The new process serves.
    Ready,
    /// The old process ends: there is no way back.
    Go,
}

/// A socket that listens.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    protocol: String,
    address: String,
}

/// A client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    protocol: String,
    target: String,
    /// Bytes of its state.
    state: u64,
}

/// See the module's documentation.
pub struct Channel(UnixStream);

impl Channel {
    /// Over a connected socket.
    pub fn new(stream: UnixStream) -> Channel {
        Channel(stream)
    }

    /// The number of the process at the other end, as the kernel knows it.
    pub fn other_process(&self) -> Option<u32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.0).ok()?;
        u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
    }

    /// Tells something.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn say(&mut self, message: &Message) -> Result<()> {
        let text = serde_json::to_vec(message).context("writing a message")?;
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= MESSAGE_MAX);
        let length = length.context("a message is too long: too many clients to pass")?;
        let all = [&length.to_le_bytes()[..], &text].concat();
        self.0.write_all(&all).context("the other server is gone")
    }

    /// Waits for what the other side tells, at most for `limit`.
    ///
    /// # Errors
    /// It is gone, it says nothing, or something that is not understood; what it refused.
    pub fn hear(&mut self, limit: Duration) -> Result<Message> {
        self.0.set_read_timeout(Some(limit)).context("setting a time limit")?;
        let mut length = [0; 4];
        let silent =
            || format!("the other server is gone, or said nothing for {} s", limit.as_secs());
        self.0.read_exact(&mut length).with_context(silent)?;
        let length = u32::from_le_bytes(length);
        if length > MESSAGE_MAX {
            bail!(
                "the other server said something that is too long: it must be braid of the same version"
            );
        }
        let mut text = vec![0; length as usize];
        self.0.read_exact(&mut text).with_context(silent)?;
        let understood = serde_json::from_slice(&text);
        match understood.context("the other server must be braid of the same version")? {
            Message::Refused { error } => bail!("{error}"),
            message => Ok(message),
        }
    }

    /// Gives everything; it stays here too.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn give(&mut self, given: &Given) -> Result<()> {
        let place = |(protocol, one): &(String, Listening)| Place {
            protocol: protocol.clone(),
            address: one.address.clone(),
        };
        let known = |(protocol, client): &(String, Passed)| Known {
            protocol: protocol.clone(),
            target: client.target.clone(),
            state: client.state.len() as u64,
        };
        self.say(&Message::Given {
            listening: given.listening.iter().map(place).collect(),
            clients: given.clients.iter().map(known).collect(),
            managed: given.managed,
        })?;
        let sockets: Vec<BorrowedFd<'_>> = std::iter::once(given.control.as_fd())
            .chain(given.listening.iter().map(|(_, one)| one.socket.as_fd()))
            .chain(given.clients.iter().map(|(_, client)| client.socket.as_fd()))
            .collect();
        sockets.chunks(BATCH).try_for_each(|some| self.send(some))?;
        let mut states = given.clients.iter().map(|(_, client)| &client.state);
        states.try_for_each(|state| self.0.write_all(state)).context("the other server is gone")
    }

    fn send(&self, sockets: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !beside.push(SendAncillaryMessage::ScmRights(sockets)) {
            bail!("too many descriptors for one message");
        }
        let one = [IoSlice::new(&[0])];
        sendmsg(&self.0, &one, &mut beside, SendFlags::NOSIGNAL).context("passing sockets")?;
        Ok(())
    }

    /// Takes what is given.
    ///
    /// # Errors
    /// The other side is gone, or gives less than it said.
    pub fn take(
        &mut self,
        (listening, clients): (Vec<Place>, Vec<Known>),
        managed: bool,
    ) -> Result<Given> {
        let count = 1 + listening.len() + clients.len();
        if count > CLIENTS_MAX || clients.iter().any(|client| client.state > STATE_MAX) {
            bail!("the other server gives more than there can be");
        }
        let mut sockets = Vec::new();
        while sockets.len() < count {
            self.receive(&mut sockets)?;
        }
        let mut sockets = sockets.into_iter();
        let mut next = || sockets.next().context("a socket is missing");
        let control = next()?;
        let listening = listening
            .into_iter()
            .map(|Place { protocol, address }| {
                Ok((protocol, Listening { address, socket: next()? }))
            })
            .collect::<Result<_>>()?;
        let clients = clients
            .into_iter()
            .map(|Known { protocol, target, state }| {
                let mut bytes = vec![0; state as usize];
                self.0.read_exact(&mut bytes).context("the other server is gone")?;
                Ok((protocol, Passed { target, state: bytes, socket: next()? }))
            })
            .collect::<Result<_>>()?;
        Ok(Given { control, managed, listening, clients })
    }

    fn receive(&self, sockets: &mut Vec<OwnedFd>) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut one = [IoSliceMut::new(&mut byte)];
        let got = recvmsg(&self.0, &mut one, &mut beside, RecvFlags::CMSG_CLOEXEC)
            .context("taking sockets")?;
        let before = sockets.len();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                sockets.extend(some);
            }
        }
        if got.bytes == 0 || sockets.len() == before {
            bail!("sockets were lost on the way; raise the limit on open files (ulimit -n)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel(one), Channel(other))
    }

    #[test]
    fn hundreds_of_clients_come_with_their_states_and_sockets() {
        let (mut old, mut new) = pair();
        let mut ends = Vec::new();
        let clients = (0..300u32).map(|number| {
            let (here, there) = UnixStream::pair().unwrap();
            ends.push(here);
            let state = number.to_le_bytes().repeat(number as usize);
            (
                "nbd".to_string(),
                Passed { target: format!("a{number}"), state, socket: there.into() },
            )
        });
        let clients = clients.collect();
        let socket = || OwnedFd::from(tempfile::tempfile().unwrap());
        let listening = vec![(
            "nbd".to_string(),
            Listening { address: "tcp:127.0.0.1:10809".into(), socket: socket() },
        )];
        let given = Given { control: socket(), managed: true, listening, clients };
        let mut came = std::thread::scope(|scope| {
            scope.spawn(|| old.give(&given).unwrap());
            let Message::Given { listening, clients, managed } =
                new.hear(Duration::from_secs(20)).unwrap()
            else {
                panic!("something else");
            };
            new.take((listening, clients), managed).unwrap()
        });
        drop(given);
        assert!(came.managed);
        assert!(came.take_listening("nbd", "tcp:127.0.0.1:1").is_none());
        assert!(came.take_listening("nbd", "tcp:127.0.0.1:10809").is_some());
        assert_eq!(came.clients.len(), 300);
        for (number, ((_, client), mut end)) in came.clients.into_iter().zip(ends).enumerate() {
            assert_eq!(client.target, format!("a{number}"));
            assert_eq!(client.state, (number as u32).to_le_bytes().repeat(number));
            UnixStream::from(client.socket).write_all(&[number as u8]).unwrap();
            let mut byte = [0];
            end.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [number as u8], "each its own socket");
        }
    }

    #[test]
    fn what_the_other_side_refuses_is_the_error_and_garbage_is_none_of_ours() {
        let (mut old, mut new) = pair();
        old.say(&Message::Refused { error: "not now".into() }).unwrap();
        let error = new.hear(Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.to_string(), "not now");
        old.0.write_all(&[0xff; 8]).unwrap();
        assert!(new.hear(Duration::from_secs(20)).is_err());
        drop(old);
        assert!(new.hear(Duration::from_secs(20)).is_err());
    }
}
