//! Arrays in the middle of reshapes that Linux can run, made here byte by byte from the two geometries, are read
//! right with every member there and with every choice of members missing that both geometries survive.

use crate::salvage::*;
use braid_device::ram::Ram;
use braid_device::{IoSets, Op, Request};
use braid_format::superblock::Version;
use braid_shard::{Nanos, Reactor};
use std::cell::Cell;

const MEMBER: usize = 8 << 20;
const COMPONENT: u64 = 1 << 20;
/// Sectors at which the old and the new component start: apart, so that what is read in the wrong shape is wrong.
const OLD_AT: u64 = 2048;
const NEW_AT: u64 = 8192;
const BLOCK: u64 = 4096;

struct Clock(Cell<Nanos>);

impl Reactor for Clock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, _: &dyn Fn() -> bool) {
        self.0.set(deadline.expect("everything waits and no timer is set"));
    }
}

#[derive(Clone, Copy)]
struct Geometry {
    level: Level,
    layout: u32,
    chunk: u64,
    disks: u32,
}

impl Geometry {
    fn layout(&self) -> Layout {
        Layout::new(&Spec {
            level: self.level,
            layout: self.layout,
            chunk_size: self.chunk,
            raid_disks: self.disks as usize,
            component_size: COMPONENT,
            member_sizes: Vec::new(),
        })
        .unwrap()
    }
}

