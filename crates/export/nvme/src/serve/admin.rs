//! Admin commands of a controller: properties, identification, logs, features, events.
//!
//! Each is answered at once, Async Event Requests aside, which wait for an event.

use super::execute::{ALL_NAMESPACES, NAMESPACE};
use super::limits::QUEUES_MAX;
use super::queue::{Answer, Queue, Token};
use super::subsystems::{Attached, Subsystems};
use crate::protocol::identify::{
    self, EVENT_DISCOVERY, EVENT_NAMESPACE, EVENTS_MAX, IDENTIFY_BYTES, KEEP_ALIVE_UNIT,
    QUEUE_ENTRIES, VERSION,
};
use crate::protocol::log::{self, DiscoveryEntry, id};
use crate::protocol::{Command, DISCOVERY_NQN, Fabrics, Sgl, Status, admin, feature};
use braid_device::TargetInfo;
use braid_shard::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Properties of a controller (Base 2.0, figure 35).
const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const CRTO: u32 = 0x68;
/// Time that a host gives a controller to become ready, in units of half a second.
const READY_TIME: u64 = 10;
/// The longest keep alive time, in milliseconds: an hour.
const KEEP_ALIVE_MAX: u32 = 3_600_000;

/// A result, with data for the host.
type Done = Result<(u64, Vec<u8>), Status>;

/// See the module's documentation.
pub(super) struct Admin {
    pub attached: Attached,
    subsystems: Arc<Subsystems>,
    /// The address that the host has connected to.
    local: Option<SocketAddr>,
    configuration: Cell<u32>,
    /// Keep alive time in milliseconds, 0 without one.
    keep_alive: Cell<u32>,
    heard: Cell<Nanos>,
    event_mask: Cell<u32>,
    parked: RefCell<VecDeque<Token>>,
    /// Something has happened that the host was not told of.
    due: Cell<bool>,
    /// The host was told, and has not looked yet.
    told: Cell<bool>,
    /// The namespace has changed since the host has read the log.
    changed: Cell<bool>,
    size: Cell<u64>,
    generation: Cell<u64>,
}

impl Admin {
    pub fn new(
        attached: Attached,
        subsystems: &Arc<Subsystems>,
        local: Option<SocketAddr>,
        (keep_alive, now): (u32, Nanos),
    ) -> Admin {
        let generation = subsystems.generation();
        let admin = Admin {
            attached,
            subsystems: Arc::clone(subsystems),
            local,
            configuration: Cell::new(0),
            keep_alive: Cell::new(keep_alive.min(KEEP_ALIVE_MAX)),
            heard: Cell::new(now),
            event_mask: Cell::new(0),
            parked: RefCell::default(),
            due: Cell::new(false),
            told: Cell::new(false),
            changed: Cell::new(false),
            size: Cell::new(0),
            generation: Cell::new(generation),
        };
        admin.size.set(admin.info().map_or(0, |info| info.device.size));
        admin
    }

    fn info(&self) -> Option<TargetInfo> {
        self.attached.controller.subject.as_ref().map(|subject| subject.target.info())
    }

    fn is_discovery(&self) -> bool {
        self.attached.controller.subject.is_none()
    }

    /// Bytes that a command moves.
    ///
    /// # Errors
    /// Data that cannot be moved like this.
    pub fn bytes_of(command: &Command) -> Result<u32, Status> {
        let bytes = match command.sgl() {
            Sgl::InCapsule(0, bytes) | Sgl::Transport(bytes) => bytes,
            // Commands without data say nothing here.
            Sgl::Other(0) => 0,
            Sgl::InCapsule(..) => return Err(Status::INVALID_SGL_LENGTH),
            Sgl::Other(_) => return Err(Status::INVALID_SGL_TYPE),
        };
        let largest = super::limits::REQUEST_BYTES_MAX;
        if u64::from(bytes) <= largest { Ok(bytes) } else { Err(Status::INVALID_FIELD) }
    }

