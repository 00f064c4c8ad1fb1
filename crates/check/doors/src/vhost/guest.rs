//! A guest: memory with two rings in it, a driver that fills them in turn, and a front end that passes all on.
//!
//! ```text
//!  0, 16384   descriptors   2 KiB     128 of them, of each ring
//!  4096 …     available               and used_event
//!  8192 …     used                    and avail_event
//!  65536      slots                   of each request: header, status, a table of descriptors
//!  2 MiB      data
//! ```

use crate::{Answer, Client, Command, Failure, Properties};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const QUEUES: usize = 2;
const RING: u16 = 128;
const RING_BYTES: usize = 16384;
const AVAILABLE: usize = 4096;
const USED: usize = 8192;
const SLOTS: usize = 65536;
const SLOT_BYTES: usize = 8192;
const TABLE: usize = 32;
const DATA: usize = 2 << 20;
const BYTES: usize = 40 << 20;
/// Where the front end says that it has the memory.
const USER: u64 = 0x7f12_0000_0000;
const SEGMENT: u64 = 128 << 10;

const F_NEXT: u16 = 1;
const F_WRITE: u16 = 2;
const F_INDIRECT: u16 = 4;
const F_EVENT_IDX: u64 = 1 << 29;
const F_RO: u64 = 1 << 5;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const F_PROTOCOL_FEATURES: u64 = 1 << 30;

struct UnderWay {
    tag: u32,
    /// Where the data of a read will be.
    read: Option<(usize, usize)>,
    status: usize,
    /// A flush is to follow.
    fua: bool,
    /// Where its data is, and the bytes of it.
    data: (usize, usize),
}

struct Queue {
    /// Where its descriptors are; the rest is behind them.
    at: usize,
    kick: EventFd,
    call: EventFd,
    available: u16,
    used: u16,
    under_way: HashMap<u16, UnderWay>,
}

impl Queue {
    fn new(nr: usize) -> Queue {
        let event = || EventFd::new(EFD_NONBLOCK).expect("an eventfd");
        Queue {
            at: nr * RING_BYTES,
            kick: event(),
            call: event(),
            available: 0,
            used: 0,
            under_way: HashMap::new(),
        }
    }
}

/// See the module's documentation.
pub struct Guest {
    front: Option<Frontend>,
    file: File,
    memory: MmapRegion<()>,
    features: u64,
    /// Features that are not taken.
    without: u64,
    queues: Vec<Queue>,
    /// Requests so far: they go to the queues in turn.
    turn: usize,
    inflight: Option<(VhostUserInflight, File)>,
}

impl Guest {
    /// Connects and starts the rings; `None` when the server does not let it.
    pub fn connect(socket: &Path) -> Option<Guest> {
        Guest::connect_without(socket, 0)
    }

    /// The same, without some of the features that are offered.
    pub fn connect_without(socket: &Path, without: u64) -> Option<Guest> {
        let file: File = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory").into();
        ftruncate(&file, BYTES as u64).expect("memory");
        let copy = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let mut guest = Guest {
            front: None,
            file,
            memory: MmapRegion::from_file(copy, BYTES).expect("memory"),
            features: 0,
            without,
            queues: (0..QUEUES).map(Queue::new).collect(),
            turn: 0,
            inflight: None,
        };
        guest.begin(socket).then_some(guest)
    }

    /// Connects again, as a front end does whose back end has gone, with all that is under way.
    pub fn connect_again(&mut self, socket: &Path) -> bool {
        self.front = None;
        self.begin(socket)
    }

    /// Leaves, and keeps the rest.
    pub fn leave(&mut self) {
        self.front = None;
    }

    fn begin(&mut self, socket: &Path) -> bool {
        let Ok(stream) = UnixStream::connect(socket) else { return false };
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a time limit");
        let mut front = Frontend::from_stream(stream, 64);
        let agreed = self.agree(&mut front);
        self.front = Some(front);
        agreed.is_ok()
    }

