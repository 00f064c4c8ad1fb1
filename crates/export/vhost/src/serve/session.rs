//! The agreement with a front end, and its messages.

use super::channel::ChannelError;
use super::hub::Hub;
use super::running::{CallFile, Running, Start};
use crate::blk::config;
use crate::inflight::{Inflight, InflightError};
use crate::memory::{Memory, MemoryError};
use crate::protocol::{
    F_PROTOCOL_FEATURES, Header, InflightShape, Message, PROTOCOL_FEATURES, QUEUES_MAX, Region,
    RingAddresses, feature, reply,
};
use crate::queue::{Place, QueueError, RING_SIZE_MAX};
use braid_device::Target;
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// Why a connection ends other than by the front end's wish.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("{0}")]
    Inflight(#[from] InflightError),
    #[error("{0}")]
    Queue(#[from] QueueError),
    #[error("features {0:#x} were not offered")]
    Features(u64),
    #[error("queue {0} is changed while it runs")]
    Runs(u16),
    #[error(
        "the descriptor for the kicks of queue {0} is no eventfd, or there is none: polling is not offered"
    )]
    Kick(u16),
    #[error("{0}; the front end that asked for it is disconnected")]
    Open(#[from] braid_device::OpenError),
}

/// The answer to a message.
pub(super) enum Answer {
    /// Nothing by itself.
    None,
    /// A body.
    Body(Vec<u8>),
    /// A body, and a descriptor.
    With(Vec<u8>, OwnedFd),
    /// It cannot be done, which the front end is told if it asks.
    Refused,
}

#[derive(Default)]
struct QueueState {
    size: u16,
    addresses: RingAddresses,
    base: u16,
    kick: Option<Rc<OwnedFd>>,
    call: CallFile,
    enabled: bool,
    running: Option<Rc<Running>>,
}

/// See the module's documentation.
pub(super) struct Session {
    hub: Rc<Hub>,
    target: Arc<dyn Target>,
    /// Queues that the driver is told of.
    queues_offered: u16,
    features: u64,
    protocol_features: u64,
    memory: Option<Rc<Memory>>,
    inflight: Option<Inflight>,
    /// Where the front end takes requests.
    requests: Rc<Cell<Option<Rc<OwnedFd>>>>,
    queues: Vec<QueueState>,
}

impl Session {
    pub fn new(hub: &Rc<Hub>, target: Arc<dyn Target>, queues_offered: u16) -> Session {
        Session {
            hub: Rc::clone(hub),
            target,
            queues_offered,
            features: 0,
            protocol_features: 0,
            memory: None,
            inflight: None,
            requests: Rc::default(),
            queues: (0..QUEUES_MAX).map(|_| QueueState::default()).collect(),
        }
    }

    /// Where the front end takes requests, once it has said so.
    pub fn requests(&self) -> Rc<Cell<Option<Rc<OwnedFd>>>> {
        Rc::clone(&self.requests)
    }

    /// The reply to a message, where there is one.
    pub async fn handle(
        &mut self,
        header: Header,
        message: Message,
        files: Vec<OwnedFd>,
    ) -> Result<Option<(Vec<u8>, Option<OwnedFd>)>, SessionError> {
        let answer = self.carry_out(message, files).await?;
        let acknowledged = header.needs_reply && self.protocol_features & feature::REPLY_ACK != 0;
        let number = |number: u64| reply(header, &number.to_ne_bytes());
        Ok(match answer {
            Answer::Body(body) => Some((reply(header, &body), None)),
            Answer::With(body, file) => Some((reply(header, &body), Some(file))),
            Answer::None => acknowledged.then(|| (number(0), None)),
            Answer::Refused => acknowledged.then(|| (number(1), None)),
        })
    }

