//! Taking connections from one listener, and handing them to shards in turn.
//!
//! Does not know what a connection is for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::ring::RingOp;
use braid_shard::sync::{Promise, Promised, promise};

use crate::peer::peer;
use crate::register::{Connected, Register};

/// Pause after a failed accept (out of descriptors), in nanoseconds.
const ACCEPT_PAUSE_NANOS: u64 = 100_000_000;

/// The acceptors of a shard, by their doors: dropping the promise ends one.
#[derive(Default)]
struct Accepting {
    all: RefCell<Vec<(u64, Promise<()>)>>,
}

impl Accepting {
    fn end(shard: &Shard, door: u64) {
        shard.local::<Accepting>().all.borrow_mut().retain(|(of, _)| *of != door);
    }
}

/// A socket that listens, without waiting.
pub trait Accept: Send + 'static {
    /// The next connection, in blocking mode; `WouldBlock` when none is waiting.
    ///
    /// # Errors
    /// The system call's.
    fn accept(&self) -> io::Result<OwnedFd>;

    /// The client at the other end of a connection may use the door; else it is disconnected, with a line in the log.
    fn admits(&self, _connection: &OwnedFd) -> bool {
        true
    }

    /// Leaves the socket's file to whoever listens there now.
    fn leave_file(&mut self);

    /// Where it listens, for messages.
    fn address(&self) -> String;
}

/// Serves a connection on its shard, as long as it keeps what it is given.
pub type Serve = Arc<dyn Fn(&Shard, OwnedFd, Connected) + Send + Sync>;

/// Takes connections from one listener.
pub struct Acceptor<L: Accept> {
    /// The listener.
    pub listener: L,
    /// The door's register.
    pub register: Arc<Register>,
    /// The protocol's name, for messages.
    pub protocol: &'static str,
    /// Where connections live, in turn.
    pub shards: Vec<Remote>,
    /// The handler of each connection.
    pub serve: Serve,
}

/// Ends the acceptors of a door; their sockets go on listening. Must not be called on a shard's thread.
pub(crate) fn end_acceptors(shards: &[Remote], register: &Register) {
    let door = register.id();
    for remote in shards {
        remote.call(move |shard| Accepting::end(shard, door));
    }
}

impl<L: Accept> Acceptor<L> {
    /// Runs it on the shard `home`; `waited_on` is a descriptor of the listener's socket.
    pub fn start(self, home: &Remote, waited_on: OwnedFd) {
        let guard = self.register.listener();
        home.run(move |shard| {
            let (running, ended) = promise(shard);
            let id = self.register.id();
            shard.local::<Accepting>().all.borrow_mut().push((id, running));
            let here = shard.clone();
            shard.spawn(async move {
                self.run(&here, Rc::new(waited_on), ended).await;
                Accepting::end(&here, id);
                drop(guard);
            });
        });
    }

    async fn run(mut self, shard: &Shard, waited_on: Rc<OwnedFd>, mut ended: Promised<()>) {
        let mut next = 0;
        while !self.register.is_closed() {
            let mut readable = shard.perform(RingOp::Readable { fd: Rc::clone(&waited_on) });
            let come = poll_fn(|cx| match Pin::new(&mut ended).poll(cx) {
                Poll::Ready(_) => Poll::Ready(Come::Ended),
                Poll::Pending => Pin::new(&mut readable).poll(cx).map(|done| match done {
                    Some(_) => Come::Clients,
                    None => Come::NoRing,
                }),
            });
            match come.await {
                Come::Clients => {}
                Come::Ended => return self.listener.leave_file(),
                Come::NoRing => {
                    let (shard, protocol) = (shard.id(), self.protocol);
                    return tracing::error!(
                        "shard {shard} has no io_uring: {protocol} cannot listen there"
                    );
                }
            }
            self.accept_all(shard, &mut next).await;
        }
    }

    async fn accept_all(&self, shard: &Shard, next: &mut usize) {
        while !self.register.is_closed() {
            match self.listener.accept() {
                Ok(fd) => {
                    self.hand_over(fd, *next);
                    *next += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if self.register.is_closed() => {
                    tracing::debug!(%error, "listener closed");
                }
                Err(error) => {
                    let address = self.listener.address();
                    tracing::warn!(%error, %address, "accepting a client failed; trying again");
                    return shard.sleep(ACCEPT_PAUSE_NANOS).await;
                }
            }
        }
    }

    fn hand_over(&self, fd: OwnedFd, turn: usize) {
        if !self.listener.admits(&fd) {
            let client = peer(&fd).unwrap_or_else(|| "unknown".into());
            let protocol = self.protocol;
            tracing::warn!(
                %client,
                "{protocol} client refused: its address is in no network of --{protocol}-allow"
            );
            return;
        }
        let guard = match self.register.connection(&fd) {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                let (protocol, max) = (self.protocol, self.register.connections_max());
                tracing::warn!(
                    max,
                    "too many clients: closing a new one; --{protocol}-connections sets how many there may be"
                );
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "out of descriptors: closing a new client");
                return;
            }
        };
        // At least one shard (checked at the start).
        let Some(home) = self.shards.get(turn % self.shards.len().max(1)) else { return };
        let serve = Arc::clone(&self.serve);
        home.run(move |shard| serve(shard, fd, guard));
    }
}

enum Come {
    Clients,
    /// The socket is another's now.
    Ended,
    NoRing,
}
