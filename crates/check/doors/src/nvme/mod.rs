//! The NVMe/TCP door, and a plain host of it.

// A client of the suite: unwrapping says that a case has failed.
#![allow(clippy::unwrap_used)]

pub mod host;
pub mod proof;

use crate::{Adapter, Answer, Client, Command, Failure, Properties};
use braid_device::Target;
use braid_export::{Export, Listening};
use braid_nvme::protocol::{COMMAND_BYTES, Command as Raw, Initialize, Sgl, Status, admin, io};
use braid_nvme::{Address, Limits, Server};
use braid_shard::mailbox::Remote;
use host::{Host, Silence, Wishes};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Clients that the suite wants to be served at a time.
const CLIENTS_MAX: usize = 300;
/// See the module's documentation.
pub struct Nvme;

/// The limits that the suite wants.
#[must_use]
pub fn limits() -> Limits {
    Limits { controllers: CLIENTS_MAX, ..Limits::default() }
}

/// A server of one target.
///
/// # Panics
/// When it does not start.
pub fn start(limits: &Limits, socket: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Server {
    let address = Address::Unix(socket.to_path_buf());
    Server::start(limits, shards, &[address], vec![target]).expect("an NVMe server")
}

/// The name of the subsystem of the rig's disk: what follows from its name.
#[must_use]
pub fn subsystem() -> String {
    "nqn.2014-08.org.nvmexpress:uuid:36481f6a-9b75-5a1e-8722-d8a0626f1f7c".to_owned()
}

impl Adapter for Nvme {
    fn protocol(&self) -> &'static str {
        "nvme"
    }

    fn start(&self, socket: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export> {
        Arc::new(start(&limits(), socket, shards, target))
    }

    fn start_hurried(
        &self,
        socket: &Path,
        shards: &[Remote],
        target: Arc<dyn Target>,
        handshake: Duration,
    ) -> Option<Arc<dyn Export>> {
        let limits = Limits { handshake, ..limits() };
        Some(Arc::new(start(&limits, socket, shards, target)))
    }

    fn first_words(&self) -> Vec<u8> {
        let wanted = Initialize {
            host_alignment: 0,
            header_digest: false,
            data_digest: false,
            ready_max: 1,
        };
        // And of a Connect all but its last byte.
        let data = host::names(&subsystem()).encode();
        let connect = Raw::of(admin::FABRICS, 1, 0)
            .with(4, &[1])
            .with(44, &63u16.to_le_bytes())
            .with_data(Sgl::InCapsule(0, data.len() as u32));
        let connect = connect.capsule_before(data.len(), false, false);
        let mut words = [&wanted.encode()[..], &connect, &data].concat();
        words.pop();
        words
    }

    fn adopt(
        &self,
        sockets: Vec<Listening>,
        shards: &[Remote],
        target: Arc<dyn Target>,
    ) -> Arc<dyn Export> {
        let server = Server::adopt(&limits(), shards, sockets, vec![target]);
        Arc::new(server.expect("an NVMe server"))
    }

    fn connect(&self, socket: &Path) -> Option<Box<dyn Client>> {
        Some(Box::new(Plain::connect(socket, &subsystem())?))
    }

    fn garbage(&self) -> Vec<Vec<u8>> {
        let initialize = |at: usize, byte: u8| {
            let mut pdu = vec![0; 128];
            (pdu[2], pdu[4]) = (128, 128);
            pdu[at] = byte;
            pdu
        };
        vec![
            vec![0xff; 64],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 4096],
            // A version that there is not, an alignment, a length, and a command before all.
            initialize(8, 1),
            initialize(10, 32),
            initialize(4, 127),
            initialize(0, 4),
            // As it should be, and then a PDU that is larger than any.
            [initialize(0, 0), vec![4, 0, 72, 72, 0xff, 0xff, 0xff, 0xff], vec![0; 64]].concat(),
        ]
    }

    fn tells_refusals(&self) -> bool {
        true
    }
}

/// A client of the suite.
pub struct Plain {
    host: Host,
    block: u64,
    /// Bytes of data that may go with a command.
    in_capsule: usize,
    /// By command its tag.
    asked: HashMap<u16, u32>,
    /// Requests that cannot be said in blocks are refused here.
    refused: Vec<u32>,
}

impl Plain {
    /// One of that subsystem; `None` when it is turned away, or the server leaves.
    pub fn connect(socket: &Path, subsystem: &str) -> Option<Plain> {
        let mut host = Host::connect(socket, subsystem, Wishes::default())?;
        let (status, page) = host.admin.identify(0, 1)?;
        let block = 1 << page[130];
        let (_, controller) = host.admin.identify(1, 0)?;
        let capsule = u32::from_le_bytes(controller[1792..1796].try_into().unwrap());
        let in_capsule = capsule as usize * 16 - COMMAND_BYTES;
        let (asked, refused) = (HashMap::new(), Vec::new());
        (status == Status::SUCCESS).then_some(Plain { host, block, in_capsule, asked, refused })
    }