    /// Carries out a command whose memory is there, and whose data has come.
    pub fn handle(&self, queue: &Queue, token: Token, command: &Command, bytes: u32) {
        self.heard.set(queue.shard.now());
        if command.opcode() == admin::ASYNC_EVENT_REQUEST {
            return self.await_event(queue, token);
        }
        let done = match command.opcode() {
            admin::FABRICS => self.fabrics(command),
            admin::IDENTIFY => self.identify(command),
            admin::GET_LOG_PAGE => self.log_page(queue, command, bytes),
            admin::SET_FEATURES => self.set_feature(command),
            admin::GET_FEATURES => self.feature(command),
            admin::KEEP_ALIVE => Ok((0, Vec::new())),
            // Commands here end by themselves: it was too late to abort one.
            admin::ABORT => Ok((1, Vec::new())),
            _ => Err(Status::INVALID_OPCODE),
        };
        let answer = match done {
            Ok((result, mut data)) => {
                // The host's buffer is what it says, whatever there is to tell.
                data.resize(if data.is_empty() { 0 } else { bytes as usize }, 0);
                Answer::Admin(Status::SUCCESS, result, data)
            }
            Err(status) => Answer::Admin(status, 0, Vec::new()),
        };
        queue.answer(token, answer);
        self.tell(queue);
    }

