//! The walk from the journal's tail to the end of the log, one meta block at a time.

use super::meta::{BLOCK_SECTORS, Meta, MetaError, Seed};

/// Sectors of the ring on a journal whose superblock has this data_size: whole blocks.
pub fn ring_sectors(data_size: u64) -> u64 {
    data_size - data_size % BLOCK_SECTORS
}

/// The reason why a walk cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "journal_tail is {tail}, which must be a multiple of 8 below the ring's {ring} sectors; the journal's superblock \
     is damaged: without its log, data that was acknowledged may be lost (assemble with --force to go on without)"
)]
pub struct WalkError {
    /// The tail.
    pub tail: u64,
    /// Sectors of the ring.
    pub ring: u64,
}

/// The reason why the log ends at a block. [`End::Meta`] and [`End::Sequence`] are the usual ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// No meta block of this array stands there.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A meta block left over from an earlier pass over the ring.
    #[error(
        "journal meta block has sequence number {found} and the log goes on with {want}; the log ends here"
    )]
    Sequence {
        /// Number found.
        found: u64,
        /// Number that would go on.
        want: u64,
    },
    /// A meta block that belongs elsewhere.
    #[error(
        "journal meta block at ring sector {at} says that it stands at {found}; the log ends here"
    )]
    Position {
        /// Ring sector that it was read from.
        at: u64,
        /// Ring sector that it records.
        found: u64,
    },
    /// The log would overlap itself.
    #[error("the journal's log is longer than its ring; the log is damaged and ends here")]
    Full,
}

/// A meta block of the log and the positions of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The meta block.
    pub meta: Meta,
    /// Ring sectors of the blocks that follow it, one for each of [`Meta::checksums`].
    pub blocks: Vec<u64>,
}

/// A walk over a log.
#[derive(Clone, Debug)]
pub struct Walk {
    seed: Seed,
    ring: u64,
    position: u64,
    seq: Option<u64>,
    walked: u64,
}

impl Walk {
    /// A walk over the journal of the array `set_uuid`, from `tail` (`Superblock::journal_tail`) on. `data_size`
    /// is that of the journal's superblock.
    ///
    /// # Errors
    /// A tail that is not in the ring.
    pub fn new(set_uuid: &[u8; 16], data_size: u64, tail: u64) -> Result<Walk, WalkError> {
        let ring = ring_sectors(data_size);
        if tail >= ring || !tail.is_multiple_of(BLOCK_SECTORS) {
            return Err(WalkError { tail, ring });
        }
        Ok(Walk { seed: Seed::of(set_uuid), ring, position: tail, seq: None, walked: 0 })
    }

    /// The ring sector of the block to read next, where a log that is begun anew would stand once the walk
    /// has ended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The sequence number that the next meta block must have; `None` before the first. When the walk has
    /// ended, the log goes on with this plus [`super::SEQ_GAP`]; when it is `None`, the log is empty and goes on
    /// at ring sector 0 with any number.
    pub fn seq(&self) -> Option<u64> {
        self.seq
    }

    /// The seed of the blocks' checksums.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Takes the block that was read at [`Walk::position`]. The walk then stands at the next meta block.
    ///
    /// # Errors
    /// The log ends before this block; the walk stays where it is.
    pub fn step(&mut self, block: &[u8]) -> Result<Found, End> {
        let meta = Meta::parse(block, self.seed)?;
        if let Some(want) = self.seq.filter(|want| *want != meta.seq) {
            return Err(End::Sequence { found: meta.seq, want });
        }
        if meta.position != self.position {
            return Err(End::Position { at: self.position, found: meta.position });
        }
        // A block has at most some hundred payloads.
        let count = 1 + meta.checksums().count() as u64;
        let walked = self.walked + count * BLOCK_SECTORS;
        if walked > self.ring {
            return Err(End::Full);
        }
        let blocks = (1..count).map(|number| self.after(number)).collect();
        self.position = self.after(count);
        self.walked = walked;
        self.seq = Some(meta.seq.wrapping_add(1));
        Ok(Found { meta, blocks })
    }

    /// The ring sector `blocks` blocks further on, which are fewer than the ring has.
    fn after(&self, blocks: u64) -> u64 {
        // A sum of position and distance could overflow 64 bits, so compare with what is left before the end of the ring.
        let left = self.ring - self.position;
        let distance = blocks * BLOCK_SECTORS;
        if distance < left { self.position + distance } else { distance - left }
    }
}