    fn with_blocks(&self, opcode: u8, id: u16, offset: u64, length: u64) -> Raw {
        let last = (length / self.block).saturating_sub(1) as u32;
        Raw::of(opcode, id, 1)
            .with(40, &(offset / self.block).to_le_bytes())
            .with(48, &last.to_le_bytes())
    }
}

impl Client for Plain {
    fn properties(&mut self) -> Properties {
        let (_, namespace) = self.host.admin.identify(0, 1).unwrap();
        let (_, controller) = self.host.admin.identify(1, 0).unwrap();
        let blocks = u64::from_le_bytes(namespace[..8].try_into().unwrap());
        let commands = u16::from_le_bytes([controller[520], controller[521]]);
        Properties {
            size: blocks << namespace[130],
            block: 1 << namespace[130],
            largest: 4096 << controller[77],
            read_only: namespace[99] & 1 != 0,
            discards: commands & 1 << 2 != 0,
            zeroes: commands & 1 << 3 != 0,
        }
    }

    fn submit(&mut self, tag: u32, command: Command) {
        let id = self.host.io.id();
        let (offset, length) = match &command {
            Command::Read { offset, length }
            | Command::Discard { offset, length }
            | Command::Zero { offset, length } => (*offset, *length),
            Command::Write { offset, data, .. } => (*offset, data.len() as u64),
            Command::Flush => (0, 0),
        };
        // A number of blocks says nothing else.
        if !offset.is_multiple_of(self.block) || !length.is_multiple_of(self.block) {
            return self.refused.push(tag);
        }
        self.asked.insert(id, tag);
        let (raw, data) = match command {
            Command::Read { .. } => {
                let raw = self.with_blocks(io::READ, id, offset, length);
                (raw.with_data(Sgl::Transport(length as u32)), Vec::new())
            }
            Command::Write { data, fua, .. } => {
                let raw = self.with_blocks(io::WRITE, id, offset, length);
                let fua = if fua { 1u8 << 6 } else { 0 };
                (raw.with(51, &[fua]), data)
            }
            Command::Flush => (Raw::of(io::FLUSH, id, 1), Vec::new()),
            Command::Zero { .. } => {
                (self.with_blocks(io::WRITE_ZEROES, id, offset, length), Vec::new())
            }
            Command::Discard { .. } => {
                let blocks = (length / self.block) as u32;
                let start = offset / self.block;
                let range = [&[0; 4][..], &blocks.to_le_bytes(), &start.to_le_bytes()].concat();
                (Raw::of(io::DATASET_MANAGEMENT, id, 1).with(44, &[4]), range)
            }
        };
        match data.len() {
            0 => self.host.io.send(&raw, &[]),
            length if length <= self.in_capsule => {
                let raw = raw.with_data(Sgl::InCapsule(0, length as u32));
                self.host.io.send(&raw, &data);
            }
            length => {
                self.host.io.data.insert(id, data);
                let raw = raw.with_data(Sgl::Transport(length as u32));
                self.host.io.send(&raw, &[]);
            }
        }
    }

    fn words_of_write(&mut self, tag: u32, offset: u64, data: &[u8]) -> Option<Vec<u8>> {
        let (id, length) = (self.host.io.id(), data.len() as u64);
        let raw = self.with_blocks(io::WRITE, id, offset, length);
        let raw = raw.with_data(Sgl::InCapsule(0, length as u32));
        self.asked.insert(id, tag);
        Some([&raw.capsule_before(data.len(), false, false)[..], data].concat())
    }

    fn say(&mut self, words: &[u8]) {
        // As in `submit`.
        let _ = self.host.io.socket.send(words, &[]);
    }

    fn answer(&mut self, within: Duration) -> Answer {
        if let Some(tag) = self.refused.pop() {
            return Answer::Done(tag, Err(Failure::Refused));
        }
        let completion = match self.host.io.completion(within) {
            Ok(completion) => completion,
            Err(Silence::Nothing) => return Answer::Nothing,
            Err(Silence::Disconnected) => return Answer::Disconnected,
        };
        let tag = self.asked.remove(&completion.command).expect("an answer to what was asked");
        let data = self.host.io.come.remove(&completion.command).unwrap_or_default();
        let result = match completion.status {
            Status::SUCCESS => Ok(data),
            Status::UNRECOVERED_READ | Status::WRITE_FAULT => Err(Failure::Io),
            _ => Err(Failure::Refused),
        };
        Answer::Done(tag, result)
    }
}
