//! The record of the job in progress: 64 bytes, rewritten from time to time so that the job continues after a crash.

use super::{NO_BRICK, RecordError};
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Stripes are moved to the bricks that placement chooses.
    Balance,
    /// All stripes are moved off a brick, which is then detached.
    Remove,
    /// Stripes are moved off the proxy.
    Flush,
    /// The stripes of one file are moved to one brick.
    Migrate,
    /// The stripes of each file that lie on one brick are put next to each other.
    Defrag,
    /// Metadata is checked against itself and the bricks.
    Check,
    /// A check that also repairs.
    Repair,
    /// All data is read and held against its checksums. A braid that does not know it finds its record damaged until it
    /// has ended.
    Scrub,
    /// Files get the copies that they are to have, and copies get what they have missed. As with a scrub.
    Copies,
}

impl JobKind {
    const ALL: [JobKind; 9] = [
        JobKind::Balance,
        JobKind::Remove,
        JobKind::Flush,
        JobKind::Migrate,
        JobKind::Defrag,
        JobKind::Check,
        JobKind::Repair,
        JobKind::Scrub,
        JobKind::Copies,
    ];

    /// The name for people: a word in lower case.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Balance => "balance",
            JobKind::Remove => "remove",
            JobKind::Flush => "flush",
            JobKind::Migrate => "migrate",
            JobKind::Defrag => "defrag",
            JobKind::Check => "check",
            JobKind::Repair => "repair",
            JobKind::Scrub => "scrub",
            JobKind::Copies => "copies",
        }
    }
}

/// The record of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// The kind of job.
    pub kind: JobKind,
    /// The brick that it is about: the one to be removed, or migrated to.
    pub brick: Option<u16>,
    /// The file that it is about; 0: all.
    pub ino: u64,
    /// The position to continue from: a file and a group of its extents.
    pub cursor: (u64, u64),
    /// Bytes that have been moved.
    pub done: u64,
    /// Bytes that were to be moved at the start.
    pub total: u64,
    /// It waits to be resumed.
    pub paused: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u8,
    paused: u8,
    brick: U16,
    reserved: [u8; 4],
    ino: U64,
    cursor: [U64; 2],
    done: U64,
    total: U64,
    padding: [u8; 16],
}

const _: () = assert!(size_of::<Raw>() == 64);

impl JobRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let raw = Raw {
            // Nine kinds: the position fits.
            kind: JobKind::ALL
                .iter()
                .position(|kind| *kind == self.kind)
                .map_or(0, |at| at as u8 + 1),
            paused: self.paused.into(),
            brick: self.brick.unwrap_or(NO_BRICK).into(),
            reserved: [0; 4],
            ino: self.ino.into(),
            cursor: [self.cursor.0.into(), self.cursor.1.into()],
            done: self.done.into(),
            total: self.total.into(),
            padding: [0; 16],
        };
        raw.as_bytes().to_vec()
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When its length is wrong or its kind unknown.
    pub fn parse(bytes: &[u8]) -> Result<JobRecord, RecordError> {
        let wrong = |why| RecordError::new("the job under way", why);
        let raw = Raw::read_from_bytes(bytes).map_err(|_| wrong("wrong length"))?;
        let kind = usize::from(raw.kind).checked_sub(1).and_then(|at| JobKind::ALL.get(at));
        Ok(JobRecord {
            kind: *kind.ok_or_else(|| wrong("no such kind"))?,
            brick: Some(raw.brick.get()).filter(|brick| *brick != NO_BRICK),
            ino: raw.ino.get(),
            cursor: (raw.cursor[0].get(), raw.cursor[1].get()),
            done: raw.done.get(),
            total: raw.total.get(),
            paused: raw.paused != 0,
        })
    }
}
