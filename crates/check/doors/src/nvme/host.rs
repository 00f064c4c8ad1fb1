//! A host: connections that speak NVMe/TCP, one PDU after the other.

pub use crate::wire::Silence;
use crate::wire::Wire;
use braid_nvme::protocol::{
    COMPLETION_BYTES, Command, Completion, ConnectData, Crc32c, Initialize, Sgl, Status, admin,
};
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time that an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the host.
pub const HOST_NQN: &str = "nqn.2026-01.org.example:host";
const RESPONSE: u8 = 0x05;
const CONTROLLER_DATA: u8 = 0x07;
const READY: u8 = 0x09;
/// The type of the PDU with which a controller ends a connection.
pub const TERMINATED: u8 = 0x03;

/// The wishes of a host for its connections.
#[derive(Clone, Copy)]
pub struct Wishes {
    /// Headers with a CRC32C.
    pub header_digest: bool,
    /// Data with a CRC32C.
    pub data_digest: bool,
    /// Data begins at multiples of so many words of four bytes, less one.
    pub alignment: u8,
    /// It does not want to know the heads of queues.
    pub without_flow: bool,
    /// Milliseconds.
    pub keep_alive: u32,
}

impl Default for Wishes {
    fn default() -> Wishes {
        let (header_digest, data_digest) = (false, false);
        Wishes { header_digest, data_digest, alignment: 0, without_flow: false, keep_alive: 0 }
    }
}

/// A PDU.
pub struct Pdu {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its header, the common part included.
    pub header: Vec<u8>,
    /// Its data.
    pub data: Vec<u8>,
}

/// A connection.
pub struct Link {
    /// Its socket.
    pub socket: Wire,
    /// As it was initialised.
    pub wishes: Wishes,
    /// Data that the server may ask for, by command.
    pub data: HashMap<u16, Vec<u8>>,
    /// Data that has come, by command.
    pub come: HashMap<u16, Vec<u8>>,
    /// Completions that came without a capsule of their own.
    pub without_capsule: u64,
    /// Bytes of data in one PDU to the server.
    pub piece: usize,
    next: u16,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

impl Link {
    /// An initialised connection; `None` when the server closes it.
    pub fn new(socket: UnixStream, wishes: Wishes) -> Option<Link> {
        let wanted = Initialize {
            host_alignment: wishes.alignment,
            header_digest: wishes.header_digest,
            data_digest: wishes.data_digest,
            ready_max: 1,
        };
        let (data, come) = (HashMap::new(), HashMap::new());
        let (piece, socket) = (1 << 20, Wire::new(socket));
        let mut link = Link { socket, wishes, data, come, without_capsule: 0, piece, next: 0 };
        link.socket.send(&wanted.encode(), &[]).ok()?;
        let answer = link.bare(PATIENCE).ok()?;
        assert_eq!((answer.kind, answer.header.len()), (1, 128));
        assert_eq!(answer.header[11] & 1 != 0, wishes.header_digest);
        assert_eq!(answer.header[11] & 2 != 0, wishes.data_digest);
        assert!(word(&answer.header, 12) >= 4096);
        Some(link)
    }

    /// A number for a command.
    pub fn id(&mut self) -> u16 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Sends a command with data in its capsule.
    pub fn send(&mut self, command: &Command, data: &[u8]) {
        let Wishes { header_digest, data_digest, .. } = self.wishes;
        // A server that has left is noticed by what it answers.
        let head = command.capsule_before(data.len(), header_digest, data_digest);
        let _ = self.socket.send(&head, data);
        if data_digest && !data.is_empty() {
            let _ = self.socket.send(&Crc32c::of(data).to_le_bytes(), &[]);
        }
    }

