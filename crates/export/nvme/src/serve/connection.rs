//! One connection: its initialisation, its Connect command, and then commands and data until it ends.
//!
//! Owns the order of a connection's life and the hand-over of payloads between socket and commands. Invariant: every request
//! that a device was given is waited for.

use super::admin::Admin;
use super::authentication::Authentication;
use super::controller::{Controller, Joined};
use super::execute;
use super::limits::REQUEST_BYTES_MAX;
use super::queue::{Answer, Queue, Token};
use super::subsystems::{RefusedHost, Subsystems};
use super::watch::watch;
use super::work::Work;
use super::writer::{Whose, Writer};
use crate::protocol::authentication::SECURITY_PROTOCOL;
use crate::protocol::identify::QUEUE_ENTRIES;
use crate::protocol::{
    Command, ConnectData, Crc32c, DIGEST_BYTES, Decoder, Direction, Encoder, Event, Fabrics,
    FatalError, Initialize, InitializeAnswer, MAX_IN_ADMIN_CAPSULE, MAX_IN_CAPSULE, Payload, Sgl,
    Status, Violation,
};
use braid_device::{BufMuts, OpenError};
use braid_export::deadline::Deadline;
use braid_export::memory::{Account, Shared};
use braid_export::stream::{Outgoing, Receiver, Stream};
use braid_export::{Connected, Connections, Disk, Hold};
use braid_shard::{BufMut, Shard};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// The log says so when a host's time for that is over.
const LATE: &str = "NVMe host did not connect to a subsystem, or prove its name,";
/// Bytes of the PDU that comes before data in a capsule, without a digest.
const HEAD_BYTES: usize = 72;
/// Connect: the host must authenticate itself now.
const AUTHENTICATION_WANTED: u32 = 1 << 17;
/// Bytes of the largest message of an authentication, in either direction.
const AUTHENTICATION_BYTES_MAX: u32 = 64 << 10;
/// Connect: the host does not want to know the head of the submission queue.
const WITHOUT_FLOW: u8 = 1 << 2;