    async fn carry_out(
        &mut self,
        message: Message,
        mut files: Vec<OwnedFd>,
    ) -> Result<Answer, SessionError> {
        let number = |number: u64| Ok(Answer::Body(number.to_ne_bytes().to_vec()));
        let mut file = || files.pop();
        match message {
            Message::GetFeatures => return number(config::features(&self.target.info())),
            Message::SetFeatures(features) => self.set_features(features)?,
            Message::SetOwner => {}
            Message::ResetOwner | Message::ResetDevice => self.reset().await,
            Message::SetMemTable(regions) => {
                self.set_memory(&regions, files).await?;
            }
            Message::SetVringNum { queue, size } => self.idle(queue)?.size = size,
            Message::SetVringAddr { queue, addresses } => self.set_addresses(queue, addresses)?,
            Message::SetVringBase { queue, base } => self.idle(queue)?.base = base,
            Message::GetVringBase { queue } => {
                let base = self.halt(queue).await;
                if let Some(state) = self.queues.get_mut(usize::from(queue)) {
                    state.kick = None;
                }
                let body = [u32::from(queue).to_ne_bytes(), u32::from(base).to_ne_bytes()];
                return Ok(Answer::Body(body.concat()));
            }
            Message::SetVringKick { queue, .. } => {
                let kick = file().filter(is_eventfd).ok_or(SessionError::Kick(queue))?;
                let base = self.halt(queue).await;
                let state = self.state(queue)?;
                (state.kick, state.base) = (Some(Rc::new(kick)), base);
                self.start(queue)?;
            }
            Message::SetVringCall { queue, .. } => {
                *self.state(queue)?.call.borrow_mut() = file().map(Rc::new);
            }
            // Nothing is ever said there: a driver that errs is disconnected.
            Message::SetVringErr { .. } => {}
            Message::GetProtocolFeatures => return number(PROTOCOL_FEATURES),
            Message::SetProtocolFeatures(features) => {
                if features & !PROTOCOL_FEATURES != 0 {
                    return Err(SessionError::Features(features));
                }
                self.protocol_features = features;
            }
            Message::GetQueueNum => return number(u64::from(QUEUES_MAX)),
            Message::SetVringEnable { queue, enable } => self.enable(queue, enable)?,
            Message::SetBackendReqFd => self.requests.set(file().map(Rc::new)),
            Message::GetConfig { offset, size } => {
                return Ok(Answer::Body(self.config(offset, size)));
            }
            // There is nothing to be written in it.
            Message::SetConfig => return Ok(Answer::Refused),
            Message::GetInflightFd(InflightShape { queues, queue_size, .. }) => {
                if !(1..=RING_SIZE_MAX).contains(&queue_size) {
                    return Err(InflightError::Shape { size: 0, queues, queue_size }.into());
                }
                let (shape, file) = Inflight::create(queues, queue_size)?;
                return Ok(Answer::With(shape.encode(), file));
            }
            Message::SetInflightFd(shape) => {
                let file = file().ok_or(InflightError::Shape {
                    size: shape.size,
                    queues: shape.queues,
                    queue_size: shape.queue_size,
                })?;
                self.inflight = Some(Inflight::map(shape, file)?);
            }
        }
        Ok(Answer::None)
    }

    fn set_features(&mut self, features: u64) -> Result<(), SessionError> {
        if features & !config::features(&self.target.info()) != 0 {
            return Err(SessionError::Features(features));
        }
        self.features = features;
        self.hub.durable_writes.set(features & config::F_FLUSH == 0);
        if features & F_PROTOCOL_FEATURES == 0 {
            // Then no message enables queues: they begin so.
            self.queues.iter_mut().for_each(|queue| queue.enabled = true);
        }
        Ok(())
    }

    /// Numbers of queues were checked where messages are decoded.
    fn state(&mut self, queue: u16) -> Result<&mut QueueState, SessionError> {
        self.queues.get_mut(usize::from(queue)).ok_or(SessionError::Runs(queue))
    }