    fn agree(&mut self, front: &mut Frontend) -> Result<(), Box<dyn std::error::Error>> {
        front.set_owner()?;
        self.features = front.get_features()?;
        let offered = front.get_protocol_features()?;
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        assert!(offered.contains(wanted), "{offered:?}");
        assert!(self.features & F_PROTOCOL_FEATURES != 0 && self.features & F_EVENT_IDX != 0);
        front.set_protocol_features(wanted)?;
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(front.get_queue_num()? >= QUEUES as u64);
        self.features &= !self.without;
        front.set_features(self.features)?;
        match &self.inflight {
            Some((shape, file)) => front.set_inflight_fd(shape, file.as_raw_fd())?,
            None => {
                let wanted = VhostUserInflight {
                    mmap_size: 0,
                    mmap_offset: 0,
                    num_queues: QUEUES as u16,
                    queue_size: RING,
                };
                let (shape, file) = front.get_inflight_fd(&wanted)?;
                front.set_inflight_fd(&shape, file.as_raw_fd())?;
                self.inflight = Some((shape, file));
            }
        }
        self.pass_memory(front)?;
        (0..QUEUES)
            .try_for_each(|nr| self.start(front, nr, self.load(self.queues[nr].at + USED + 2)))
    }

    fn pass_memory(&self, front: &Frontend) -> Result<(), Box<dyn std::error::Error>> {
        front.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: BYTES as u64,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }])?;
        Ok(())
    }

    fn start(
        &self,
        front: &mut Frontend,
        nr: usize,
        base: u16,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let queue = &self.queues[nr];
        let at = USER + queue.at as u64;
        front.set_vring_num(nr, RING)?;
        front.set_vring_base(nr, base)?;
        front.set_vring_addr(
            nr,
            &VringConfigData {
                queue_max_size: RING,
                queue_size: RING,
                flags: 0,
                desc_table_addr: at,
                used_ring_addr: at + USED as u64,
                avail_ring_addr: at + AVAILABLE as u64,
                log_addr: None,
            },
        )?;
        front.set_vring_call(nr, &queue.call)?;
        front.set_vring_kick(nr, &queue.kick)?;
        front.set_vring_enable(nr, true)?;
        Ok(())
    }

    /// Where the server tells of changes.
    pub fn requests(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        ours.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
        let front = self.front.as_mut().expect("connected");
        front.set_backend_request_fd(&theirs).expect("it was agreed on");
        ours
    }

    /// Passes the same memory once more, while the rings run.
    pub fn pass_memory_again(&mut self) {
        let front = self.front.take().expect("connected");
        self.pass_memory(&front).expect("the same table");
        self.front = Some(front);
    }

    /// Stops a ring and starts it again where it was.
    pub fn restart(&mut self, nr: usize) {
        let mut front = self.front.take().expect("connected");
        let base = front.get_vring_base(nr).expect("a base") as u16;
        // Requests that were taken have ended; the others are taken when it goes on.
        assert_eq!(base, self.load(self.queues[nr].at + USED + 2));
        self.start(&mut front, nr, base).expect("the same ring");
        self.front = Some(front);
    }

    /// Makes something available that no driver may: a chain that comes back to itself.
    pub fn break_the_rules(&mut self) {
        self.descriptor(0, (DATA, 16), F_NEXT, 0);
        self.publish(0, 0);
    }

    /// Takes the memory away from under the server. Nothing of this guest can be used after that.
    pub fn cut_memory(self) -> bool {
        let front = self.front.as_ref().expect("connected");
        ftruncate(&self.file, 0).expect("it is not sealed");
        self.queues.iter().for_each(|queue| queue.kick.write(1).expect("a kick"));
        watched(&[], front.as_raw_fd(), Duration::from_secs(30)).1
    }

    fn publish(&mut self, nr: usize, head: u16) {
        let Queue { at, available, .. } = self.queues[nr];
        self.store(at + AVAILABLE + 4 + usize::from(available % RING) * 2, head);
        let available = available.wrapping_add(1);
        self.queues[nr].available = available;
        self.store(at + AVAILABLE + 2, available);
        self.queues[nr].kick.write(1).expect("a kick");
    }

    fn load(&self, at: usize) -> u16 {
        self.memory.as_volatile_slice().load(at, Ordering::SeqCst).expect("within")
    }

    fn store(&self, at: usize, value: u16) {
        self.memory.as_volatile_slice().store(value, at, Ordering::SeqCst).expect("within");
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.memory.as_volatile_slice().write_slice(bytes, at).expect("within");
    }

    /// Writes descriptors of these places, one after the other, from `at` on.
    fn describe(&self, at: usize, first: u16, places: &[(usize, u64, bool)]) {
        for (nr, (place, length, writable)) in places.iter().enumerate() {
            let next = if nr + 1 < places.len() { F_NEXT } else { 0 };
            let flags = next | if *writable { F_WRITE } else { 0 };
            self.descriptor(at + nr * 16, (*place, *length), flags, first + nr as u16 + 1);
        }
    }

    fn descriptor(&self, at: usize, (place, length): (usize, u64), flags: u16, next: u16) {
        self.put(at, &(place as u64).to_le_bytes());
        self.put(at + 8, &(length as u32).to_le_bytes());
        self.put(at + 12, &flags.to_le_bytes());
        self.put(at + 14, &next.to_le_bytes());
    }

    /// Room for so many bytes of data.
    fn room(&self, bytes: u64) -> usize {
        let under_way = self.queues.iter().flat_map(|queue| queue.under_way.values());
        let mut taken: Vec<(usize, usize)> = under_way.map(|request| request.data).collect();
        taken.sort_unstable();
        let mut at = DATA;
        for (place, length) in taken {
            if at + bytes as usize <= place {
                break;
            }
            at = at.max((place + length).next_multiple_of(512));
        }
        assert!(at + bytes as usize <= BYTES, "the guest's memory is full");
        at
    }

    /// Puts a request into the ring: its kind, its first sector, its data with what is in it, or a place for it.
    fn request(&mut self, tag: u32, kind: u32, offset: u64, data: (&[u8], u64), fua: bool) {
        let (written, read) = data;
        // Heads are multiples of four: a request has at most three descriptors outside of tables.
        let nr = self.turn % QUEUES;
        self.turn += 1;
        let Queue { at: ring, under_way, .. } = &self.queues[nr];
        let ring = *ring;
        let head = (0..RING).step_by(4).find(|head| !under_way.contains_key(head));
        let head = head.expect("not so many under way");
        let slot = SLOTS + (nr * usize::from(RING) / 4 + usize::from(head / 4)) * SLOT_BYTES;
        let header =
            [kind.to_le_bytes().as_slice(), &[0; 4], &(offset / 512).to_le_bytes()].concat();
        self.put(slot, &header);
        self.put(slot + 16, &[0xff]);
        let length = written.len() as u64 + read;
        let place = self.room(length);
        self.put(place, written);
        let mut places = vec![(slot, 16, false)];
        for at in (0..length).step_by(SEGMENT as usize) {
            places.push((place + at as usize, SEGMENT.min(length - at), read > 0));
        }
        places.push((slot + 16, 1, true));
        if places.len() > 3 || tag % 2 == 1 {
            self.describe(slot + TABLE, 0, &places);
            let table = (slot + TABLE, places.len() as u64 * 16);
            self.descriptor(ring + usize::from(head) * 16, table, F_INDIRECT, 0);
        } else {
            self.describe(ring + usize::from(head) * 16, head, &places);
        }
        let read = (read > 0).then_some((place, read as usize));
        let data = (place, length as usize);
        let request = UnderWay { tag, read, status: slot + 16, fua, data };
        self.queues[nr].under_way.insert(head, request);
        self.publish(nr, head);
    }

    /// The next completion, if there is one.
    fn ended(&mut self) -> Option<(u32, Result<Vec<u8>, Failure>)> {
        (0..QUEUES).find_map(|nr| self.ended_in(nr))
    }

    fn ended_in(&mut self, nr: usize) -> Option<(u32, Result<Vec<u8>, Failure>)> {
        let Queue { at: ring, used, .. } = self.queues[nr];
        // The next call is to come when this one has.
        self.store(ring + AVAILABLE + 4 + usize::from(RING) * 2, used);
        if self.load(ring + USED + 2) == used {
            return None;
        }
        let at = ring + USED + 4 + usize::from(used % RING) * 8;
        let slice = self.memory.as_volatile_slice();
        let head: u32 = slice.load(at, Ordering::SeqCst).expect("within");
        let length: u32 = slice.load(at + 4, Ordering::SeqCst).expect("within");
        let queue = &mut self.queues[nr];
        queue.used = used.wrapping_add(1);
        let known = queue.under_way.remove(&(head as u16)).expect("a request of ours");
        let status: u8 = slice.load(known.status, Ordering::SeqCst).expect("within");
        let result = match status {
            0 => {
                let (place, bytes) = known.read.unwrap_or_default();
                assert_eq!(length as usize, bytes + 1);
                let mut data = vec![0; bytes];
                slice.read_slice(&mut data, place).expect("within");
                Ok(data)
            }
            1 => Err(Failure::Io),
            2 => Err(Failure::Refused),
            other => panic!("status {other}"),
        };
        if known.fua && result.is_ok() {
            self.request(known.tag, 4, 0, (&[], 0), false);
            return self.ended();
        }
        Some((known.tag, result))
    }

    fn range(offset: u64, length: u64) -> Vec<u8> {
        let sectors = (length / 512) as u32;
        [(offset / 512).to_le_bytes().as_slice(), &sectors.to_le_bytes(), &[0; 4]].concat()
    }
}

