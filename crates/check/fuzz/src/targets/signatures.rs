//! Foreign signatures: the size of a device, then what was read of it, each part as offset, length and bytes.

use super::target::{PLAIN, Target, Verdict, head, must, no_checksum};
use crate::mutate::{Field, le};
use braid_format::signature::{Areas, detect, partitions, ranges, refuse_container};
use braid_format::superblock::v0_shared_with;

/// The signatures.
pub const SIGNATURES: Target = Target {
    name: "signatures",
    what: "signatures of filesystems, partition tables, volumes and other arrays",
    fields: FIELDS,
    fix: no_checksum,
    run,
    ..PLAIN
};

const FIELDS: &[Field] =
    &[le(0, 8), le(8, 8), le(16, 2), le(18, 4), le(22, 4), le(26, 8), le(34, 8), le(464, 4)];

/// Parts that are looked at; each is searched for every probe.
const PARTS: usize = 32;

fn run(input: &[u8]) -> Result<Verdict, String> {
    let (size, mut rest) = head::<8>(input);
    let size = u64::from_le_bytes(size);
    let mut areas = Areas::new();
    for _ in 0..PARTS {
        if rest.is_empty() {
            break;
        }
        let (offset, after) = head::<8>(rest);
        let (len, after) = head::<2>(after);
        let (bytes, after) = after.split_at(after.len().min(u16::from_le_bytes(len).into()));
        areas.push(u64::from_le_bytes(offset), bytes.to_vec());
        rest = after;
    }
    for (offset, len) in ranges(size) {
        must(
            offset.checked_add(len as u64).is_some_and(|end| end <= size),
            "ranges are in the device",
        )?;
    }
    let found = detect(size, &areas);
    for signature in &found {
        must(
            !signature.kind.is_empty() && signature.len > 0,
            "a signature has a kind and a length",
        )?;
        let len = usize::try_from(signature.len).unwrap_or(usize::MAX);
        must(areas.get(signature.at, len).is_some(), "a signature was read")?;
        must(!signature.what.contains(char::is_control), "a description is fit for a terminal")?;
    }
    if let Err(error) = refuse_container(&found) {
        must(error.to_string().contains("mdadm"), "a container's refusal says what to do")?;
    }
    let parts = partitions(&areas);
    must(parts.len() <= 1024, "no table has more partitions")?;
    v0_shared_with(size / 512, &parts);
    Ok(if found.is_empty() { Verdict::Refused } else { Verdict::Accepted })
}
