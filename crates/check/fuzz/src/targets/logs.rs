//! The bad-block log (a byte for its shift, then the log) and the partial parity log (uuid, shape of the array,
//! then a member's area).

use super::target::{PLAIN, Target, Verdict, head, must, no_checksum};
use crate::mutate::{Field, le};
use braid_format::{SECTOR, badblocks, ppl};

/// The bad-block log.
pub const BAD_BLOCKS: Target = Target {
    name: "bad-blocks",
    what: "bad-block log of a member",
    fields: &[le(0, 1), le(1, 8), le(9, 8), le(17, 8), le(25, 8)],
    fix: no_checksum,
    run: run_bad_blocks,
    ..PLAIN
};

/// The partial parity log.
pub const PPL: Target = Target {
    name: "ppl",
    what: "partial parity log: headers, units, and what recovery takes from them",
    fields: PPL_FIELDS,
    fix: fix_ppl,
    run: run_ppl,
    ..PLAIN
};

fn run_bad_blocks(input: &[u8]) -> Result<Verdict, String> {
    let ([shift], log) = head::<1>(input);
    let Ok(ranges) = badblocks::parse(log, shift) else { return Ok(Verdict::Refused) };
    must(ranges.len() <= log.len() / 8, "no more ranges than entries")?;
    must(ranges.iter().all(|range| range.start < range.end), "no range is empty")?;
    let sectors = u16::try_from(log.len() / SECTOR).unwrap_or(u16::MAX);
    if let Ok(written) = badblocks::encode(&ranges, shift, sectors) {
        let again = badblocks::parse(&written, shift)
            .map_err(|error| format!("refuses its own: {error}"))?;
        let covered = |range: &std::ops::Range<u64>| {
            let mut at = range.start;
            // Ranges come sorted, so one pass follows them.
            for other in again.iter().filter(|other| other.end > range.start) {
                if other.start <= at {
                    at = at.max(other.end);
                }
            }
            at >= range.end
        };
        must(ranges.iter().all(covered), "a log written again covers every range")?;
        let twice = badblocks::encode(&again, shift, sectors);
        must(twice.as_ref() == Ok(&written), "a log written twice is the same")?;
    }
    Ok(Verdict::Accepted)
}

/// uuid 0..16, chunk sectors 16..20, slots 20..24, size 24..32, slot 32..36; the area from 36 on.
const SHAPE: usize = 36;

const PPL_FIELDS: &[Field] = &[
    le(16, 4),
    le(20, 4),
    le(24, 8),
    le(32, 4),
    le(SHAPE + 512, 4),
    le(SHAPE + 520, 8),
    le(SHAPE + 528, 4),
    le(SHAPE + 536, 8),
    le(SHAPE + 544, 4),
    le(SHAPE + 548, 4),
    le(SHAPE + 552, 4),
    le(SHAPE + 556, 4),
    le(SHAPE + 560, 8),
    le(SHAPE + 568, 4),
    le(SHAPE + 572, 4),
    le(SHAPE + 576, 4),
    le(SHAPE + 580, 4),
];

fn run_ppl(input: &[u8]) -> Result<Verdict, String> {
    let (set_uuid, rest) = head::<16>(input);
    let (chunk, rest) = head::<4>(rest);
    let (disks, rest) = head::<4>(rest);
    let (size, rest) = head::<8>(rest);
    let (slot, area) = head::<4>(rest);
    let (chunk_sectors, raid_disks) = (u32::from_le_bytes(chunk), u32::from_le_bytes(disks));
    let (size, slot) = (u64::from_le_bytes(size), u32::from_le_bytes(slot));
    let shape = ppl::Shape { chunk_sectors, raid_disks, size };
    let Some(unit) = ppl::newest(area, &set_uuid) else { return Ok(Verdict::Refused) };
    let header = unit.header.to_bytes(&set_uuid);
    must(
        ppl::Header::parse(&header, &set_uuid).as_ref() == Ok(&unit.header),
        "what is written is read back",
    )?;
    let rotating = |stripe: u64| {
        // Left-symmetric.
        let disks = u64::from(raid_disks.max(1));
        (disks - 1 - stripe % disks) as u32
    };
    let recovered = ppl::recover(area, &set_uuid, &shape, slot, rotating);
    let entries = unit.header.entries.len();
    must(
        recovered.replays.len() + recovered.mismatches.len() == entries,
        "each entry is taken or refused",
    )?;
    for replay in recovered.replays.iter().chain(&recovered.in_doubt) {
        let rows = replay.rows.end - replay.rows.start;
        let chunk = u64::from(chunk_sectors);
        must(
            replay.rows.start < replay.rows.end && replay.rows.end <= size,
            "rows are in the component",
        )?;
        must(replay.rows.start / chunk == (replay.rows.end - 1) / chunk, "rows are in one stripe")?;
        must(
            replay.data.start < replay.data.end && replay.data.end < raid_disks,
            "data chunks exist",
        )?;
        must(replay.parity_slot == slot && slot == rotating(replay.stripe), "parity is here")?;
        let partial = replay.partial_parity.map_or(rows, |bytes| (bytes.len() / SECTOR) as u64);
        must(partial == rows, "partial parity has a block for each row")?;
    }
    let clean = ppl::clean_after([&recovered]);
    must(!clean || recovered.mismatches.is_empty(), "a mismatch is never clean")?;
    for mismatch in &recovered.mismatches {
        must(mismatch.to_string().contains("resync"), "a mismatch says what follows")?;
    }
    Ok(Verdict::Accepted)
}

fn fix_ppl(input: &mut [u8]) {
    let Some((shape, area)) = input.split_at_mut_checked(SHAPE) else { return };
    let signature = crc(&shape[..16]).to_le_bytes();
    // Headers begin where the units before them end; where a length is wrong, whatever stands there.
    let mut at = 0;
    for _ in 0..4 {
        let Some(unit) = area.get_mut(at..) else { return };
        let Some(header) = unit.first_chunk_mut::<4096>() else { return };
        header[512..516].copy_from_slice(&signature);
        header[532..536].fill(0);
        let count =
            u32::from_le_bytes([header[528], header[529], header[530], header[531]]).min(148);
        let mut total = 0usize;
        for entry in (0..count as usize).map(|entry| 536 + 24 * entry) {
            let size =
                [header[entry + 8], header[entry + 9], header[entry + 10], header[entry + 11]];
            total = total.saturating_add(u32::from_le_bytes(size) as usize);
        }
        let checksum = crc(header);
        header[532..536].copy_from_slice(&checksum.to_le_bytes());
        at = at.saturating_add(4096).saturating_add(total / 512 * 512);
    }
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}