fn content(block: u64) -> Vec<u8> {
    (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(512)
}

/// Writes the blocks of `range` into the members, in one geometry, with their parity.
fn fill(members: &mut [Vec<u8>], layout: &Layout, data: u64, range: std::ops::Range<u64>) {
    let mut put = |slot: usize, at: u64, bytes: &[u8]| {
        let at = (data * 512 + at) as usize;
        members[slot][at..at + bytes.len()].copy_from_slice(bytes);
    };
    for block in range.start / BLOCK..range.end / BLOCK {
        let offset = block * BLOCK;
        match layout {
            Layout::Raid10(raid10) => {
                let (chunk, within) = raid10.locate(offset);
                for place in raid10.copies(chunk) {
                    put(place.slot, place.offset + within, &content(block));
                }
            }
            Layout::Parity(parity) => {
                let (stripe, k, within) = parity.locate(offset);
                let at = parity.member_offset(stripe) + within;
                put(parity.data_slot(stripe, k), at, &content(block));
                if k > 0 {
                    continue;
                }
                let rows: Vec<Vec<u8>> = (0..parity.data_chunks())
                    .map(|k| content(parity.array_offset(stripe, k, within) / BLOCK))
                    .collect();
                let mut by_exponent: Vec<Option<&[u8]>> = vec![None; parity.q_width()];
                for (k, row) in rows.iter().enumerate() {
                    by_exponent[parity.q_exponent(stripe, k)] = Some(row);
                }
                let (mut p, mut q) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
                braid_parity::pq(&by_exponent, &mut p, &mut q);
                put(parity.p_slot(stripe), at, &p);
                if let Some(slot) = parity.q_slot(stripe) {
                    put(slot, at, &q);
                }
            }
            _ => unreachable!("only these can be reshaped"),
        }
    }
}

/// An array that has been reshaped as far as `position`.
struct Reshaping {
    members: Vec<Vec<u8>>,
    size: u64,
    old: Layout,
    new: Layout,
}

fn reshaping(old: Geometry, new: Geometry, backwards: bool) -> Reshaping {
    let (before, after) = (old.layout(), new.layout());
    let size = before.array_size().min(after.array_size());
    let unit = |layout: &Layout| match layout {
        Layout::Parity(parity) => parity.stripe_size(),
        other => other.chunk_size(),
    };
    // A place that is on the border of stripes of both, near the middle.
    let (one, other) = (unit(&before), unit(&after));
    let step = (1..).map(|times| times * one).find(|step| step % other == 0).unwrap();
    let position = size / 2 / step * step;
    let disks = old.disks.max(new.disks);
    // Bytes outside every geometry must never be taken for data.
    let mut members = vec![vec![0xee; MEMBER]; disks as usize];
    let (olds, news) = match backwards {
        true => (0..position, position..size),
        false => (position..before.array_size(), 0..position),
    };
    assert!(!olds.is_empty() && !news.is_empty(), "both shapes are in use");
    fill(&mut members, &before, OLD_AT, olds);
    fill(&mut members, &after, NEW_AT, news);
    for (number, bytes) in (0u32..).zip(&mut members) {
        let superblock = Superblock {
            set_uuid: [7; 16],
            level: old.level.md_number(),
            layout: old.layout,
            size: COMPONENT / 512,
            chunk_sectors: (old.chunk / 512) as u32,
            raid_disks: new.disks,
            reshape: Some(Reshape {
                new_level: new.level.md_number(),
                position: position / 512,
                delta_disks: new.disks as i32 - old.disks as i32,
                new_layout: new.layout,
                new_chunk_sectors: (new.chunk / 512) as u32,
                backwards,
            }),
            new_offset: (NEW_AT - OLD_AT) as i32,
            data_offset: OLD_AT,
            data_size: COMPONENT / 512,
            super_offset: 8,
            dev_number: number,
            device_uuid: [number as u8 + 1; 16],
            events: 10,
            roles: (0..disks as u16).map(Role::Slot).collect(),
            ..Superblock::empty(Version::V1_2)
        };
        put_superblock(bytes, &superblock);
    }
    Reshaping { members, size, old: before, new: after }
}

fn put_superblock(bytes: &mut [u8], superblock: &Superblock) {
    let written = superblock.to_bytes();
    bytes[..8192].fill(0);
    bytes[4096..4096 + written.len()].copy_from_slice(&written);
}

/// An array of one shape; `differs` says what its member 1 has of its own.
fn steady(geometry: Geometry, differs: impl FnOnce(&mut Superblock)) -> Reshaping {
    let mut made = reshaping(geometry, Geometry { disks: geometry.disks + 1, ..geometry }, false);
    made.members.truncate(geometry.disks as usize);
    made.new = made.old.clone();
    made.size = made.old.array_size();
    fill(&mut made.members, &made.old, OLD_AT, 0..made.size);
    let mut differs = Some(differs);
    for (number, bytes) in made.members.iter_mut().enumerate() {
        let parsed = Superblock::parse(&bytes[4096..8192], Version::V1_2, 8, (MEMBER / 512) as u64);
        let mut superblock = Superblock {
            raid_disks: geometry.disks,
            reshape: None,
            new_offset: 0,
            roles: (0..geometry.disks as u16).map(Role::Slot).collect(),
            ..parsed.unwrap()
        };
        if number == 1 {
            differs.take().unwrap()(&mut superblock);
        }
        put_superblock(bytes, &superblock);
    }
    made
}

/// Reads all of it with the members of `missing` left out.
fn read_all(reshaping: &Reshaping, missing: &[usize]) -> Result<Vec<u8>, AssembleError> {
    open_and_read(reshaping, missing, 0..reshaping.size).map(Result::unwrap)
}

/// Reads a part of it; what it says of an error.
fn read(
    reshaping: &Reshaping,
    missing: &[usize],
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>, String> {
    open_and_read(reshaping, missing, range).unwrap()
}

fn open_and_read(
    reshaping: &Reshaping,
    missing: &[usize],
    range: std::ops::Range<u64>,
) -> Result<Result<Vec<u8>, String>, AssembleError> {
    let shard = Shard::with_reactor(0, Rc::new(Clock(Cell::new(0))));
    let ctx = Context {
        shard: shard.clone(),
        remotes: vec![shard.remote()],
        wall_clock: Arc::new(|| 0),
        new_uuid: Arc::new(|| [0; 16]),
        has_ended: Arc::new(|_| false),
    };
    let there = reshaping.members.iter().cloned().enumerate();
    let there: Vec<_> = there.filter(|(slot, _)| !missing.contains(slot)).rev().collect();
    let size = reshaping.size;
    shard.clone().block_on(async move {
        let sets = IoSets::new(&shard);
        let mut openers: Vec<Arc<dyn Opener>> = Vec::new();
        for (slot, bytes) in there {
            let ram = Ram::new(format!("m{slot}"), MEMBER as u64);
            let bytes = shard.pool().copy_of(&bytes).freeze();
            sets.one(&*ram.device(), Request::write(0, bytes, false)).await.result.unwrap();
            openers.push(Arc::new(ram));
        }
        let array = salvage(&ctx, openers, "a".to_string(), None).await?;
        let device = array.open(&shard).unwrap();
        assert_eq!(device.info().size, size);
        let mut content = Vec::new();
        let mut at = range.start;
        while at < range.end {
            // Pieces that are no multiples of chunks.
            let len = (5 * 4096 * 7).min(range.end - at) as usize;
            let request = Request::read(at, shard.pool().get(len));
            let outcome = sets.one(&*device, request).await;
            if let Err(error) = outcome.result {
                return Ok(Err(error.to_string()));
            }
            let Op::Read(bufs) = outcome.op else { panic!("a read gives its buffers back") };
            bufs.iter().for_each(|buf| content.extend_from_slice(buf));
            at += len as u64;
        }
        Ok(Ok(content))
    })
}

#[track_caller]
fn assert_right(reshaping: &Reshaping, missing: &[usize]) {
    let read = read_all(reshaping, missing).unwrap();
    for (block, bytes) in (0..).zip(read.chunks(BLOCK as usize)) {
        assert!(bytes == content(block), "block {block} is wrong without slots {missing:?}");
    }
}

/// No member, any one and any two missing, where both geometries survive that; refused where one does not.
#[track_caller]
fn assert_right_within_the_level(old: Geometry, new: Geometry, backwards: bool) {
    let reshaping = reshaping(old, new, backwards);
    let slots = reshaping.members.len();
    let mut refused = 0;
    for first in 0..=slots {
        for second in first..=slots {
            let missing: Vec<usize> =
                [first, second].into_iter().filter(|slot| *slot < slots).collect();
            let there = |slot| !missing.contains(&slot);
            if reshaping.old.survives(there) && reshaping.new.survives(there) {
                assert_right(&reshaping, &missing);
            } else {
                let error = read_all(&reshaping, &missing).unwrap_err();
                assert!(matches!(error, AssembleError::NotEnough { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 || reshaping.old.tolerance() > 1);
}

const RAID5: Geometry = Geometry { level: Level::Raid5, layout: 2, chunk: 16 << 10, disks: 4 };
const RAID6: Geometry = Geometry { level: Level::Raid6, layout: 2, chunk: 16 << 10, disks: 5 };

#[test]
fn a_growing_and_a_shrinking_raid5() {
    let three = Geometry { disks: 3, ..RAID5 };
    assert_right_within_the_level(three, RAID5, false);
    assert_right_within_the_level(RAID5, three, true);
}

#[test]
fn a_growing_and_a_shrinking_raid6() {
    let four = Geometry { disks: 4, ..RAID6 };
    assert_right_within_the_level(four, RAID6, false);
    assert_right_within_the_level(RAID6, four, true);
}

#[test]
fn chunk_and_layout_changing_in_either_direction() {
    let other = Geometry { layout: 1, chunk: 8 << 10, ..RAID5 };
    assert_right_within_the_level(RAID5, other, false);
    assert_right_within_the_level(RAID5, other, true);
}

#[test]
fn a_raid5_becoming_a_raid6() {
    // As Linux does it: first a RAID6 with Q on a member of its own, then the reshape.
    let q_apart = Geometry { layout: 18, ..RAID6 };
    assert_right_within_the_level(Geometry { disks: 4, ..q_apart }, RAID6, false);
}

#[test]
fn a_growing_raid10() {
    let near = Geometry { level: Level::Raid10, layout: 0x102, chunk: 16 << 10, disks: 4 };
    assert_right_within_the_level(near, Geometry { disks: 6, ..near }, false);
    assert_right_within_the_level(near, Geometry { layout: 0x1_0201, ..near }, false);
}

#[test]
fn a_member_that_is_being_filled_is_read_as_far_as_it_is_valid() {
    let valid = COMPONENT / 2;
    let mut half = steady(RAID5, |superblock| superblock.recovery_offset = Some(valid / 512));
    let data = (OLD_AT * 512) as usize;
    half.members[1][data + valid as usize..data + COMPONENT as usize].fill(0xee);
    assert_right(&half, &[]);
    // The level can do without no other member beyond that place, and with one less before it.
    let error = read(&half, &[0], 0..half.size).unwrap_err();
    assert!(error.contains("data lost"), "{error}");
    let before = half.size / 2;
    let read = read(&half, &[0], 0..before).unwrap();
    assert!((0..).zip(read.chunks(BLOCK as usize)).all(|(block, bytes)| bytes == content(block)));
}

#[test]
fn recorded_bad_blocks_are_computed_and_the_blocks_beside_them_read() {
    let data = OLD_AT as usize * 512;
    let bad = 40..56;
    let mut logged = steady(RAID5, |superblock| {
        superblock.bad_blocks = true;
        superblock.bblog_offset = 16;
        superblock.bblog_size = 8;
    });
    let entry = (OLD_AT + bad.start as u64) << 10 | bad.len() as u64;
    let log = (8 + 16) * 512;
    logged.members[1][log..log + 4096].fill(0xff);
    logged.members[1][log..log + 8].copy_from_slice(&entry.to_le_bytes());
    logged.members[1][data + bad.start * 512..data + bad.end * 512].fill(0xee);
    assert_right(&logged, &[]);
    let error = read(&logged, &[2], 0..logged.size).unwrap_err();
    assert!(error.contains("data lost"), "{error}");
    let behind = (bad.end as u64 * 512 * 3).next_multiple_of(3 * RAID5.chunk);
    let read = read(&logged, &[2], behind..logged.size).unwrap();
    assert!(
        (behind / BLOCK..).zip(read.chunks(BLOCK as usize)).all(|(b, bytes)| bytes == content(b))
    );
}

#[test]
fn a_place_that_linux_does_not_record_is_warned_of() {
    let same_number = reshaping(RAID5, Geometry { chunk: 8 << 10, ..RAID5 }, false);
    let parse = |bytes: &[u8]| {
        let sectors = (MEMBER / 512) as u64;
        Superblock::parse(&bytes[4096..8192], Version::V1_2, 8, sectors).unwrap()
    };
    let said = cautions(&parse(&same_number.members[0]), false).join("\n");
    assert!(said.contains("not to be trusted"), "{said}");
    let growing = reshaping(Geometry { disks: 3, ..RAID5 }, RAID5, false);
    let said = cautions(&parse(&growing.members[0]), false).join("\n");
    assert!(said.contains("middle of a reshape") && !said.contains("trusted"), "{said}");
}
