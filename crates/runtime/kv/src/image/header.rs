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

/// Where the version and the number of blocks stand.
const VERSION_AT: usize = 8;
const BLOCKS_AT: usize = 16;

/// The number that the header's sum begins with: no block's.
const NUMBER: u64 = u64::MAX;

/// Why a header cannot be used; follows the name of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("holds no store")]
    NoStore,
    #[error("has a damaged header")]
    Damaged,
    #[error("is of version {0}, and this is {VERSION}")]
    Version(u32),
    #[error("should have {stored} blocks, and {there} are there")]
    Size { stored: u64, there: u64 },
    #[error("has {stored} blocks, and its copy {other}")]
    Disagrees { stored: u64, other: u64 },
}

/// The header of an image of so many blocks.
pub(super) fn block(blocks: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..MAGIC.len()].copy_from_slice(&MAGIC);
    block[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
    block[BLOCKS_AT..BLOCKS_AT + 8].copy_from_slice(&blocks.to_le_bytes());
    seal(NUMBER, &mut block[..SECTOR]);
    block
}

/// The number of blocks that the headers of all halves tell. A half whose header cannot be read or used is let go, when
/// the other's can: what is behind it may be anything.
///
/// # Errors
/// When no header can be used, or one is of another version.
pub(super) fn read(mirror: &mut Mirror) -> Result<u64, StoreError> {
    let mut known = None;
    let mut unusable = Vec::new();
    for half in mirror.held() {
        let mut block = vec![0; BLOCK];
        if let Err(error) = mirror.read_half(half, 0, &mut block) {
            unusable.push((half, failed("reading", &error)));
            continue;
        }
        let there = blocks_in(mirror.size_of(half));
        let parsed = parse(&block).and_then(|stored| match known {
            _ if stored == 0 || stored > there => Err(HeaderError::Size { stored, there }),
            Some(other) if other != stored => Err(HeaderError::Disagrees { stored, other }),
            _ => Ok(stored),
        });
        let name = mirror.name(half);
        match parsed {
            Ok(stored) => known = Some(stored),
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
    let Some(known) = known else {
        let first = unusable.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| StoreError::Failed("there is no region".to_string())));
    };
    for (half, error) in unusable {
        mirror.drop_half(half, &error.to_string()).map_err(|error| failed("opening", &error))?;
    }
    Ok(known)
}

fn parse(block: &[u8]) -> Result<u64, HeaderError> {
    if !block.starts_with(&MAGIC) {
        return Err(HeaderError::NoStore);
    }
    if !block.get(..SECTOR).is_some_and(|sector| is_sealed(NUMBER, sector)) {
        return Err(HeaderError::Damaged);
    }
    let version =
        block.get(VERSION_AT..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    let blocks =
        block.get(BLOCKS_AT..).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b));
    match (version, blocks) {
        (Some(VERSION), Some(blocks)) => Ok(blocks),
        (version, _) => Err(HeaderError::Version(version.unwrap_or(0))),
    }
}
