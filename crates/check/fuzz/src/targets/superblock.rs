//! Superblocks: two bytes choose the version and the member's size, the rest is what was read there.

use super::target::{PLAIN, Target, Verdict, head, must};
use crate::mutate::{Field, le};
use braid_format::superblock::{Role, Superblock, SuperblockError, Version, location};

/// Version 1.x.
pub const V1: Target = Target {
    name: "superblock-1",
    what: "md superblock, versions 1.0, 1.1 and 1.2",
    fields: V1_FIELDS,
    fix: fix_v1,
    run: |input| run(input, &[Version::V1_0, Version::V1_1, Version::V1_2]),
    ..PLAIN
};

/// Version 0.90.
pub const V0: Target = Target {
    name: "superblock-0",
    what: "md superblock, version 0.90",
    fields: V0_FIELDS,
    fix: fix_v0,
    run: |input| run(input, &[Version::V0_90]),
    ..PLAIN
};

/// Fields of inputs, whose superblock begins at byte 2.
pub(super) const V1_FIELDS: &[Field] = &[
    le(0, 1),
    le(1, 1),
    le(6, 4),
    le(10, 4),
    le(10, 2),
    le(74, 4),
    le(78, 4),
    le(82, 8),
    le(90, 4),
    le(94, 4),
    le(98, 4),
    le(98, 2),
    le(100, 2),
    le(102, 4),
    le(106, 8),
    le(114, 4),
    le(118, 4),
    le(122, 4),
    le(126, 4),
    le(130, 8),
    le(138, 8),
    le(146, 8),
    le(154, 8),
    le(162, 4),
    le(166, 4),
    le(186, 1),
    le(187, 1),
    le(188, 2),
    le(190, 4),
    le(194, 8),
    le(202, 8),
    le(210, 8),
    le(222, 4),
    le(226, 4),
    le(230, 4),
    le(258, 2),
    le(260, 2),
    le(262, 2),
    le(264, 2),
];

/// The same of version 0.90.
pub(super) const V0_FIELDS: &[Field] = &[
    le(1, 1),
    le(6, 4),
    le(10, 4),
    le(14, 4),
    le(30, 4),
    le(34, 4),
    le(38, 4),
    le(42, 4),
    le(130, 4),
    le(134, 4),
    le(158, 8),
    le(166, 8),
    le(174, 4),
    le(178, 8),
    le(186, 4),
    le(190, 4),
    le(194, 4),
    le(198, 4),
    le(258, 4),
    le(262, 4),
    le(514, 4),
    le(526, 4),
    le(530, 4),
    le(642, 4),
    le(654, 4),
    le(658, 4),
    le(770, 4),
    le(782, 4),
    le(786, 4),
    le(898, 4),
    le(910, 4),
    le(914, 4),
    le(3970, 4),
    le(3974, 4),
    le(3978, 4),
    le(3982, 4),
    le(3986, 4),
];

/// Sectors of the members that inputs are read from.
const SIZES: [u64; 4] = [16_384, 8192, 1 << 33, u64::MAX];

fn run(input: &[u8], versions: &[Version]) -> Result<Verdict, String> {
    let ([version, size], bytes) = head::<2>(input);
    let version = versions[usize::from(version) % versions.len()];
    let sectors = SIZES[usize::from(size) % SIZES.len()];
    let at = location(version, sectors).unwrap_or(0);
    let read = |bytes: &[u8]| Superblock::parse(bytes, version, at, sectors);
    let sb = match read(bytes) {
        Ok(sb) => sb,
        Err(error) => return refused(&error, at),
    };
    use_all(&sb)?;
    let written = sb.to_bytes();
    must(
        written.len() <= 4096 && written.len().is_multiple_of(512),
        "a superblock has whole sectors",
    )?;
    let again = read(&written).map_err(|error| format!("refuses what it wrote: {error}"))?;
    if version == Version::V0_90 {
        // Members may be renumbered once, then nothing changes any more. A slot has one holder, the first.
        let role = sb.own_role();
        let first = (0..sb.dev_number).all(|other| sb.role_of(other) != role);
        let kept = again.own_role() == role || (!first && again.own_role() == Role::Spare);
        must(kept, "0.90 keeps the role")?;
        let twice =
            read(&again.to_bytes()).map_err(|error| format!("refuses what it wrote: {error}"))?;
        must(
            twice == again && twice.to_bytes() == again.to_bytes(),
            "0.90 written twice is the same",
        )?;
    } else {
        must(again == sb, "what is written is read back")?;
        let map = bytes.get(8..12).unwrap_or_default();
        if sb.features().bits().to_le_bytes() == map {
            let len = 256 + 2 * sb.roles.len();
            must(
                written.get(..len) == bytes.get(..len),
                "what was read is written with the same bytes",
            )?;
        }
    }
    Ok(Verdict::Accepted)
}

/// What is derived from the numbers must not overflow, and areas must be ranges.
fn use_all(sb: &Superblock) -> Result<(), String> {
    let _ = (sb.slots(), sb.features().to_string(), sb.bitmap_uuid(), sb.is_twin_of(sb));
    let _ = (sb.reshape_position_is_doubtful(), sb.set_name.escaped());
    for dev in [0, 1, sb.dev_number, 26, 27, u32::MAX] {
        sb.role_of(dev);
    }
    let areas = sb.areas();
    must(areas.iter().all(|area| area.sectors.start < area.sectors.end), "areas are not empty")
}

fn refused(error: &SuperblockError, at: u64) -> Result<Verdict, String> {
    let text = error.to_string();
    must(text.contains(&at.to_string()), "an error names the place")?;
    Ok(Verdict::Refused)
}

/// The superblock begins behind the two choosing bytes.
fn fix_v1(input: &mut [u8]) {
    if let Some(block) = input.get_mut(2..) {
        seal_v1(block);
    }
}

/// The sum of words of a 1.x superblock, its own taken as zero.
pub(super) fn seal_v1(block: &mut [u8]) {
    let Some(max_dev) = block.get(220..224) else { return };
    let max_dev = u32::from_le_bytes(max_dev.try_into().unwrap_or_default()).min(1920) as usize;
    let len = (256 + 2 * max_dev).min(block.len());
    seal(&mut block[..len], 216);
}

fn fix_v0(input: &mut [u8]) {
    if let Some(block) = input.get_mut(2..) {
        seal_v0(block);
    }
}

/// The same of a 0.90 superblock.
pub(super) fn seal_v0(block: &mut [u8]) {
    if let Some(block) = block.get_mut(..4096) {
        seal(block, 152);
    }
}

fn seal(block: &mut [u8], at: usize) {
    let mut sum = 0u64;
    block[at..at + 4].fill(0);
    for word in block.chunks(4) {
        let mut whole = [0; 4];
        whole[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(whole));
    }
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[at..at + 4].copy_from_slice(&folded.to_le_bytes());
}
