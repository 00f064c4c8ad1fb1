//! The journal: uuid, data_size, tail, size of the components, then the ring from its start.

use super::target::{PLAIN, Target, Verdict, head, must};
use crate::mutate::{Field, le};
use braid_format::journal::{BLOCK, Found, Meta, Recovery, Walk};
use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// The journal.
pub const JOURNAL: Target = Target {
    name: "journal",
    what: "journal device: meta blocks, the walk, and what recovery takes from it",
    fields: FIELDS,
    fix,
    run,
    ..PLAIN
};

const RING: usize = 40;

const FIELDS: &[Field] = &[
    le(16, 8),
    le(24, 8),
    le(32, 8),
    le(RING, 4),
    le(RING + 8, 1),
    le(RING + 12, 4),
    le(RING + 16, 8),
    le(RING + 24, 8),
    le(RING + 32, 2),
    le(RING + 34, 2),
    le(RING + 36, 4),
    le(RING + 40, 8),
    le(RING + 52, 2),
    le(RING + 56, 4),
    le(RING + 60, 8),
    le(RING + 72, 2),
    le(RING + 76, 4),
];

fn run(input: &[u8]) -> Result<Verdict, String> {
    let (set_uuid, rest) = head::<16>(input);
    let (data_size, rest) = head::<8>(rest);
    let (tail, rest) = head::<8>(rest);
    let (size, ring) = head::<8>(rest);
    let size = u64::from_le_bytes(size);
    let walk = Walk::new(&set_uuid, u64::from_le_bytes(data_size), u64::from_le_bytes(tail));
    let Ok(mut walk) = walk else { return Ok(Verdict::Refused) };
    // RAID5 of 4 with chunks of 64 KiB, rows as they follow each other.
    let row_of =
        |sector: u64| sector.is_multiple_of(8).then_some(sector / 384 * 128 + sector % 128);
    let mut recovery = Recovery::new(size, row_of);
    let mut steps = 0;
    let end = loop {
        let at = walk.position();
        let block = usize::try_from(at).ok().and_then(|at| ring.get(at.checked_mul(512)?..));
        match walk.step(block.unwrap_or_default()) {
            Ok(found) => {
                check(&found, &walk)?;
                recovery.take(&found);
            }
            Err(end) => break end,
        }
        steps += 1;
        must(steps <= ring.len() / BLOCK, "a walk visits no block twice")?;
    };
    must(!end.to_string().is_empty(), "an end has a reason")?;
    let (complete, cached) = recovery.finish();
    must(
        complete.iter().all(|row| row.p.is_some() && !row.data.is_empty()),
        "a complete row has both",
    )?;
    must(
        cached.iter().all(|row| row.p.is_none() && !row.data.is_empty()),
        "a cached row has data only",
    )?;
    for row in complete.iter().chain(&cached) {
        let own = row.data.iter().all(|(sector, _)| row_of(*sector) == Some(row.row));
        must(own, "data belongs to its row")?;
    }
    Ok(if steps > 0 { Verdict::Accepted } else { Verdict::Refused })
}

fn check(found: &Found, walk: &Walk) -> Result<(), String> {
    must(found.blocks.len() == found.meta.checksums().count(), "each checksum has a block")?;
    must(found.blocks.iter().all(|block| block.is_multiple_of(8)), "blocks are blocks")?;
    must(walk.seq() == Some(found.meta.seq.wrapping_add(1)), "the sequence goes on")?;
    let written = found.meta.to_bytes(walk.seed()).ok_or("a block that was read does not fit")?;
    must(
        Meta::parse(&written, walk.seed()).as_ref() == Ok(&found.meta),
        "what is written is read back",
    )
}

/// Every block that looks like a meta block gets its checksum.
fn fix(input: &mut [u8]) {
    let Some((head, ring)) = input.split_at_mut_checked(RING) else { return };
    let register = |state: u32, bytes: &[u8]| {
        let mut digest = Digest::new_with_init_state(Crc32Iscsi, state.into());
        digest.update(bytes);
        digest.get_state() as u32
    };
    let seed = register(u32::MAX, &head[..16]);
    for block in ring.chunks_exact_mut(BLOCK) {
        if block.starts_with(&[0x09, 0xc5, 0x33, 0x64]) {
            block[4..8].fill(0);
            let checksum = register(seed, block);
            block[4..8].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}