    fn bare(&mut self, within: Duration) -> Result<Pdu, Silence> {
        let mut common = [0; 8];
        self.socket.begin(&mut common, within)?;
        let (header_bytes, offset) = (usize::from(common[2]), usize::from(common[3]));
        let length = word(&common, 4) as usize;
        // Up to the data, if there is any.
        let own_bytes = if offset > 0 { offset } else { length };
        let mut header = common.to_vec();
        header.resize(own_bytes, 0);
        self.socket.fill(&mut header[common.len()..])?;
        let behind = header.split_off(header_bytes);
        if common[1] & 1 != 0 {
            assert_eq!(word(&behind, 0), Crc32c::of(&header), "a header's digest");
        }
        let mut data = self.socket.data(length - own_bytes)?;
        if common[1] & 2 != 0 {
            let digest = data.split_off(data.len() - 4);
            assert_eq!(word(&digest, 0), Crc32c::of(&data), "the data's digest");
        }
        if offset > 0 {
            let unit = (usize::from(self.wishes.alignment) + 1) * 4;
            assert!(offset.is_multiple_of(unit), "data is where the host wants it");
        }
        Ok(Pdu { kind: common[0], flags: common[1], header, data })
    }

    /// The next PDU that is no data, and no demand for data: those are dealt with.
    pub fn pdu(&mut self, within: Duration) -> Result<Pdu, Silence> {
        loop {
            let pdu = self.bare(within)?;
            let command = half(&pdu.header, 8);
            match pdu.kind {
                READY => {
                    let (tag, length) = (half(&pdu.header, 10), word(&pdu.header, 16) as usize);
                    let data = self.data.remove(&command).expect("data that was promised");
                    assert_eq!((data.len(), word(&pdu.header, 12)), (length, 0));
                    let mut at = 0;
                    for piece in data.chunks(self.piece) {
                        let last = at + piece.len() == length;
                        self.send_data((command, tag), at as u32, piece, last);
                        at += piece.len();
                    }
                }
                CONTROLLER_DATA => {
                    self.come.insert(command, pdu.data);
                    if pdu.flags & 8 != 0 {
                        self.without_capsule += 1;
                        let completion =
                            Completion { result: 0, head: 0, command, status: Status::SUCCESS };
                        let header = [&[0; 8][..], &completion.encode()].concat();
                        return Ok(Pdu { kind: RESPONSE, flags: 0, header, data: Vec::new() });
                    }
                }
                _ => return Ok(pdu),
            }
        }
    }

