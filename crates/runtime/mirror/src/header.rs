//! The header of a region: it identifies the region as a leg of a mirror and gives its number of blocks.

use crate::error::{MirrorError, failed};
use crate::layout::{Layout, PARTS_MAX};
use crate::legs::Legs;
use crate::region::BLOCK;
use crate::sums::{SECTOR, is_sealed, seal};

const MAGIC: [u8; 8] = *b"braid-kv";
/// A region that has never grown keeps the first version, so that older programs can open it.
const VERSION: u32 = 1;
const VERSION_GROWN: u32 = 2;

/// Offsets of the version, the state, the number of blocks, the number of growths, and the numbers of blocks before each.
const VERSION_AT: usize = 8;
const STATE_AT: usize = 12;
const BLOCKS_AT: usize = 16;
const GROWTHS_AT: usize = 24;
const BEFORE_AT: usize = 32;

/// The number that the checksum of the header covers; no block has it.
const NUMBER: u64 = u64::MAX;

/// The state of what is behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is complete.
    Whole = 0,
    /// A mixture of two: the leg was being made equal to another one. The previous content may be overwritten, and
    /// the new one is not complete.
    Unequal = 1,
}

/// A header cannot be used. The text follows the name of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("holds no store")]
    NoStore,
    #[error("has a damaged header")]
    Damaged,
    #[error(
        "is of version {0}, and this braid knows {VERSION} and {VERSION_GROWN}; use the newer braid that wrote it"
    )]
    Version(u32),
    #[error("was being made equal to its copy when that was interrupted")]
    Unequal,
    #[error("takes {need} blocks, and {there} are there")]
    Size { need: u64, there: u64 },
    #[error("has {stored} blocks, and its copy {other}")]
    Disagrees { stored: u64, other: u64 },
}

/// The bytes of a header, which is the first block of a region.
pub(crate) fn bytes_of(layout: &Layout, state: State) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    // A layout has at least one end, and at most as many as fit here.
    let before = layout.ends().split_last().map_or(&[][..], |(_, before)| before);
    let version = if before.is_empty() { VERSION } else { VERSION_GROWN };
    put(VERSION_AT, &version.to_le_bytes());
    put(STATE_AT, &(state as u32).to_le_bytes());
    put(BLOCKS_AT, &layout.blocks().to_le_bytes());
    put(GROWTHS_AT, &(before.len() as u64).to_le_bytes());
    for (number, end) in before.iter().enumerate() {
        put(BEFORE_AT + number * 8, &end.to_le_bytes());
    }
    seal(NUMBER, &mut block[..SECTOR]);
    block
}

/// The layout according to the headers of all legs, the state of the legs that are kept, and whether some legs had
/// grown and others not; then the layout is the one before the growth. A leg whose header
/// cannot be read or used is detached if that of another leg can, because its content is unknown. A leg that is not
/// [whole](State::Whole) is detached too, unless none is; then the first is kept.
///
/// # Errors
/// When no header can be used, or one is of another version.
pub(crate) async fn read(legs: &Legs) -> Result<(Layout, State, bool), MirrorError> {
    let mut known: Option<Layout> = None;
    let mut unequal = None;
    let mut unlike = false;
    let mut unusable = Vec::new();
    for leg in legs.held() {
        let mut block = legs.buffer(BLOCK);
        if let Err(error) = legs.read_leg(leg, 0, &mut block).await {
            unusable.push((leg, failed("reading", &error)));
            continue;
        }
        let there = legs.size_of(leg) / BLOCK as u64;
        let parsed = parse(&block).and_then(|(stored, state)| {
            let (blocks, need) = (stored.blocks(), stored.size() / BLOCK as u64);
            let alike =
                |other: &Layout| stored.is_beginning_of(other) || other.is_beginning_of(&stored);
            match &known {
                _ if need > there => Err(HeaderError::Size { need, there }),
                Some(other) if !alike(other) => {
                    Err(HeaderError::Disagrees { stored: blocks, other: other.blocks() })
                }
                _ => Ok((stored, state)),
            }
        });
        let name = legs.name(leg);
        match parsed {
            Ok((stored, State::Whole)) => {
                unlike |= known.as_ref().is_some_and(|other| *other != stored);
                let shorter = known.take().filter(|other| other.blocks() < stored.blocks());
                known = Some(shorter.unwrap_or(stored));
            }
            Ok((stored, State::Unequal)) => {
                let why =
                    MirrorError::Damaged(format!("the region on {name} {}", HeaderError::Unequal));
                unequal = unequal.or(Some((leg, stored)));
                unusable.push((leg, why));
            }
            Err(why) => {
                let error = MirrorError::Damaged(format!("the region on {name} {why}"));
                if let HeaderError::Version(_) = why {
                    // The others are older than the change of format, so they must not be used instead.
                    return Err(error);
                }
                unusable.push((leg, error));
            }
        }
    }
    let (known, state) = match (known, unequal) {
        (None, Some((leg, stored))) => {
            unusable.retain(|(other, _)| *other != leg);
            (Some(stored), State::Unequal)
        }
        (known, _) => (known, State::Whole),
    };
    let Some(known) = known else {
        let first = unusable.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| MirrorError::Failed("there is no region".to_string())));
    };
    for (leg, error) in unusable {
        legs.detach(leg, &error.to_string()).map_err(|error| failed("opening", &error))?;
    }
    Ok((known, state, unlike))
}

fn parse(block: &[u8]) -> Result<(Layout, State), HeaderError> {
    if !block.starts_with(&MAGIC) {
        return Err(HeaderError::NoStore);
    }
    if !block.get(..SECTOR).is_some_and(|sector| is_sealed(NUMBER, sector)) {
        return Err(HeaderError::Damaged);
    }
    let small = |at: usize| {
        let bytes = block.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let large = |at: usize| {
        let bytes = block.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let growths = match small(VERSION_AT) {
        VERSION => 0,
        VERSION_GROWN => large(GROWTHS_AT),
        other => return Err(HeaderError::Version(other)),
    };
    let state = match small(STATE_AT) {
        0 => State::Whole,
        1 => State::Unequal,
        _ => return Err(HeaderError::Damaged),
    };
    if growths >= PARTS_MAX as u64 {
        return Err(HeaderError::Damaged);
    }
    let mut ends: Vec<u64> =
        (0..growths as usize).map(|number| large(BEFORE_AT + number * 8)).collect();
    ends.push(large(BLOCKS_AT));
    let layout = Layout::of_ends(ends).ok_or(HeaderError::Damaged)?;
    Ok((layout, state))
}
