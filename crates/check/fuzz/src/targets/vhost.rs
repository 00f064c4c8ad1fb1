//! vhost-user: messages of a front end, tables of memory, and rings that a guest has filled, with the memory that tracks
//! what is under way.

use super::target::{PLAIN, Target, Verdict, head, must, no_checksum};
use crate::mutate::le;
use braid_vhost::Job;
use braid_vhost::inflight::{Inflight, Tracker};
use braid_vhost::memory::Memory;
use braid_vhost::protocol::{
    BODY_BYTES_MAX, HEADER_BYTES, Header, InflightShape, Message, QUEUES_MAX, Region,
};
use braid_vhost::queue::{Chain, PARTS_MAX, Place, RING_SIZE_MAX, Ring};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

/// Messages, each after a byte with the number of descriptors that come with it.
pub const MESSAGES: Target = Target {
    name: "vhost-messages",
    what: "vhost-user: messages of a front end",
    fields: &[le(0, 1), le(1, 4), le(5, 4), le(9, 4), le(13, 4), le(17, 4), le(21, 8), le(29, 8)],
    fix: no_checksum,
    run: messages,
    ..PLAIN
};

/// The table of a guest's memory, whose files have 64 KiB each.
pub const MEMORY: Target = Target {
    name: "vhost-memory",
    what: "vhost-user: a table of memory",
    fields: &[
        le(0, 1),
        le(1, 8),
        le(9, 8),
        le(17, 8),
        le(25, 8),
        le(33, 8),
        le(41, 8),
        le(49, 8),
        le(57, 8),
    ],
    fix: no_checksum,
    run: memory,
    slowness: 4,
    ..PLAIN
};

/// A ring: where it is, what tracks it, and the first bytes of the guest's memory.
///
/// ```text
///  0    flags: 1 event index, 2 tracked     2  size      4  base
///  8    descriptors      16  available      24  used     as addresses
///  32   the memory that tracks eight requests
///  224  the guest's memory
/// ```
pub const RING: Target = Target {
    name: "vhost-ring",
    what: "vhost-user: chains of descriptors, requests, marks of requests under way",
    fields: RING_FIELDS,
    fix: no_checksum,
    run: ring,
    // A thousand requests with as many parts as there may be.
    memory: 64 << 20,
    slowness: 4,
    ..PLAIN
};

const TRACKED: usize = 8;
const TRACKING_BYTES: usize = 192;
const GUEST_BYTES: u64 = 64 << 10;
const IN_GUEST: usize = 32 + TRACKING_BYTES;
const DESCRIPTORS: usize = IN_GUEST + 0x100;
const AVAILABLE: usize = IN_GUEST + 0x200;

const RING_FIELDS: &[crate::mutate::Field] = &[
    le(0, 1),
    le(2, 2),
    le(4, 2),
    le(8, 8),
    le(16, 8),
    le(24, 8),
    le(40, 2),
    le(44, 2),
    le(46, 2),
    le(48, 1),
    le(56, 8),
    le(AVAILABLE + 2, 2),
    le(AVAILABLE + 4, 2),
    le(AVAILABLE + 6, 2),
    le(DESCRIPTORS, 8),
    le(DESCRIPTORS + 8, 4),
    le(DESCRIPTORS + 12, 2),
    le(DESCRIPTORS + 14, 2),
    le(DESCRIPTORS + 16, 8),
    le(DESCRIPTORS + 24, 4),
    le(DESCRIPTORS + 28, 2),
    le(DESCRIPTORS + 30, 2),
    le(IN_GUEST + 0x240 + 2, 2),
    le(IN_GUEST + 0x300, 4),
    le(IN_GUEST + 0x308, 8),
    le(IN_GUEST + 0x400, 8),
    le(IN_GUEST + 0x408, 4),
    le(IN_GUEST + 0x40c, 2),
];

fn messages(input: &[u8]) -> Result<Verdict, String> {
    let mut rest = input;
    let mut verdict = Verdict::Refused;
    while let Some((descriptors, more)) = rest.split_first() {
        let Some((first, more)) = more.split_first_chunk::<HEADER_BYTES>() else { break };
        let Ok(header) = Header::decode(first) else { return Ok(Verdict::Refused) };
        must(header.size as usize <= BODY_BYTES_MAX, "a body is bounded")?;
        let Some((body, more)) = more.split_at_checked(header.size as usize) else { break };
        let Ok(message) = Message::decode(header, body, usize::from(*descriptors)) else {
            return Ok(Verdict::Refused);
        };
        match message {
            Message::SetMemTable(regions) => {
                must(regions.len() == usize::from(*descriptors), "a file for each region")?;
            }
            Message::SetVringNum { queue, .. }
            | Message::SetVringBase { queue, .. }
            | Message::GetVringBase { queue }
            | Message::SetVringAddr { queue, .. }
            | Message::SetVringEnable { queue, .. } => must(queue < QUEUES_MAX, "a queue")?,
            Message::GetConfig { offset, size } => must(offset + size <= 4096, "a page")?,
            _ => {}
        }
        (rest, verdict) = (more, Verdict::Accepted);
    }
    Ok(verdict)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u64::from_le_bytes)
}