    /// Data for a command, as the server has asked for it.
    pub fn send_data(&mut self, (command, tag): (u16, u16), at: u32, data: &[u8], last: bool) {
        let Wishes { header_digest, data_digest, .. } = self.wishes;
        let own = 24 + if header_digest { 4 } else { 0 };
        let bytes = own + data.len() + if data_digest { 4 } else { 0 };
        let flags = u8::from(header_digest) | u8::from(data_digest) << 1 | if last { 4 } else { 0 };
        let mut out = vec![0x06, flags, 24, own as u8];
        out.extend((bytes as u32).to_le_bytes());
        out.extend(command.to_le_bytes());
        out.extend(tag.to_le_bytes());
        out.extend(at.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        if header_digest {
            out.extend(Crc32c::of(&out).to_le_bytes());
        }
        // As in `send`.
        let _ = self.socket.send(&out, data);
        if data_digest {
            let _ = self.socket.send(&Crc32c::of(data).to_le_bytes(), &[]);
        }
    }

    /// The next completion.
    pub fn completion(&mut self, within: Duration) -> Result<Completion, Silence> {
        let pdu = self.pdu(within)?;
        if pdu.kind == TERMINATED {
            return Err(Silence::Disconnected);
        }
        assert_eq!(pdu.kind, RESPONSE);
        let bytes: [u8; COMPLETION_BYTES] = pdu.header[8..24].try_into().expect("16 bytes");
        Ok(Completion::decode(&bytes))
    }

    /// One command and its completion, with what it read.
    pub fn ask(&mut self, command: &Command, data: &[u8]) -> Option<(Completion, Vec<u8>)> {
        self.send(command, data);
        let completion = self.completion(PATIENCE).ok()?;
        assert_eq!(completion.command, command.id());
        Some((completion, self.come.remove(&command.id()).unwrap_or_default()))
    }

    /// Makes it queue `id` of a controller.
    pub fn connect(&mut self, data: &ConnectData, id: u16) -> Option<Completion> {
        let flow = if self.wishes.without_flow { 4 } else { 0 };
        let bytes = data.encode();
        let command = Command::of(admin::FABRICS, self.id(), 0)
            .with(4, &[1])
            .with(42, &id.to_le_bytes())
            .with(44, &63u16.to_le_bytes())
            .with(46, &[flow])
            .with(48, &self.wishes.keep_alive.to_le_bytes())
            .with_data(Sgl::InCapsule(0, bytes.len() as u32));
        self.ask(&command, &bytes).map(|(completion, _)| completion)
    }

    /// Sets a property of the controller.
    pub fn set_property(&mut self, at: u32, value: u64) -> Option<Status> {
        let command = Command::of(admin::FABRICS, self.id(), 0)
            .with(4, &[0])
            .with(44, &at.to_le_bytes())
            .with(48, &value.to_le_bytes());
        self.ask(&command, &[]).map(|(completion, _)| completion.status)
    }

    /// A property of the controller.
    pub fn property(&mut self, at: u32, wide: bool) -> Option<u64> {
        let command = Command::of(admin::FABRICS, self.id(), 0)
            .with(4, &[4, 0, 0, 0])
            .with(40, &[u8::from(wide)])
            .with(44, &at.to_le_bytes());
        self.ask(&command, &[]).map(|(completion, _)| completion.result)
    }

    /// An Identify data structure.
    pub fn identify(&mut self, kind: u8, namespace: u32) -> Option<(Status, Vec<u8>)> {
        let command = Command::of(admin::IDENTIFY, self.id(), namespace)
            .with(40, &[kind])
            .with_data(Sgl::Transport(4096));
        self.ask(&command, &[]).map(|(completion, page)| (completion.status, page))
    }

    /// A log page.
    pub fn log(&mut self, page: u8, offset: u64, bytes: u32) -> Option<(Status, Vec<u8>)> {
        let dwords = bytes / 4 - 1;
        let command = Command::of(admin::GET_LOG_PAGE, self.id(), u32::MAX)
            .with(40, &[page])
            .with(42, &(dwords as u16).to_le_bytes())
            .with(44, &((dwords >> 16) as u16).to_le_bytes())
            .with(48, &offset.to_le_bytes())
            .with_data(Sgl::Transport(bytes));
        self.ask(&command, &[]).map(|(completion, page)| (completion.status, page))
    }

    /// Sets a feature; gives the result.
    pub fn set_feature(&mut self, feature: u8, value: u32) -> Option<(Status, u64)> {
        let command = Command::of(admin::SET_FEATURES, self.id(), 0)
            .with(40, &[feature])
            .with(44, &value.to_le_bytes());
        self.ask(&command, &[]).map(|(completion, _)| (completion.status, completion.result))
    }
}

/// The names that a host connects with.
pub fn names(subsystem: &str) -> ConnectData {
    ConnectData {
        host_id: [7; 16],
        controller: 0xffff,
        subsystem: subsystem.to_owned(),
        host: HOST_NQN.to_owned(),
    }
}

/// A controller that is enabled, with one I/O queue.
pub struct Host {
    /// The admin queue.
    pub admin: Link,
    /// The I/O queue.
    pub io: Link,
    /// The names that both connected with.
    pub names: ConnectData,
}

impl Host {
    /// `None` when the server turns it away.
    pub fn connect(socket: &Path, subsystem: &str, wishes: Wishes) -> Option<Host> {
        let mut admin = Link::new(UnixStream::connect(socket).ok()?, wishes)?;
        let mut names = names(subsystem);
        let connected = admin.connect(&names, 0)?;
        if !connected.status.is_success() {
            return None;
        }
        names.controller = connected.result as u16;
        // Entries of 64 and 16 bytes, and on.
        assert_eq!(admin.set_property(0x14, 6 << 16 | 4 << 20 | 1)?, Status::SUCCESS);
        assert_eq!(admin.property(0x1c, false)? & 1, 1);
        let (status, granted) = admin.set_feature(7, 0)?;
        assert_eq!((status, granted), (Status::SUCCESS, 0));
        let mut io = Link::new(UnixStream::connect(socket).ok()?, wishes)?;
        let joined = io.connect(&names, 1)?;
        joined.status.is_success().then_some(Host { admin, io, names })
    }
}
