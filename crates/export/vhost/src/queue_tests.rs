//! Rings that are laid out by hand.

use super::*;
use crate::inflight::Inflight;
use crate::protocol::Region;
use std::os::fd::OwnedFd;

const SIZE: u16 = 8;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const BYTES: u64 = 0x10000;
/// Where the front end has the memory.
const USER: u64 = 0x7f00_0000_0000;

fn memory() -> Rc<Memory> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES).unwrap();
    let region = Region { guest: 0, size: BYTES, user: USER, offset: 0 };
    Rc::new(Memory::map(&[region], vec![file.into()]).unwrap())
}

fn place() -> Place {
    Place {
        size: SIZE,
        descriptors: USER + DESCRIPTORS,
        available: USER + AVAILABLE,
        used: USER + USED,
        base: 0,
        event_index: false,
    }
}

fn put<T: vm_memory::ByteValued>(memory: &Memory, at: u64, value: T) {
    memory.guest().write_obj(value, GuestAddress(at)).unwrap();
}

fn descriptor(memory: &Memory, at: u64, fields: (u64, u32, u16, u16)) {
    let (address, length, flags, next) = fields;
    put(memory, at, address);
    put(memory, at + 8, length);
    put(memory, at + 12, flags);
    put(memory, at + 14, next);
}

fn at(index: u64) -> u64 {
    DESCRIPTORS + index * 16
}

fn offer(memory: &Memory, index: u16, head: u16) {
    put(memory, AVAILABLE + 4 + u64::from(index % SIZE) * 2, head);
    put(memory, AVAILABLE + 2, index.wrapping_add(1));
}

fn popped(memory: &Rc<Memory>) -> Result<Option<Chain>, QueueError> {
    Ring::start(memory, place(), None).unwrap().pop()
}

fn part(address: u64, length: u32) -> Part {
    Part { address: GuestAddress(address), length }
}

#[test]
fn chains_are_walked_through_tables_too() {
    let memory = memory();
    descriptor(&memory, at(3), (0x4000, 16, F_NEXT, 5));
    descriptor(&memory, at(5), (0x5000, 32, F_INDIRECT, 0));
    descriptor(&memory, 0x5000, (0x6000, 512, F_WRITE | F_NEXT, 1));
    descriptor(&memory, 0x5010, (0x7000, 1, F_WRITE, 0));
    offer(&memory, 0, 3);
    let chain = popped(&memory).unwrap().unwrap();
    assert_eq!(chain.head, 3);
    assert_eq!(chain.readable[..], [part(0x4000, 16)]);
    assert_eq!(chain.writable[..], [part(0x6000, 512), part(0x7000, 1)]);
}

#[test]
fn a_driver_that_breaks_a_rule_is_told_which() {
    let refused = |fields: (u64, u32, u16, u16)| {
        let memory = memory();
        descriptor(&memory, at(0), fields);
        descriptor(&memory, 0x5000, (0x6000, 16, F_INDIRECT, 0));
        offer(&memory, 0, 0);
        popped(&memory).unwrap_err()
    };
    assert!(matches!(refused((0x4000, 16, F_NEXT, 0)), QueueError::Loop));
    assert!(matches!(refused((0x4000, 16, F_NEXT, 8)), QueueError::Index { index: 8, of: 8 }));
    assert!(matches!(refused((BYTES, 16, 0, 0)), QueueError::Memory { .. }));
    assert!(matches!(refused((u64::MAX, 16, 0, 0)), QueueError::Memory { .. }));
    assert!(matches!(refused((0x4000, u32::MAX, 0, 0)), QueueError::Memory { .. }));
    assert!(matches!(refused((0x5000, 15, F_INDIRECT, 0)), QueueError::Table(15)));
    assert!(matches!(refused((0x5000, 0, F_INDIRECT, 0)), QueueError::Table(0)));
    assert!(matches!(refused((0x5000, 16, F_INDIRECT | F_NEXT, 0)), QueueError::Table(16)));
    assert!(matches!(refused((0x5000, 16, F_INDIRECT, 0)), QueueError::Table(16)));
    assert!(matches!(refused((u64::MAX - 8, 64, F_INDIRECT, 0)), QueueError::Memory { .. }));
}

