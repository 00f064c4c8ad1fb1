//! The NBD door, and a plain client of it.

use crate::wire::{Silence, Wire};
use crate::{Adapter, Answer, Client, Command, Failure, Properties};
use braid_device::Target;
use braid_export::{Export, Listening};
use braid_nbd::Address;
use braid_nbd::protocol::constants::{CMD_FLAG_FUA, SIMPLE_REPLY_MAGIC};
use braid_nbd::protocol::{
    ClientHandshake, ClientHandshakeStep, ClientOptions, Command as Verb, Headers, Request,
    ServerOffer,
};
use braid_nbd::serve::{Limits, Server};
use braid_shard::mailbox::Remote;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Clients that the suite wants to be served at a time.
const CLIENTS_MAX: usize = 300;
const EIO: u32 = 5;

/// See the module's documentation.
pub struct Nbd;

fn limits() -> Limits {
    Limits { connections: CLIENTS_MAX, ..Limits::default() }
}

impl Adapter for Nbd {
    fn protocol(&self) -> &'static str {
        "nbd"
    }

    fn start(&self, socket: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export> {
        let address = Address::Unix(socket.to_path_buf());
        let server = Server::start_within(&limits(), shards, &[address], vec![target], None);
        Arc::new(server.expect("an NBD server"))
    }

    fn start_hurried(
        &self,
        socket: &Path,
        shards: &[Remote],
        target: Arc<dyn Target>,
        handshake: Duration,
    ) -> Option<Arc<dyn Export>> {
        let (limits, address) =
            (Limits { handshake, ..limits() }, Address::Unix(socket.to_path_buf()));
        let server = Server::start_within(&limits, shards, &[address], vec![target], None);
        Some(Arc::new(server.expect("an NBD server")))
    }

    fn first_words(&self) -> Vec<u8> {
        // Flags, and the beginning of an option that asks for an export with a long name.
        let head = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes()].concat();
        [&head[..], &4000u32.to_be_bytes(), &3000u32.to_be_bytes(), &[b'x'; 2999]].concat()
    }

    fn adopt(
        &self,
        sockets: Vec<Listening>,
        shards: &[Remote],
        target: Arc<dyn Target>,
    ) -> Arc<dyn Export> {
        let server = Server::adopt(&limits(), shards, sockets, vec![target], None);
        Arc::new(server.expect("an NBD server"))
    }

    fn connect(&self, socket: &Path) -> Option<Box<dyn Client>> {
        enter(UnixStream::connect(socket).ok()?)
    }

    fn garbage(&self) -> Vec<Vec<u8>> {
        vec![
            vec![0xff; 64],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 4096],
            // Flags as they are, and an option that is longer than any.
            [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes(), &u32::MAX.to_be_bytes()]
                .concat(),
        ]
    }

    fn tells_refusals(&self) -> bool {
        true
    }

    fn passes_clients(&self) -> bool {
        true
    }
}

/// A plain client at a server on another host, which gets so long for each of its words in the handshake.
#[must_use]
pub fn over_tcp(socket: TcpStream, within: Duration) -> Option<Box<dyn Client>> {
    socket.set_nodelay(true).ok()?;
    socket.set_read_timeout(Some(within)).ok()?;
    // From here on the calls are those of any stream socket.
    enter(UnixStream::from(OwnedFd::from(socket)))
}

/// Enters the export.
fn enter(mut socket: UnixStream) -> Option<Box<dyn Client>> {
    let options = ClientOptions { export: "disk".into(), headers: Headers::Simple };
    let mut handshake = ClientHandshake::new(options).expect("a short name");
    loop {
        let (mut byte, mut out) = ([0; 1], Vec::new());
        // Byte by byte, so that nothing of the transmission phase is taken.
        socket.read_exact(&mut byte).ok()?;
        let step = handshake.step(&mut &byte[..], &mut out).ok()?;
        socket.write_all(&out).ok()?;
        if let ClientHandshakeStep::Transmission(offer) = step {
            let (socket, offer, asked) = (Wire::new(socket), *offer, HashMap::new());
            return Some(Box::new(Plain { socket, offer, asked }));
        }
    }
}

struct Plain {
    socket: Wire,
    offer: ServerOffer,
    /// By tag the bytes that the answer carries.
    asked: HashMap<u64, u64>,
}

impl Client for Plain {
    fn properties(&mut self) -> Properties {
        let export = &self.offer.export;
        Properties {
            size: export.size,
            block: u64::from(export.block.minimum),
            largest: u64::from(export.block.maximum),
            read_only: export.features.read_only,
            discards: export.features.trim,
            zeroes: export.features.write_zeroes,
        }
    }

    fn submit(&mut self, tag: u32, command: Command) {
        let cookie = u64::from(tag);
        let (command, offset, length, flags, data) = match command {
            Command::Read { offset, length } => (Verb::Read, offset, length, 0, Vec::new()),
            Command::Write { offset, data, fua } => {
                let flags = if fua { CMD_FLAG_FUA } else { 0 };
                (Verb::Write, offset, data.len() as u64, flags, data)
            }
            Command::Flush => (Verb::Flush, 0, 0, 0, Vec::new()),
            Command::Discard { offset, length } => (Verb::Trim, offset, length, 0, Vec::new()),
            Command::Zero { offset, length } => (Verb::WriteZeroes, offset, length, 0, Vec::new()),
        };
        let carried = if command == Verb::Read { length } else { 0 };
        self.asked.insert(cookie, carried);
        assert!(u32::try_from(length).is_ok(), "compact requests count in 32 bits");
        let request = Request { cookie, command, flags, offset, length };
        // A server that has left is noticed by what it answers.
        let _ = self.socket.send(&request.encode(), &data);
    }

    fn words_of_write(&mut self, tag: u32, offset: u64, data: &[u8]) -> Option<Vec<u8>> {
        let (cookie, length) = (u64::from(tag), data.len() as u64);
        let request = Request { cookie, command: Verb::Write, flags: 0, offset, length };
        self.asked.insert(cookie, 0);
        Some([&request.encode()[..], data].concat())
    }

    fn say(&mut self, words: &[u8]) {
        // As in `submit`.
        let _ = self.socket.send(words, &[]);
    }

    fn answer(&mut self, within: Duration) -> Answer {
        let mut head = [0; 16];
        match self.socket.begin(&mut head, within) {
            Ok(()) => {}
            Err(Silence::Nothing) => return Answer::Nothing,
            Err(Silence::Disconnected) => return Answer::Disconnected,
        }
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0), SIMPLE_REPLY_MAGIC);
        let (error, cookie) = (word(4), u64::from(word(8)) << 32 | u64::from(word(12)));
        let carried = self.asked.remove(&cookie).expect("an answer to what was asked");
        let result = match error {
            0 => match self.socket.data(carried as usize) {
                Ok(data) => Ok(data),
                Err(_) => return Answer::Disconnected,
            },
            EIO => Err(Failure::Io),
            _ => Err(Failure::Refused),
        };
        Answer::Done(cookie as u32, result)
    }
}
