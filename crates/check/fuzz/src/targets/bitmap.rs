//! The write-intent bitmap: an input is its area.

use super::target::{PLAIN, Target, Verdict, must, no_checksum};
use crate::mutate::{Field, le};
use braid_format::bitmap::{BitmapSuperblock, Bits, HEADER, MAX_BITS, area_len};

/// The bitmap.
pub const BITMAP: Target = Target {
    name: "bitmap",
    what: "write-intent bitmap: superblock and bits",
    fields: FIELDS,
    fix: no_checksum,
    run,
    ..PLAIN
};

const FIELDS: &[Field] = &[
    le(0, 4),
    le(4, 4),
    le(24, 8),
    le(32, 8),
    le(40, 8),
    le(48, 4),
    le(52, 4),
    le(56, 4),
    le(60, 4),
    le(64, 4),
    le(68, 4),
    le(256, 8),
    le(264, 8),
];

fn run(input: &[u8]) -> Result<Verdict, String> {
    let Ok(bitmap) = BitmapSuperblock::parse(input) else { return Ok(Verdict::Refused) };
    let written = bitmap.to_bytes();
    must(
        BitmapSuperblock::parse(&written).as_ref() == Ok(&bitmap),
        "what is written is read back",
    )?;
    let bits = bitmap.bits();
    must(bits <= MAX_BITS && area_len(bits) <= 300 << 20, "no bitmap is larger than can be held")?;
    let _ = (bitmap.must_resync_all(0), bitmap.must_resync_all(u64::MAX));
    for bit in [0, 1, bits.saturating_sub(1), bits, u64::MAX] {
        let sectors = bitmap.sectors_of(bit);
        must(
            sectors.start <= sectors.end && sectors.end <= bitmap.sync_size,
            "a bit covers sectors",
        )?;
        if !sectors.is_empty() {
            must(bitmap.bits_of(sectors) == (bit..bit + 1), "a bit's sectors are its own")?;
        }
    }
    let mut area = Bits::from_area(input, bits);
    must(
        area.len() <= bits && area.bytes().len() == input.len() - HEADER,
        "bits are those in the area",
    )?;
    let set: Vec<u64> = area.iter_set().collect();
    must(set.iter().all(|bit| *bit < area.len() && area.get(*bit)), "set bits exist")?;
    for bit in set {
        must(
            area.clear(bit) && !area.get(bit) && area.set(bit),
            "a set bit can be cleared and set",
        )?;
    }
    must(area.get(area.len()) && area.get(u64::MAX), "a bit that is not there counts as set")?;
    Ok(Verdict::Accepted)
}