impl Client for Guest {
    fn properties(&mut self) -> Properties {
        let front = self.front.as_mut().expect("connected");
        let flags = VhostUserConfigFlags::WRITABLE;
        let (_, space) = front.get_config(0, 60, flags, &[0; 60]).expect("a configuration");
        let u32_at =
            |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().expect("four bytes"));
        let sectors = u64::from(u32_at(4)) << 32 | u64::from(u32_at(0));
        Properties {
            size: sectors * 512,
            block: u64::from(u32_at(20)),
            largest: u64::from(u32_at(8)) * u64::from(u32_at(12)),
            read_only: self.features & F_RO != 0,
            discards: self.features & F_DISCARD != 0,
            zeroes: self.features & F_WRITE_ZEROES != 0,
        }
    }

    fn submit(&mut self, tag: u32, command: Command) {
        match command {
            Command::Read { offset, length } => self.request(tag, 0, offset, (&[], length), false),
            Command::Write { offset, data, fua } => self.request(tag, 1, offset, (&data, 0), fua),
            Command::Flush => self.request(tag, 4, 0, (&[], 0), false),
            Command::Discard { offset, length } => {
                self.request(tag, 11, 0, (&Guest::range(offset, length), 0), false);
            }
            Command::Zero { offset, length } => {
                self.request(tag, 13, 0, (&Guest::range(offset, length), 0), false);
            }
        }
    }

    fn answer(&mut self, within: Duration) -> Answer {
        let end = Instant::now() + within;
        loop {
            if let Some((tag, result)) = self.ended() {
                return Answer::Done(tag, result);
            }
            let left = end.saturating_duration_since(Instant::now());
            let Some(front) = self.front.as_ref() else { return Answer::Disconnected };
            let calls: Vec<i32> = self.queues.iter().map(|queue| queue.call.as_raw_fd()).collect();
            let (called, gone) = watched(&calls, front.as_raw_fd(), left);
            if called {
                for queue in &self.queues {
                    // It may have been for something that was seen already.
                    let _ = queue.call.read();
                }
            } else if gone {
                return Answer::Disconnected;
            } else if left.is_zero() {
                return Answer::Nothing;
            }
        }
    }
}

/// Waits for a call, and for the end of the connection.
fn watched(calls: &[i32], socket: i32, limit: Duration) -> (bool, bool) {
    let epoll = Epoll::new().expect("an epoll");
    let ends = EpollEvent::new(EventSet::READ_HANG_UP | EventSet::HANG_UP, 1);
    for call in calls {
        let event = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, *call, event).expect("a call");
    }
    epoll.ctl(ControlOperation::Add, socket, ends).expect("a socket");
    let mut events = [EpollEvent::default(); QUEUES + 1];
    // Rounded up, so that the time is over after a wait that nothing ended.
    let count = epoll.wait(limit.as_millis() as i32 + 1, &mut events).unwrap_or(0);
    let seen = |which: u64| events.iter().take(count).any(|event| event.data() == which);
    (seen(0), seen(1))
}
