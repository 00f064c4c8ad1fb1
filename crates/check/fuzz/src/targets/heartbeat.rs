//! The heartbeat: an input is its block.

use super::target::{PLAIN, Target, Verdict, must};
use crate::mutate::{Field, le};
use braid_format::heartbeat::{Found, Heartbeat, LEN};

/// The heartbeat.
pub const HEARTBEAT: Target = Target {
    name: "heartbeat",
    what: "heartbeat of whoever uses an array",
    fields: FIELDS,
    fix,
    run,
    ..PLAIN
};

const FIELDS: &[Field] = &[le(8, 4), le(12, 4), le(64, 8), le(72, 8), le(80, 4), le(88, 1)];

fn run(input: &[u8]) -> Result<Verdict, String> {
    match Found::parse(input) {
        Found::Nothing => must(input.iter().all(|byte| *byte == 0), "nothing is only zeroes")?,
        Found::Foreign => return Ok(Verdict::Refused),
        Found::Beat(beat) => {
            must(beat.host.len() <= 3 * 64, "a name is no longer than its field")?;
            let written = beat.to_bytes();
            must(written.len() == LEN, "a block has its length")?;
            // Bytes that are no UTF-8 become longer ones, of which the last may not fit.
            let cut = |beat: &Heartbeat| Heartbeat { host: String::new(), ..beat.clone() };
            let Found::Beat(again) = Found::parse(&written) else {
                return Err("refuses its own".to_string());
            };
            must(cut(&again) == cut(&beat), "what is written is read back")?;
            must(beat.host.starts_with(&again.host), "a name is read back, or its beginning")?;
        }
    }
    Ok(Verdict::Accepted)
}

fn fix(input: &mut [u8]) {
    if let Some(used) = input.first_chunk_mut::<512>() {
        used[8..12].fill(0);
        let sum = crc_fast::crc32_iscsi(used);
        used[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}