fn file(bytes: u64) -> Result<File, String> {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let made = memfd_create("fuzz", MemfdFlags::CLOEXEC);
    let file = made.map_err(|error| format!("no memory for a file: {error}"))?;
    ftruncate(&file, bytes).map_err(|error| format!("no memory for a file: {error}"))?;
    Ok(file.into())
}

fn memory(input: &[u8]) -> Result<Verdict, String> {
    let ([count], table) = head::<1>(input);
    let region = |nr: usize| Region {
        guest: number(table, nr * 32),
        size: number(table, nr * 32 + 8),
        user: number(table, nr * 32 + 16),
        offset: number(table, nr * 32 + 24),
    };
    let regions: Vec<Region> = (0..usize::from(count % 9)).map(region).collect();
    let mut files = Vec::new();
    for _ in &regions {
        files.push(file(GUEST_BYTES)?.into());
    }
    let Ok(memory) = Memory::map(&regions, files) else { return Ok(Verdict::Refused) };
    for region in &regions {
        for user in [region.user, region.user + (region.size - 1)] {
            let guest = memory.of_user(user).ok_or("an address of a region is not known")?;
            let there = memory.guest().read_obj::<u8>(GuestAddress(guest)).is_ok();
            must(there, "an address of a region is in the guest's memory")?;
        }
        let end = GuestAddress(region.guest);
        let whole =
            GuestMemory::check_range(memory.guest(), end, region.size as usize, Permissions::Write);
        must(whole, "a region is there as a whole")?;
    }
    Ok(Verdict::Accepted)
}

thread_local! {
    /// One for all inputs: to map it takes longer than to look at a ring.
    static GUEST: Option<Rc<Memory>> = file(GUEST_BYTES).ok().and_then(|file| {
        let region = Region { guest: 0, size: GUEST_BYTES, user: 0, offset: 0 };
        Memory::map(&[region], vec![file.into()]).ok().map(Rc::new)
    });
}

fn tracker(content: &[u8]) -> Result<Tracker, String> {
    let file = file(4096)?;
    file.write_all_at(content, 0).map_err(|error| error.to_string())?;
    let shape = InflightShape { size: 4096, offset: 0, queues: 1, queue_size: TRACKED as u16 };
    let inflight = Inflight::map(shape, file.into()).map_err(|error| error.to_string())?;
    inflight.queue(0, TRACKED as u16).ok_or_else(|| "no queue".to_string())
}

fn ring(input: &[u8]) -> Result<Verdict, String> {
    let memory = GUEST.with(Option::clone).ok_or("no memory for a guest")?;
    let (first, rest) = head::<32>(input);
    let (tracking, image) = head::<TRACKING_BYTES>(rest);
    let put = |bytes: &[u8], at: usize| {
        memory.guest().write_slice(bytes, GuestAddress(at as u64)).map_err(|e| e.to_string())
    };
    let image = image.get(..GUEST_BYTES as usize).unwrap_or(image);
    put(image, 0)?;
    put(&vec![0; GUEST_BYTES as usize - image.len()], image.len())?;
    let half = |at: usize| u16::from_le_bytes([first[at], first[at + 1]]);
    let place = Place {
        size: half(2),
        base: half(4),
        descriptors: number(&first, 8),
        available: number(&first, 16),
        used: number(&first, 24),
        event_index: first[0] & 1 != 0,
    };
    let tracked = first[0] & 2 != 0 && usize::from(place.size) <= TRACKED;
    let tracker = tracked.then(|| tracker(&tracking)).transpose()?;
    let Ok(mut ring) = Ring::start(&memory, place, tracker) else { return Ok(Verdict::Refused) };
    let mut taken = 0;
    loop {
        match ring.pop() {
            Ok(Some(chain)) => look_at(&memory, &mut ring, chain)?,
            Ok(None) => break,
            Err(_) => return Ok(Verdict::Refused),
        }
        taken += 1;
        // Completions may change the available ring, if the parts of the ring lie over each other.
        if taken > 2 * RING_SIZE_MAX {
            return Ok(Verdict::Refused);
        }
    }
    must(ring.ask_for_kick().is_ok() && ring.wants_call().is_ok(), "a ring that works is there")?;
    Ok(Verdict::Accepted)
}

fn look_at(memory: &Memory, ring: &mut Ring, chain: Chain) -> Result<(), String> {
    let head = chain.head;
    must(chain.readable.len() + chain.writable.len() <= PARTS_MAX, "a chain is bounded")?;
    for part in chain.readable.iter().chain(&chain.writable) {
        let within = part.address.0 + u64::from(part.length) <= GUEST_BYTES;
        must(within && part.length > 0, "a part is within the guest's memory")?;
    }
    let room: u64 = chain.writable.iter().map(|part| u64::from(part.length)).sum();
    if let Ok(job) = Job::parse(memory, chain) {
        must(job.head == head && job.status.0 < GUEST_BYTES, "a request keeps its head")?;
        must(room > 0, "a request has room for a status")?;
        let ranges = job.ranges(memory).map_or(0, |ranges| ranges.len());
        must(ranges <= 32, "ranges are bounded")?;
    }
    must(ring.push(head, 1).is_ok(), "a head that was given can be used")
}