    /// A queue that may be changed.
    fn idle(&mut self, queue: u16) -> Result<&mut QueueState, SessionError> {
        let state = self.state(queue)?;
        if state.running.is_some() { Err(SessionError::Runs(queue)) } else { Ok(state) }
    }

    fn set_addresses(&mut self, queue: u16, addresses: RingAddresses) -> Result<(), SessionError> {
        let state = self.state(queue)?;
        // A front end that begins to log says the same again.
        if state.running.is_some() && state.addresses != addresses {
            return Err(SessionError::Runs(queue));
        }
        state.addresses = addresses;
        Ok(())
    }

    fn enable(&mut self, queue: u16, enable: bool) -> Result<(), SessionError> {
        let state = self.state(queue)?;
        state.enabled = enable;
        match &state.running {
            Some(running) => running.enable(enable),
            None => self.start(queue)?,
        }
        Ok(())
    }

    /// Starts a queue if all is there that it needs.
    fn start(&mut self, queue: u16) -> Result<(), SessionError> {
        let hub = Rc::clone(&self.hub);
        let event_index = self.features & config::F_EVENT_IDX != 0;
        let inflight = self.inflight.clone();
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        let state = self.state(queue)?;
        let Some(kick) = state.kick.clone().filter(|_| state.enabled) else { return Ok(()) };
        let RingAddresses { descriptors, used, available } = state.addresses;
        let (size, base) = (state.size, state.base);
        let place = Place { size, descriptors, available, used, base, event_index };
        let tracker = inflight.and_then(|inflight| inflight.queue(queue, size));
        let call = Rc::clone(&state.call);
        let start = Start { memory, place, tracker, kick, call };
        state.running = Some(Running::start(&hub, start));
        Ok(())
    }

    /// Stops a queue, when what it has is done. Gives where it goes on.
    async fn halt(&mut self, queue: u16) -> u16 {
        let Some(state) = self.queues.get_mut(usize::from(queue)) else { return 0 };
        if let Some(running) = state.running.take() {
            state.base = running.stop().await;
        }
        state.base
    }

    async fn set_memory(
        &mut self,
        regions: &[Region],
        files: Vec<OwnedFd>,
    ) -> Result<(), SessionError> {
        let mut halted = Vec::new();
        for queue in 0..QUEUES_MAX {
            if self.state(queue)?.running.is_some() {
                self.halt(queue).await;
                halted.push(queue);
            }
        }
        // The old memory goes first: a guest may have more of it than this process may map twice.
        self.memory = None;
        self.memory = Some(Rc::new(Memory::map(regions, files)?));
        halted.into_iter().try_for_each(|queue| self.start(queue))
    }

    async fn reset(&mut self) {
        for queue in 0..QUEUES_MAX {
            self.halt(queue).await;
            if let Some(state) = self.queues.get_mut(usize::from(queue)) {
                *state = QueueState::default();
            }
        }
    }

    /// Offset, size and flags as in the message, and the bytes.
    fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        let space = config::space(&self.target.info(), self.queues_offered);
        let mut body = [offset, size, 0].map(u32::to_ne_bytes).concat();
        let bytes = space.into_iter().chain(std::iter::repeat(0));
        // Both were checked to be within a page.
        body.extend(bytes.skip(offset as usize).take(size as usize));
        body
    }

    /// Takes no further requests.
    pub fn end(&self) {
        self.hub.end();
        self.running().for_each(|running| running.end());
    }

    /// Lets others have the rings, once nothing is under way.
    pub fn release(&self) {
        self.running().for_each(|running| running.release());
    }

    fn running(&self) -> impl Iterator<Item = &Rc<Running>> {
        self.queues.iter().filter_map(|queue| queue.running.as_ref())
    }
}

/// Kicks are waited for, and a queue that is stopped wakes its own task by one: that takes an eventfd. Where /proc is not
/// mounted nobody can tell.
fn is_eventfd(file: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.map_or(true, |link| link.as_os_str() == "anon_inode:[eventfd]")
}
