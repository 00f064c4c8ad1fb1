//! The table of buckets as it is stored in a volume's metadata.

use super::target::{PLAIN, Target, Verdict, must};
use crate::mutate::{Field, le};
use braid_layout::buckets::{BUCKETS as COUNT, Buckets};

/// The table.
pub const BUCKETS: Target = Target {
    name: "buckets",
    what: "table of buckets: which brick takes which stripe",
    fields: FIELDS,
    fix,
    run,
    ..PLAIN
};

/// With more bricks a bucket takes two bytes.
const NARROW: usize = 256;

const FIELDS: &[Field] = &[le(0, 2), le(2, 2), le(4, 2), le(6, 2), le(8, 2), le(10, 2)];

fn run(input: &[u8]) -> Result<Verdict, String> {
    let table = match Buckets::from_bytes(input) {
        Ok(table) => table,
        Err(error) => {
            must(!error.to_string().contains(char::is_control), "an error fits a terminal")?;
            return Ok(Verdict::Refused);
        }
    };
    must(table.to_bytes() == input, "what is written is what was read")?;
    let mut rows = table.clone();
    must(rows.read_row(input).is_err(), "no bucket has a brick twice")?;
    rows.read_row(&[1, 0, 0, 0]).map_err(|error| format!("a row without bricks: {error}"))?;
    must(rows.row_to_bytes(1).is_some_and(|row| row == [1, 0, 0, 0]), "and is written as it was")?;
    let sum: usize = table.bricks().map(|(_, share)| share).sum();
    must(sum == COUNT, "every bucket is a brick's")?;
    let ids: Vec<u16> = table.bricks().map(|(id, _)| id).collect();
    must(ids.is_sorted_by(|one, two| one < two), "ids ascend")?;
    for stripe in [0, 1, 63, COUNT as u64, u64::MAX] {
        let brick = table.brick_of(u64::MAX - stripe, stripe);
        must(table.share(brick) > 0, "a stripe goes to a brick with buckets")?;
        let other = table.next_other(stripe, stripe, |id| id != brick);
        must(other.is_some() == (ids.len() > 1), "another brick is found where there is one")?;
    }
    Ok(Verdict::Accepted)
}

/// Every bucket becomes a brick's.
fn fix(input: &mut [u8]) {
    let Some(count) = input.get(2..4).map(|pair| usize::from(pair[0]) | usize::from(pair[1]) << 8)
    else {
        return;
    };
    let Some(buckets) = input.get_mut(4 + 2 * count..).filter(|_| count > 0) else { return };
    if count <= NARROW {
        for place in buckets {
            // Below the number of bricks, which is at most 256.
            *place = (usize::from(*place) % count) as u8;
        }
        return;
    }
    for pair in buckets.chunks_exact_mut(2) {
        let place = (usize::from(pair[0]) | usize::from(pair[1]) << 8) % count;
        // A number of 16 bits.
        pair.copy_from_slice(&(place as u16).to_le_bytes());
    }
}