    fn fabrics(&self, command: &Command) -> Done {
        match command.fabrics() {
            Some(Fabrics::PropertyGet) => self.property(command),
            Some(Fabrics::PropertySet) => self.set_property(command),
            // The queue is connected already.
            Some(Fabrics::Connect) => Err(Status::COMMAND_SEQUENCE),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn property(&self, command: &Command) -> Done {
        let wide = command.byte(40) & 7 == 1;
        let value = match (command.dword(11), wide) {
            (CAP, true) => {
                // Entries of a queue, queues must be contiguous, the time to become ready, the NVM command set, and that
                // it is ready with its media.
                let entries = u64::from(QUEUE_ENTRIES) - 1;
                entries | 1 << 16 | READY_TIME << 24 | 1 << 37 | 1 << 59
            }
            (VS, false) => VERSION.into(),
            (CC, false) => self.configuration.get().into(),
            (CSTS, false) => {
                let ready = u64::from(self.configuration.get() & 1);
                let is_shut_down = self.configuration.get() >> 14 & 3 != 0;
                ready | if is_shut_down { 2 << 2 } else { 0 }
            }
            (CRTO, false) => READY_TIME,
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok((value, Vec::new()))
    }

    fn set_property(&self, command: &Command) -> Done {
        let narrow = command.byte(40) & 7 == 0;
        if command.dword(11) != CC || !narrow {
            return Err(Status::INVALID_FIELD);
        }
        let value = command.quad(48) as u32;
        // Another command set than NVM, or larger pages.
        if value & 1 != 0 && value >> 4 & 0x7f != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let before = self.configuration.replace(value);
        if (before ^ value) & 1 != 0 {
            self.attached.controller.enable(value & 1 != 0);
        }
        Ok((0, Vec::new()))
    }

    fn identify(&self, command: &Command) -> Done {
        let controller = &self.attached.controller;
        let kind = command.dword(10) as u8;
        let from = (command.dword(10) >> 16) as u16;
        let command_set = (command.dword(11) >> 24) as u8;
        let namespace = command.namespace();
        let Some((subject, info)) = controller.subject.as_ref().zip(self.info()) else {
            // Discovery only.
            return match kind {
                0x01 => Ok((0, self.identify_controller())),
                _ => Err(Status::INVALID_FIELD),
            };
        };
        let known = namespace == NAMESPACE;
        let page = match kind {
            0x01 => self.identify_controller(),
            0x00 | 0x11 if known || namespace == ALL_NAMESPACES => {
                let device = &info.device;
                let block = device.logical_block;
                identify::namespace(&identify::Namespace {
                    size: device.size,
                    block,
                    physical_block: device.physical_block,
                    optimal: device.optimal_io,
                    read_only: info.read_only,
                })
            }
            // Namespaces that are active, or allocated.
            0x02 | 0x10 if namespace < ALL_NAMESPACES - 1 => {
                identify::list(&[NAMESPACE], namespace)
            }
            0x03 if known => identify::descriptors(&subject.uuid),
            // What the command set adds: nothing beside the limits of the controller.
            0x05 if known && command_set == 0 => identify::nothing(),
            0x06 if command_set == 0 => identify::nothing(),
            0x12 if known => identify::controllers(&self.ids(), from),
            0x13 => identify::controllers(&self.ids(), from),
            // The command sets that there are: the first combination has NVM.
            0x1c => {
                let mut page = identify::nothing();
                page.splice(..1, [1]);
                page
            }
            0x00 | 0x02 | 0x03 | 0x05 | 0x10 | 0x11 | 0x12 => {
                return Err(Status::INVALID_NAMESPACE);
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        debug_assert_eq!(page.len(), IDENTIFY_BYTES);
        Ok((0, page))
    }

    fn ids(&self) -> Vec<u16> {
        self.subsystems.ids(&self.attached.controller.subsystem)
    }

    fn identify_controller(&self) -> Vec<u8> {
        let controller = &self.attached.controller;
        let subject = controller.subject.as_ref();
        let uuid = subject.map(|subject| uuid::Uuid::from_bytes(subject.uuid));
        let serial = uuid.map_or_else(|| "discovery".into(), |uuid| uuid.simple().to_string());
        let model = subject.map_or("braid discovery".into(), |one| format!("braid {}", one.name));
        identify::controller(&identify::Controller {
            id: controller.id,
            discovery: self.is_discovery(),
            serial: &serial,
            model: &model,
            firmware: env!("CARGO_PKG_VERSION"),
            subsystem: &controller.subsystem,
            discards: self.info().is_some_and(|info| info.device.discards && !info.read_only),
        })
    }

    fn log_page(&self, queue: &Queue, command: &Command, bytes: u32) -> Done {
        let dwords =
            u64::from(command.dword(10) >> 16) | u64::from(command.dword(11) & 0xffff) << 16;
        let (length, offset) = ((dwords + 1) * 4, command.quad(48));
        if length > u64::from(bytes) {
            return Err(Status::INVALID_SGL_LENGTH);
        }
        let page_id = command.dword(10) as u8;
        // The host does not want the event to be forgotten.
        let retains = command.dword(10) & 1 << 15 != 0;
        let controller = &self.attached.controller;
        let discovery = self.is_discovery();
        let page = match page_id {
            id::SUPPORTED => log::supported(discovery),
            id::ERRORS => log::errors(&controller.errors().0, identify::ERRORS_MAX),
            id::HEALTH => {
                let traffic = controller.traffic();
                log::health(traffic.read_bytes, traffic.written_bytes, controller.errors().1)
            }
            id::FIRMWARE => log::firmware(env!("CARGO_PKG_VERSION")),
            id::COMMANDS => {
                let info = self.info();
                log::commands(discovery, info.is_some_and(|info| info.device.discards))
            }
            id::FEATURES => log::features(discovery),
            id::CHANGED_NAMESPACES if !discovery => {
                let changed = self.changed.get();
                if !retains {
                    self.changed.set(false);
                    self.told.set(false);
                }
                log::changed(if changed { &[NAMESPACE] } else { &[] })
            }
            id::ANA if !discovery => {
                let groups_only = command.dword(10) & 1 << 8 != 0;
                log::ana(&[NAMESPACE], groups_only)
            }
            id::DISCOVERY if discovery => {
                if !retains {
                    self.told.set(false);
                }
                self.discovery()
            }
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(rest) = page.get(start..) else { return Err(Status::INVALID_FIELD) };
        let mut data = rest.get(..length as usize).unwrap_or(rest).to_vec();
        // At least a byte, so that it counts as data.
        data.resize(length as usize, 0);
        self.tell(queue);
        Ok((0, data))
    }

    fn discovery(&self) -> Vec<u8> {
        let generation = self.subsystems.generation();
        // Over a unix socket nothing has an address that another host could use.
        let Some(address) = self.local else { return log::discovery(generation, &[]) };
        let itself = DiscoveryEntry { subsystem: DISCOVERY_NQN.into(), address, discovery: true };
        let all = self.subsystems.all().into_iter();
        let others = all.map(|subsystem| DiscoveryEntry { subsystem, address, discovery: false });
        let entries: Vec<DiscoveryEntry> = std::iter::once(itself).chain(others).collect();
        log::discovery(generation, &entries)
    }

    fn set_feature(&self, command: &Command) -> Done {
        if command.dword(10) & 1 << 31 != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let value = command.dword(11);
        let result = match command.dword(10) as u8 {
            feature::NUMBER_OF_QUEUES if !self.is_discovery() => {
                let (submission, completion) = (value & 0xffff, value >> 16);
                if submission == 0xffff || completion == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                // A connection is both.
                let asked = submission.min(completion) + 1;
                let granted = asked.min(QUEUES_MAX.into());
                self.attached.controller.grant(granted as u16);
                self.queues()
            }
            feature::KEEP_ALIVE => {
                let rounded = u64::from(value).next_multiple_of(KEEP_ALIVE_UNIT);
                self.keep_alive.set((rounded as u32).min(KEEP_ALIVE_MAX));
                0
            }
            feature::ASYNC_EVENTS => {
                let known = if self.is_discovery() { EVENT_DISCOVERY } else { EVENT_NAMESPACE };
                self.event_mask.set(value & known);
                0
            }
            feature::HOST_BEHAVIOR if !self.is_discovery() => 0,
            // Hints, and what there is one value of.
            feature::ARBITRATION | feature::TEMPERATURE | feature::WRITE_ATOMICITY
                if !self.is_discovery() =>
            {
                0
            }
            feature::POWER_MANAGEMENT if value & 0x1f == 0 && !self.is_discovery() => 0,
            feature::VOLATILE_WRITE_CACHE | feature::HOST_ID => {
                return Err(Status::FEATURE_NOT_CHANGEABLE);
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok((result, Vec::new()))
    }

    /// The I/O queues that were granted, as both kinds of queues, counted from 0.
    fn queues(&self) -> u64 {
        let last = u64::from(self.attached.controller.granted().saturating_sub(1));
        last | last << 16
    }

    fn feature(&self, command: &Command) -> Done {
        let controller = &self.attached.controller;
        // What could be set: nothing is saved, so only the values now differ from the others.
        let supported_only = command.dword(10) >> 8 & 7 == 3;
        if supported_only {
            return Ok((1 << 2, Vec::new()));
        }
        let result = match command.dword(10) as u8 {
            feature::NUMBER_OF_QUEUES if !self.is_discovery() => self.queues(),
            feature::KEEP_ALIVE => self.keep_alive.get().into(),
            feature::ASYNC_EVENTS => self.event_mask.get().into(),
            feature::VOLATILE_WRITE_CACHE if !self.is_discovery() => 1,
            feature::HOST_ID => return Ok((0, controller.host_id.to_vec())),
            feature::HOST_BEHAVIOR if !self.is_discovery() => return Ok((0, vec![0; 512])),
            feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE
            | feature::WRITE_ATOMICITY
                if !self.is_discovery() =>
            {
                0
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok((result, Vec::new()))
    }

    fn await_event(&self, queue: &Queue, token: Token) {
        let mut parked = self.parked.borrow_mut();
        if parked.len() >= EVENTS_MAX {
            let answer = Answer::Admin(Status::ASYNC_EVENT_LIMIT, 0, Vec::new());
            return queue.answer(token, answer);
        }
        queue.park(token);
        parked.push_back(token);
        drop(parked);
        self.tell(queue);
    }

    /// Tells the host of what has happened, if it wants to know and has been told of nothing since it looked last.
    fn tell(&self, queue: &Queue) {
        let wanted = self.event_mask.get() != 0;
        if !self.due.get() || self.told.get() || !wanted {
            return;
        }
        let Some(token) = self.parked.borrow_mut().pop_front() else { return };
        self.due.set(false);
        self.told.set(true);
        // A notice: what has changed, and the log that says more.
        let (change, log) = match self.is_discovery() {
            true => (0xf0, id::DISCOVERY),
            false => (0x00, id::CHANGED_NAMESPACES),
        };
        let result = 2 | change << 8 | u64::from(log) << 16;
        queue.answer(token, Answer::Admin(Status::SUCCESS, result, Vec::new()));
    }

    /// Looks for changes: a namespace that has another size, another offer.
    pub fn look(&self, queue: &Queue) {
        let size = self.info().map_or(0, |info| info.device.size);
        let changed = self.size.replace(size) != size;
        let generation = self.subsystems.generation();
        let offer = self.generation.replace(generation) != generation;
        if changed && !self.is_discovery() {
            self.changed.set(true);
            self.due.set(true);
        }
        if offer && self.is_discovery() {
            self.due.set(true);
        }
        self.tell(queue);
    }

    /// Milliseconds that the host has been silent for, when that is longer than it has said it would be.
    pub fn silent(&self, now: Nanos) -> Option<u64> {
        let silent = now.saturating_sub(self.heard.get()) / 1_000_000;
        let limit = u64::from(self.keep_alive.get());
        (limit > 0 && silent > limit).then_some(silent)
    }
}
