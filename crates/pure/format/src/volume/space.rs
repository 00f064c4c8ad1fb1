//! The free space of a brick. A group record has a bit for each of 32,768 blocks, set if the block is in use: bit n of byte m
//! is block 8m + n. A usage record has the number of blocks in use for each of 1,024 such groups.

use super::RecordError;

/// Blocks of one group.
pub const GROUP_BLOCKS: u64 = 32768;
/// Groups of one record of usage.
pub const PER_USAGE: u32 = 1024;
/// Words of a group's bitmap.
pub const WORDS: usize = GROUP_BLOCKS as usize / 64;

/// The record of a group; `None` when no block is in use, since such a group has no record.
pub fn encode_blocks(words: &[u64; WORDS]) -> Option<Vec<u8>> {
    words
        .iter()
        .any(|word| *word != 0)
        .then(|| words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Reads the record of a group.
///
/// # Errors
/// When its length is wrong.
pub fn parse_blocks(
    brick: u16,
    group: u32,
    bytes: &[u8],
) -> Result<Box<[u64; WORDS]>, RecordError> {
    let (rows, []) = bytes.as_chunks::<8>() else { return Err(wrong(brick, group)) };
    if rows.len() != WORDS {
        return Err(wrong(brick, group));
    }
    let mut words = Box::new([0; WORDS]);
    for (word, row) in words.iter_mut().zip(rows) {
        *word = u64::from_le_bytes(*row);
    }
    Ok(words)
}

/// The usage record of some groups; `None` when no block of them is in use.
pub fn encode_usage(used: &[u16]) -> Option<Vec<u8>> {
    let count = used.iter().rposition(|used| *used != 0)? + 1;
    Some(used[..count].iter().flat_map(|used| used.to_le_bytes()).collect())
}

/// Reads a record of usage.
///
/// # Errors
/// When its length is wrong, or a group has more blocks in use than it has.
pub fn parse_usage(brick: u16, index: u32, bytes: &[u8]) -> Result<Vec<u16>, RecordError> {
    let (rows, []) = bytes.as_chunks::<2>() else { return Err(wrong(brick, index)) };
    let used: Vec<u16> = rows.iter().map(|row| u16::from_le_bytes(*row)).collect();
    if used.len() > PER_USAGE as usize || used.iter().any(|used| u64::from(*used) > GROUP_BLOCKS) {
        return Err(wrong(brick, index));
    }
    Ok(used)
}

fn wrong(brick: u16, group: u32) -> RecordError {
    RecordError::new(format!("free space of brick {brick}, part {group}"), "wrong length or count")
}