/// Why a connection ended other than by the host's wish.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}; it is disconnected")]
    Violation(#[from] Violation),
    #[error("an NVMe host went away in the middle of a message")]
    Cut,
    #[error("receiving from an NVMe host: {0}")]
    Receive(#[from] io::Error),
    #[error("an NVMe host ended its connection for an error that it has found: status {0}")]
    Terminated(u16),
    #[error("{0}; the NVMe host that asked for it is disconnected")]
    Open(#[from] OpenError),
    #[error("shard {0} has no io_uring, so it cannot serve sockets: start shards with a ring")]
    NoRing(u16),
}

/// The kind of a connection.
enum Role {
    /// Nothing yet, until the clock ends it.
    Fresh(Deadline),
    Admin(Rc<Admin>),
    Io(Rc<Disk>, #[allow(dead_code)] Joined),
}

struct Reader<'a> {
    shard: Shard,
    stream: Rc<Stream>,
    receiver: Receiver,
    decoder: Decoder,
    queue: Rc<Queue>,
    role: Role,
    /// The proof that the host owes or has given, and the deadline for it.
    proof: Option<(Authentication, Option<Deadline>)>,
    controller: Rc<Whose>,
    connected: &'a Connected,
    subsystems: Arc<Subsystems>,
}

/// Serves a connected socket until its host leaves, breaks a rule, what it uses is offered no longer, or the server stops.
pub(super) async fn serve(
    shard: Shard,
    fd: OwnedFd,
    connected: &Connected,
    subsystems: Arc<Subsystems>,
    memory: Arc<Shared>,
) -> Result<(), ConnectionError> {
    let stream = Stream::new(&shard, fd).ok_or(ConnectionError::NoRing(shard.id()))?;
    let stream = Rc::new(stream);
    let mut receiver = Receiver::new(&stream, HEAD_BYTES);
    let clock = Deadline::start(&shard, &stream, subsystems.limits().handshake, LATE);
    let mut decoder = Decoder::new();
    let wishes = initialize(&stream, &mut receiver, &mut decoder).await;
    let Some(wishes) = wishes? else { return Ok(()) };
    let account = || {
        let ended = Rc::downgrade(&stream);
        Account::open(&memory, &shard, move || {
            if let Some(stream) = ended.upgrade() {
                stream.shutdown();
            }
        })
    };
    let queue = Queue::new(&shard, (account(), account()), Encoder::new(&wishes));
    let controller = Rc::default();
    let writer = Writer {
        queue: Rc::clone(&queue),
        stream: Rc::clone(&stream),
        controller: Rc::clone(&controller),
    };
    shard.spawn(writer.run());
    let role = Role::Fresh(clock);
    let mut reader = Reader {
        shard,
        stream,
        receiver,
        decoder,
        queue,
        role,
        proof: None,
        controller,
        connected,
        subsystems,
    };
    let result = reader.run().await;
    if let Some((proof, _)) = &mut reader.proof {
        proof.ended();
    }
    if let Err(ConnectionError::Violation(violation)) = &result {
        let mut words = Vec::new();
        Encoder::terminate(violation, &mut words);
        reader.queue.terminate(words);
    }
    reader.queue.close();
    reader.queue.finished().await;
    reader.stream.shutdown();
    result
}

/// Exchanges the first PDUs; `None` when the host leaves.
async fn initialize(
    stream: &Rc<Stream>,
    receiver: &mut Receiver,
    decoder: &mut Decoder,
) -> Result<Option<Initialize>, ConnectionError> {
    let mut out = Outgoing::new();
    loop {
        match receiver.take(|input| decoder.step(input)) {
            Ok(Event::NeedMore) => {
                if !receiver.fill().await? {
                    let cut = !decoder.at_boundary();
                    return if cut { Err(ConnectionError::Cut) } else { Ok(None) };
                }
            }
            Ok(Event::Initialize(wishes)) => {
                let answer = InitializeAnswer {
                    header_digest: wishes.header_digest,
                    data_digest: wishes.data_digest,
                    host_data_max: REQUEST_BYTES_MAX as u32,
                };
                out.heads().extend(answer.encode());
                out.send(stream).await?;
                decoder.set_digests(wishes.header_digest, wishes.data_digest);
                if wishes.header_digest {
                    receiver.set_head_bytes(HEAD_BYTES + DIGEST_BYTES);
                }
                return Ok(Some(wishes));
            }
            Ok(Event::Terminated(status)) => return Err(ConnectionError::Terminated(status)),
            // The decoder gives nothing else before that.
            Ok(Event::Command(..) | Event::Data { .. }) => return Ok(None),
            Err(violation) => {
                Encoder::terminate(&violation, out.heads());
                // Who broke a rule may not listen.
                let _ = out.send(stream).await;
                return Err(violation.into());
            }
        }
    }
}

impl Reader<'_> {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        loop {
            match self.receiver.take(|input| self.decoder.step(input))? {
                Event::NeedMore => {
                    if !self.receiver.fill().await? {
                        let cut = !self.decoder.at_boundary();
                        return if cut { Err(ConnectionError::Cut) } else { Ok(()) };
                    }
                }
                Event::Command(command, payload) => {
                    if !self.command(command, payload).await? {
                        return Ok(());
                    }
                }
                Event::Data { command, tag, offset, payload, .. } => {
                    let mut part = self.queue.part((command, tag), offset, payload.length)?;
                    part.piece = self.receive(part.piece).await?;
                    let damaged = self.is_damaged(&part.piece, payload).await?;
                    if let Some(token) = self.queue.filled(part, damaged) {
                        self.go_on(token);
                    }
                }
                Event::Terminated(status) => return Err(ConnectionError::Terminated(status)),
                // The decoder gives it once.
                Event::Initialize(_) => return Ok(()),
            }
        }
    }

    async fn receive(&mut self, into: BufMut) -> Result<BufMut, ConnectionError> {
        self.receiver.read_into(into).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ConnectionError::Cut,
            _ => ConnectionError::Receive(error),
        })
    }

    /// Takes the digest behind data; true when it is another's.
    async fn is_damaged(&mut self, data: &[u8], payload: Payload) -> Result<bool, ConnectionError> {
        if !payload.digest {
            return Ok(false);
        }
        let (mut digest, mut have) = ([0; DIGEST_BYTES], 0);
        loop {
            self.receiver.take(|input| {
                let (piece, rest) = input.split_at(input.len().min(DIGEST_BYTES - have));
                digest[have..have + piece.len()].copy_from_slice(piece);
                have += piece.len();
                *input = rest;
            });
            if have == DIGEST_BYTES {
                break;
            }
            if !self.receiver.fill().await? {
                return Err(ConnectionError::Cut);
            }
        }
        Ok(Crc32c::of(data) != u32::from_le_bytes(digest))
    }

    /// False when the connection is to end.
    async fn command(
        &mut self,
        command: Command,
        payload: Payload,
    ) -> Result<bool, ConnectionError> {
        let most = self.in_capsule_max();
        if payload.length > most {
            let why = "more data in a capsule than may be here";
            return Err(Decoder::wrong_data(FatalError::InvalidHeader, 4, why).into());
        }
        let token = self.queue.admit(command)?;
        if payload.length > 0 {
            if !self.queue.room_in_capsule(token, payload.length).await {
                return Ok(false);
            }
            let buf = self.shard.pool().get(payload.length as usize);
            self.queue.comes(payload.length);
            let buf = self.receive(buf).await?;
            let damaged = self.is_damaged(&buf, payload).await?;
            self.queue.came(token, buf, damaged);
        }
        let told = match command.sgl() {
            Sgl::InCapsule(_, length) => length,
            _ => 0,
        };
        let fits = told == payload.length;
        match &self.role {
            _ if !fits => self.refuse(token, Status::INVALID_SGL_LENGTH),
            Role::Fresh(_) => self.connect(token, &command)?,
            _ if self.proof.is_some() && is_authentication(&command) => {
                return Ok(self.authenticate(token, &command).await);
            }
            _ if self.proof.as_ref().is_some_and(|(proof, _)| !proof.has_passed()) => {
                self.refuse(token, Status::AUTHENTICATION_REQUIRED);
            }
            Role::Admin(_) => match Admin::bytes_of(&command) {
                Ok(bytes) => {
                    self.queue.plan(token, Work::Admin, bytes);
                    self.offer(token);
                }
                Err(status) => self.refuse(token, status),
            },
            Role::Io(disk, _) => match execute::plan(disk, &command) {
                Ok((work, bytes)) => {
                    self.queue.plan(token, work, bytes);
                    self.offer(token);
                }
                Err(status) => self.refuse(token, status),
            },
        }
        Ok(true)
    }

    /// Bytes of data that a command may carry: little until the connection is an I/O queue of a host that may have one.
    fn in_capsule_max(&self) -> u32 {
        let proved = self.proof.as_ref().is_none_or(|(proof, _)| proof.has_passed());
        match self.role {
            Role::Io(..) if proved => MAX_IN_CAPSULE,
            _ => MAX_IN_ADMIN_CAPSULE,
        }
    }

    fn offer(&self, token: Token) {
        if self.queue.may_start(token) {
            start(&self.queue, &self.role.worker(), token);
        }
    }

    fn go_on(&self, token: Token) {
        match &self.role {
            Role::Io(disk, _) => execute::go_on(&self.queue, disk, token),
            Role::Admin(admin) => with_data(&self.queue, admin, token),
            Role::Fresh(_) => {}
        }
    }

    fn refuse(&self, token: Token, status: Status) {
        match self.role {
            Role::Io(..) => {
                self.queue.start(token);
                self.queue.figures.borrow().began();
                self.queue.answer(token, Answer::Device(Err(status), BufMuts::new()));
            }
            _ => self.queue.answer(token, Answer::Admin(status, 0, Vec::new())),
        }
    }

    /// Goes on with the exchange in which the host proves its name. False when it has failed.
    async fn authenticate(&mut self, token: Token, command: &Command) -> bool {
        let Some((proof, clock)) = &mut self.proof else { return true };
        let (bytes, told) = (command_bytes(command), command.dword(11));
        let protocol = [command.byte(41), command.byte(42), command.byte(43)];
        self.queue.plan(token, Work::Admin, bytes);
        let mut goes_on = true;
        let answer =
            if protocol != SECURITY_PROTOCOL || told != bytes || bytes > AUTHENTICATION_BYTES_MAX {
                Err(Status::INVALID_FIELD)
            } else if command.direction() == Direction::In {
                match self.queue.take_data(token) {
                    // Messages are small: they come with their commands.
                    None => Err(Status::INVALID_SGL_TYPE),
                    Some((_, true)) => Err(Status::TRANSIENT_TRANSPORT),
                    Some((message, false)) => {
                        goes_on = !proof.came(&self.shard, &message).await;
                        Ok(Vec::new())
                    }
                }
            } else {
                proof.asked(bytes as usize).map(|told| {
                    goes_on = !told.last;
                    let mut message = told.message;
                    message.resize(bytes as usize, 0);
                    message
                })
            };
        if proof.has_passed() {
            *clock = None;
        }
        let (status, data) = match answer {
            Ok(data) => (Status::SUCCESS, data),
            Err(status) => (status, Vec::new()),
        };
        self.queue.answer(token, Answer::Admin(status, 0, data));
        goes_on
    }

    /// Makes the connection a queue of a host that must prove its name first, if it has a secret.
    fn takes(&mut self, role: Role, controller: &Controller, entries: (u16, bool)) -> u32 {
        let before = std::mem::replace(&mut self.role, role);
        self.became_a_queue(entries);
        let secrets = self.subsystems.limits().secrets.get(&controller.host);
        // What is offered here is told without a proof.
        let Some(secrets) = secrets.filter(|_| controller.subject.is_some()) else { return 0 };
        let clock = if let Role::Fresh(clock) = before { Some(clock) } else { None };
        let proof = Authentication::new(secrets.clone(), &controller.host, &controller.subsystem);
        self.proof = Some((proof, clock));
        AUTHENTICATION_WANTED
    }

    /// Makes the connection a queue.
    fn connect(&mut self, token: Token, command: &Command) -> Result<(), ConnectionError> {
        if command.fabrics() != Some(Fabrics::Connect) {
            self.refuse(token, Status::COMMAND_SEQUENCE);
            return Ok(());
        }
        let answer = match self.connected_by(token, command)? {
            Ok(id) => Answer::Admin(Status::SUCCESS, id.into(), Vec::new()),
            Err(RefusedHost(status, at)) => Answer::Admin(status, at.into(), Vec::new()),
        };
        self.queue.answer(token, answer);
        Ok(())
    }

    fn connected_by(
        &mut self,
        token: Token,
        command: &Command,
    ) -> Result<Result<u32, RefusedHost>, ConnectionError> {
        let wrong = |at| Ok(Err(RefusedHost(Status::CONNECT_INVALID_PARAMETERS, at)));
        let bytes = command_bytes(command);
        self.queue.plan(token, Work::Admin, bytes);
        let Some((data, false)) = self.queue.take_data(token) else {
            return Ok(Err(RefusedHost(Status::INVALID_FIELD, 0)));
        };
        let data = match ConnectData::decode(&data) {
            Ok(data) => data,
            Err(at) => return wrong(1 << 16 | u32::from(at)),
        };
        let (format, id, entries) = (command.half(40), command.half(42), command.half(44));
        if format != 0 {
            return Ok(Err(RefusedHost(Status::CONNECT_INCOMPATIBLE_FORMAT, 0)));
        }
        if entries == 0 || entries >= QUEUE_ENTRIES {
            return wrong(44);
        }
        let without_flow = command.byte(46) & WITHOUT_FLOW != 0;
        let socket = self.connected.socket();
        if id == 0 {
            let local = rustix::net::getsockname(&*socket).ok();
            let local = local.and_then(|local| SocketAddr::try_from(local).ok());
            let attached = match self.subsystems.attach(data, socket) {
                Ok(attached) => attached,
                Err(refused) => return Ok(Err(refused)),
            };
            let controller = Arc::clone(&attached.controller);
            let keep_alive = (command.dword(12), self.shard.now());
            let admin = Rc::new(Admin::new(attached, &self.subsystems, local, keep_alive));
            let weak = (Rc::downgrade(&self.queue), Rc::downgrade(&admin));
            self.shard.spawn(watch(self.shard.clone(), weak.0, weak.1));
            let wanted = self.takes(Role::Admin(admin), &controller, (entries, without_flow));
            return Ok(Ok(u32::from(controller.id) | wanted));
        }
        let controller = match self.subsystems.find(&data) {
            Ok(controller) => controller,
            Err(refused) => return Ok(Err(refused)),
        };
        // A discovery controller has no I/O queues.
        let Some(subject) = controller.subject.clone() else { return wrong(42) };
        let joined = match controller.join(id, socket) {
            Ok(joined) => joined,
            Err(status) => return Ok(Err(RefusedHost(status, 42))),
        };
        let disk = Disk::open(&subject.target, &self.shard)?;
        *self.queue.figures.borrow_mut() = Arc::clone(&joined.figures);
        *self.controller.borrow_mut() = Some((Arc::clone(&joined.controller), id));
        let role = Role::Io(Rc::new(disk), joined);
        let wanted = self.takes(role, &controller, (entries, without_flow));
        let held = Rc::clone(&self.queue) as Rc<dyn Hold>;
        Connections::enter(&self.shard, self.connected.register(), &held);
        Ok(Ok(u32::from(controller.id) | wanted))
    }

    fn became_a_queue(&self, (entries, without_flow): (u16, bool)) {
        self.queue.connect(entries + 1, without_flow);
        self.connected.count_no_longer();
        let (queue, worker) = (Rc::clone(&self.queue), self.role.worker());
        self.shard.spawn(async move {
            while let Some(token) = queue.next().await {
                start(&queue, &worker, token);
            }
        });
    }
}

