//! The header of a metadata region: what says that it holds an image, and of how many blocks.
//!
//! What this module does not know: what is behind it.

use super::{blocks_in, failed};
use crate::StoreError;
use crate::mirror::Mirror;
use crate::region::BLOCK;
use crate::sums::{SECTOR, is_sealed, seal};

const MAGIC: [u8; 8] = *b"braid-kv";
const VERSION: u32 = 1;

/// Where the version, the state and the number of blocks stand.
const VERSION_AT: usize = 8;
const STATE_AT: usize = 12;
const BLOCKS_AT: usize = 16;

/// The number that the header's sum begins with: no block's.
const NUMBER: u64 = u64::MAX;

/// What is behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// An image.
    Whole = 0,
    /// Something between two images: it was being made equal to the other half. The state before may be gone, and the
    /// other one is not all there.
    Unequal = 1,
}

/// Why a header cannot be used; follows the name of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("holds no store")]
    NoStore,
    #[error("has a damaged header")]
    Damaged,
    #[error("is of version {0}, and this is {VERSION}")]
    Version(u32),
    #[error("was being made equal to its copy when that was interrupted")]
    Unequal,
    #[error("should have {stored} blocks, and {there} are there")]
    Size { stored: u64, there: u64 },
    #[error("has {stored} blocks, and its copy {other}")]
    Disagrees { stored: u64, other: u64 },
}

/// The header of an image of so many blocks.
pub(super) fn block(blocks: u64, state: State) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..MAGIC.len()].copy_from_slice(&MAGIC);
    block[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
    block[STATE_AT..STATE_AT + 4].copy_from_slice(&(state as u32).to_le_bytes());
    block[BLOCKS_AT..BLOCKS_AT + 8].copy_from_slice(&blocks.to_le_bytes());
    seal(NUMBER, &mut block[..SECTOR]);
    block
}

/// The number of blocks that the headers of all halves tell, and what is behind those that are kept. A half whose header
/// cannot be read or used is let go, when the other's can: what is behind it may be anything. So is one that is not
/// [whole](State::Whole); without the other it is kept.
///
/// # Errors
/// When no header can be used, or one is of another version.
pub(super) fn read(mirror: &mut Mirror) -> Result<(u64, State), StoreError> {
    let mut known = None;
    let mut unequal = None;
    let mut unusable = Vec::new();
    for half in mirror.held() {
        let mut block = vec![0; BLOCK];
        if let Err(error) = mirror.read_half(half, 0, &mut block) {
            unusable.push((half, failed("reading", &error)));
            continue;
        }
        let there = blocks_in(mirror.size_of(half));
        let parsed = parse(&block).and_then(|(stored, state)| match known {
            _ if stored == 0 || stored > there => Err(HeaderError::Size { stored, there }),
            Some(other) if other != stored => Err(HeaderError::Disagrees { stored, other }),
            _ => Ok((stored, state)),
        });
        let name = mirror.name(half);
        match parsed {
            Ok((stored, State::Whole)) => known = Some(stored),
            Ok((stored, State::Unequal)) => {
                let why =
                    StoreError::Damaged(format!("the region on {name} {}", HeaderError::Unequal));
                unequal = unequal.or(Some((half, stored)));
                unusable.push((half, why));
            }
            Err(why) => {
                let error = StoreError::Damaged(format!("the region on {name} {why}"));
                if let HeaderError::Version(_) = why {
                    // Its copy is of before somebody changed the format.
                    return Err(error);
                }
                unusable.push((half, error));
            }
        }
    }
    let (known, state) = match (known, unequal) {
        (None, Some((half, stored))) => {
            unusable.retain(|(other, _)| *other != half);
            (Some(stored), State::Unequal)
        }
        _ => (known, State::Whole),
    };
    let Some(known) = known else {
        let first = unusable.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| StoreError::Failed("there is no region".to_string())));
    };
    for (half, error) in unusable {
        mirror.drop_half(half, &error.to_string()).map_err(|error| failed("opening", &error))?;
    }
    Ok((known, state))
}

fn parse(block: &[u8]) -> Result<(u64, State), HeaderError> {
    if !block.starts_with(&MAGIC) {
        return Err(HeaderError::NoStore);
    }
    if !block.get(..SECTOR).is_some_and(|sector| is_sealed(NUMBER, sector)) {
        return Err(HeaderError::Damaged);
    }
    let number = |at: usize| {
        let bytes = block.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    if number(VERSION_AT) != VERSION {
        return Err(HeaderError::Version(number(VERSION_AT)));
    }
    let state = match number(STATE_AT) {
        0 => State::Whole,
        1 => State::Unequal,
        _ => return Err(HeaderError::Damaged),
    };
    let blocks = block.get(BLOCKS_AT..).and_then(|bytes| bytes.first_chunk());
    let blocks = blocks.map(|bytes| u64::from_le_bytes(*bytes));
    blocks.map(|blocks| (blocks, state)).ok_or(HeaderError::Damaged)
}