#[test]
fn heads_indices_and_orders_that_cannot_be_are_refused() {
    let shown = memory();
    offer(&shown, 0, SIZE);
    assert!(matches!(popped(&shown), Err(QueueError::Index { index: 8, .. })));
    let shown = memory();
    put(&shown, AVAILABLE + 2, 9u16);
    assert!(matches!(popped(&shown), Err(QueueError::Ring(_))));
    let shown = memory();
    descriptor(&shown, at(0), (0x4000, 16, F_WRITE | F_NEXT, 1));
    descriptor(&shown, at(1), (0x4000, 16, 0, 0));
    offer(&shown, 0, 0);
    assert!(matches!(popped(&shown), Err(QueueError::Order)));
    let shown = memory();
    descriptor(&shown, at(0), (0x8000, 16 * 300, F_INDIRECT, 0));
    (0..300).for_each(|nr| {
        descriptor(&shown, 0x8000 + nr * 16, (0x4000, 1, F_NEXT, nr as u16 + 1));
    });
    offer(&shown, 0, 0);
    assert!(matches!(popped(&shown), Err(QueueError::Long)));
}

#[test]
fn rings_outside_of_the_memory_are_refused() {
    let memory = memory();
    for bad in [
        Place { size: 0, ..place() },
        Place { size: 3, ..place() },
        Place { size: 2048, ..place() },
        Place { descriptors: USER + 8, ..place() },
        Place { used: USER + BYTES - 4, ..place() },
        Place { available: 0x2000, ..place() },
    ] {
        assert!(Ring::start(&memory, bad, None).is_err(), "{bad:?}");
    }
}

fn inflight() -> (Inflight, OwnedFd, crate::protocol::InflightShape) {
    let (shape, file) = Inflight::create(1, SIZE).unwrap();
    (Inflight::map(shape, file.try_clone().unwrap()).unwrap(), file, shape)
}

#[test]
fn a_successor_takes_what_was_under_way_first_and_then_what_is_new() {
    let memory = memory();
    for nr in 0..4 {
        descriptor(&memory, at(nr), (0x4000 + nr * 512, 16, 0, 0));
        offer(&memory, nr as u16, nr as u16);
    }
    let (inflight, file, shape) = inflight();
    let mut ring = Ring::start(&memory, place(), inflight.queue(0, SIZE)).unwrap();
    let taken: Vec<u16> = (0..3).map(|_| ring.pop().unwrap().unwrap().head).collect();
    assert_eq!(taken, [0, 1, 2]);
    ring.push(1, 0).unwrap();
    drop((ring, inflight));
    let inflight = Inflight::map(shape, file).unwrap();
    // The front end does not know where it was: the marks do.
    let mut ring = Ring::start(&memory, place(), inflight.queue(0, SIZE)).unwrap();
    assert!(ring.ask_for_kick().unwrap());
    let taken: Vec<u16> = (0..3).map(|_| ring.pop().unwrap().unwrap().head).collect();
    assert_eq!(taken, [0, 2, 3]);
    assert!(ring.pop().unwrap().is_none());
    assert_eq!(ring.base(), 4);
    assert!(!ring.ask_for_kick().unwrap());
}

#[test]
fn calls_are_wanted_by_index_where_that_was_agreed_on() {
    let memory = memory();
    for nr in 0..4 {
        descriptor(&memory, at(nr), (0x4000, 16, 0, 0));
        offer(&memory, nr as u16, nr as u16);
    }
    // The driver wants to be called when three have ended: used_event is behind the available ring.
    put(&memory, AVAILABLE + 4 + u64::from(SIZE) * 2, 2u16);
    let place = Place { event_index: true, ..place() };
    let mut ring = Ring::start(&memory, place, None).unwrap();
    let mut wanted = Vec::new();
    while let Some(chain) = ring.pop().unwrap() {
        ring.push(chain.head, 0).unwrap();
        wanted.push(ring.wants_call().unwrap());
    }
    assert_eq!(wanted, [false, false, true, false]);
}