/// A message of an authentication, or a request for one.
fn is_authentication(command: &Command) -> bool {
    matches!(command.fabrics(), Some(Fabrics::AuthSend | Fabrics::AuthReceive))
}

/// The bytes of data that a command tells, whatever the way.
fn command_bytes(command: &Command) -> u32 {
    match command.sgl() {
        Sgl::InCapsule(_, bytes) | Sgl::Transport(bytes) => bytes,
        Sgl::Other(_) => 0,
    }
}

/// The part of a role that carries out commands.
enum Worker {
    Nobody,
    Admin(std::rc::Weak<Admin>),
    Io(Rc<Disk>),
}

impl Role {
    fn worker(&self) -> Worker {
        match self {
            Role::Fresh(_) => Worker::Nobody,
            Role::Admin(admin) => Worker::Admin(Rc::downgrade(admin)),
            Role::Io(disk, _) => Worker::Io(Rc::clone(disk)),
        }
    }
}

/// Starts a command whose memory is there.
fn start(queue: &Rc<Queue>, worker: &Worker, token: Token) {
    match worker {
        Worker::Io(disk) => execute::start(queue, disk, token),
        Worker::Admin(admin) => {
            let (Some(admin), Some((command, _, bytes))) = (admin.upgrade(), queue.command(token))
            else {
                return;
            };
            if command.direction() == Direction::In && bytes > 0 {
                match command.sgl() {
                    Sgl::Transport(_) => queue.ask_for_data(token),
                    _ => with_data(queue, &admin, token),
                }
            } else {
                admin.handle(queue, token, &command, bytes);
            }
        }
        Worker::Nobody => {}
    }
}

fn with_data(queue: &Rc<Queue>, admin: &Rc<Admin>, token: Token) {
    let Some((command, _, bytes)) = queue.command(token) else { return };
    match queue.take_data(token) {
        Some((_, false)) => admin.handle(queue, token, &command, bytes),
        _ => queue.answer(token, Answer::Admin(Status::TRANSIENT_TRANSPORT, 0, Vec::new())),
    }
}
