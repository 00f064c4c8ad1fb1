//! The superblocks of a volume's brick: the size of the device, then the first copy and the second.

use super::target::{PLAIN, Target, Verdict, head, must};
use crate::mutate::{Field, le};
use braid_format::brick::{
    BLOCK, BrickSuperblock, Chosen, Copy, SUPERBLOCK_LEN, choose, second_copy_at,
};

/// The two copies.
pub const BRICK: Target = Target {
    name: "brick",
    what: "superblocks of a volume's brick, and which of the two counts",
    fields: FIELDS,
    fix,
    run,
    ..PLAIN
};

const FIRST: usize = 8;
const SECOND: usize = FIRST + SUPERBLOCK_LEN;

const FIELDS: &[Field] = &[
    le(0, 8),
    le(FIRST + 16, 4),
    le(FIRST + 24, 8),
    le(FIRST + 32, 8),
    le(FIRST + 72, 1),
    le(FIRST + 136, 2),
    le(FIRST + 138, 2),
    le(FIRST + 140, 2),
    le(FIRST + 142, 2),
    le(FIRST + 144, 8),
    le(FIRST + 152, 8),
    le(FIRST + 160, 8),
    le(FIRST + 168, 4),
    le(FIRST + 172, 4),
    le(FIRST + 176, 8),
    le(FIRST + 184, 8),
    le(FIRST + 192, 8),
    le(FIRST + 200, 8),
    le(FIRST + 208, 8),
    le(FIRST + 224, 8),
    le(FIRST + 232, 2),
    le(FIRST + 234, 2),
    le(FIRST + 236, 2),
    le(FIRST + 240, 2),
    le(FIRST + 242, 2),
    le(FIRST + 244, 2),
    le(FIRST + 496, 8),
    le(FIRST + 504, 2),
    le(FIRST + 512, 8),
    le(FIRST + 520, 2),
    le(FIRST + 2544, 8),
    le(FIRST + 2552, 8),
    le(FIRST + 2560, 8),
    le(FIRST + 2568, 8),
    le(SECOND + 56, 8),
    le(SECOND + 140, 2),
    le(SECOND + 152, 8),
    le(SECOND + 160, 8),
    le(SECOND + 172, 4),
    le(SECOND + 224, 8),
];

fn run(input: &[u8]) -> Result<Verdict, String> {
    let (size, copies) = head::<8>(input);
    let size = u64::from_le_bytes(size);
    let (one, two) = copies.split_at(copies.len().min(SUPERBLOCK_LEN));
    let end = second_copy_at(size).unwrap_or(BLOCK);
    let read = [(0, one), (end, two)].map(|(at, bytes)| BrickSuperblock::parse(bytes, at, size));
    for superblock in read.iter().flatten() {
        let mut areas: Vec<_> = superblock.metadata_areas().collect();
        areas.push(superblock.data);
        for area in &areas {
            let stop = area.offset.checked_add(area.len);
            let room = superblock.brick_size - BLOCK;
            must(stop.is_some_and(|stop| stop <= room), "an area ends before the second copy")?;
            must(area.len == 0 || area.offset >= BLOCK, "an area begins behind the first copy")?;
        }
        areas.retain(|area| area.len > 0);
        areas.sort_by_key(|area| area.offset);
        let apart = areas.is_sorted_by(|one, two| one.offset + one.len <= two.offset);
        must(apart, "areas share no byte")?;
        must(superblock.brick_size <= size, "a brick is in its device")?;
        let written = BrickSuperblock::parse(&superblock.to_bytes(), 0, size);
        must(written.as_ref() == Ok(superblock), "what is written is read back")?;
    }
    match choose(Some(one), Some((end, two)), size) {
        Ok(Chosen { superblock, from, other_is_stale, other }) => {
            let [one, two] = &read;
            let (taken, left) = if from == Copy::First { (one, two) } else { (two, one) };
            must(taken.as_ref() == Ok(&superblock), "the copy that counts is one of the two")?;
            must(other.as_ref() == left.as_ref().err(), "what is wrong with the other is said")?;
            must(other_is_stale == (left.as_ref() != Ok(&superblock)), "a stale copy is told")?;
            let newer = left.as_ref().is_ok_and(|left| left.generation > superblock.generation);
            must(!newer, "no copy that counts less is newer")?;
            let ids = &superblock.brick_ids;
            must(ids.iter().all(|id| ids.contains(id)), "every id that is told is known")?;
            Ok(Verdict::Accepted)
        }
        Err(error) => {
            must(!error.to_string().contains(char::is_control), "an error fits a terminal")?;
            Ok(Verdict::Refused)
        }
    }
}

/// Both copies get their checksums.
fn fix(input: &mut [u8]) {
    let Some(copies) = input.get_mut(FIRST..) else { return };
    for copy in copies.chunks_exact_mut(SUPERBLOCK_LEN) {
        copy[20..24].fill(0);
        let checksum = crc_fast::crc32_iscsi(copy);
        copy[20..24].copy_from_slice(&checksum.to_le_bytes());
    }
}
