//! The attributes of a file: 128 bytes, then the target of a symbolic link.

use super::extent::COPIES_MAX;
use super::{NO_BRICK, RecordError};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Balance and flush do not move the stripes of this file (Reiser5's "immobile").
pub const FLAG_PINNED: u32 = 1;
/// The file has never had an extended attribute, so the store need not be searched for any. A file without the bit may or may
/// not have some.
pub const FLAG_NO_ATTRIBUTES: u32 = 2;
/// Space was reserved with `fallocate`: a stripe keeps its extent until all of it is punched. Without the bit a stripe loses its
/// extent when none of its sub-blocks holds written data any more.
pub const FLAG_RESERVED: u32 = 4;
/// The file never had a name and may still get one (`O_TMPFILE`).
pub const FLAG_UNNAMED: u32 = 8;
/// Nothing of the file or directory may change (chattr +i).
pub const FLAG_IMMUTABLE: u32 = 16;
/// The file only grows, the directory only gets new names (chattr +a).
pub const FLAG_APPEND: u32 = 32;
/// Reading does not change the time of reading (chattr +A).
pub const FLAG_NO_ATIME: u32 = 64;
/// dump(8) leaves the file out (chattr +d).
pub const FLAG_NO_DUMP: u32 = 128;
/// Of a directory: what is made in it gets its project (chattr +P).
pub const FLAG_INHERIT_PROJECT: u32 = 256;

/// A point in time as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

/// A file's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    /// Type nibble of `st_mode`.
    pub kind: u8,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Device number.
    pub rdev: u32,
    /// The constants `FLAG_…` of this module; other bits are kept.
    pub flags: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Distinguishes files that had the same number one after the other.
    pub generation: u64,
    /// Last read.
    pub atime: Stamp,
    /// Last change of the content.
    pub mtime: Stamp,
    /// Last change of anything.
    pub ctime: Stamp,
    /// Creation.
    pub crtime: Stamp,
    /// Of a directory: the one it is in.
    pub parent: u64,
    /// Of a directory: one more than the entries that it has ever had; their cookies fall from 2^62 - 1 on. Of
    /// others 0.
    pub next_cookie: u64,
    /// Of a directory: entries.
    pub entries: u64,
    /// The brick that new stripes go to; [`NO_BRICK`]: placement chooses.
    pub brick: u16,
    /// Its project (chattr -p); 0 for none.
    pub project: u32,
    /// The number of copies that its stripes are to have, 1 to 4; of a directory: those of what is made in it.
    pub copies: u8,
    /// Copies of its stripes that may have extents, from `copies` to 4: it had as many before.
    pub held: u8,
    /// The subvolume that it belongs to; 0: that of the volume's root.
    pub subvolume: u16,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u8,
    /// The lower four bits: the copies that are to be; the upper: those that may be. 0 stands for one of both: records of
    /// before there were copies.
    copies: u8,
    perm: U16,
    uid: U32,
    gid: U32,
    nlink: U32,
    rdev: U32,
    flags: U32,
    size: U64,
    blocks: U64,
    generation: U64,
    seconds: [I64; 4],
    nanos: [U32; 4],
    parent: U64,
    next_cookie: U64,
    entries: U64,
    brick: U16,
    subvolume: U16,
    project: U32,
}

const LEN: usize = 128;
const _: () = assert!(size_of::<Raw>() == LEN);

impl InodeRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let stamps = [self.atime, self.mtime, self.ctime, self.crtime];
        let raw = Raw {
            kind: self.kind,
            copies: if self.held > 1 { self.copies | self.held << 4 } else { 0 },
            perm: self.perm.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            nlink: self.nlink.into(),
            rdev: self.rdev.into(),
            flags: self.flags.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            generation: self.generation.into(),
            seconds: stamps.map(|stamp| stamp.seconds.into()),
            nanos: stamps.map(|stamp| stamp.nanos.into()),
            parent: self.parent.into(),
            next_cookie: self.next_cookie.into(),
            entries: self.entries.into(),
            brick: self.brick.into(),
            subvolume: self.subvolume.into(),
            project: self.project.into(),
        };
        let mut bytes = Vec::with_capacity(LEN + self.target.len());
        bytes.extend_from_slice(raw.as_bytes());
        bytes.extend_from_slice(&self.target);
        bytes
    }

    /// Reads the record of file `ino`.
    ///
    /// # Errors
    /// When it is too short, or has an impossible value.
    pub fn parse(ino: u64, bytes: &[u8]) -> Result<InodeRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("file {ino}"), why);
        let (raw, target) = Raw::read_from_prefix(bytes).map_err(|_| wrong("too short"))?;
        if raw.nanos.iter().any(|nanos| nanos.get() >= 1_000_000_000) {
            return Err(wrong("a time with more than a second of nanoseconds"));
        }
        if !matches!(raw.kind, 1 | 2 | 4 | 6 | 8 | 10 | 12) {
            return Err(wrong("no such type of file"));
        }
        let (copies, held) = ((raw.copies & 15).max(1), (raw.copies >> 4).max(1));
        if copies > held || held > COPIES_MAX {
            return Err(wrong("more copies than there can be"));
        }
        let stamp =
            |at: usize| Stamp { seconds: raw.seconds[at].get(), nanos: raw.nanos[at].get() };
        Ok(InodeRecord {
            kind: raw.kind,
            perm: raw.perm.get() & 0o7777,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            nlink: raw.nlink.get(),
            rdev: raw.rdev.get(),
            flags: raw.flags.get(),
            size: raw.size.get(),
            blocks: raw.blocks.get(),
            generation: raw.generation.get(),
            atime: stamp(0),
            mtime: stamp(1),
            ctime: stamp(2),
            crtime: stamp(3),
            parent: raw.parent.get(),
            next_cookie: raw.next_cookie.get(),
            entries: raw.entries.get(),
            brick: raw.brick.get(),
            project: raw.project.get(),
            copies,
            held,
            subvolume: raw.subvolume.get(),
            target: target.to_vec(),
        })
    }

    /// It is to have so many copies.
    pub fn set_copies(&mut self, copies: u8) {
        self.copies = copies;
        self.held = self.held.max(copies);
    }

    /// True when balance and flush leave its stripes where they are.
    pub fn is_pinned(&self) -> bool {
        self.flags & FLAG_PINNED != 0
    }

    /// False when it has never had an extended attribute.
    pub fn may_have_attributes(&self) -> bool {
        self.flags & FLAG_NO_ATTRIBUTES == 0
    }

    /// The brick that its new stripes go to, when that is not placement's choice.
    pub fn wanted_brick(&self) -> Option<u16> {
        (self.brick != NO_BRICK).then_some(self.brick)
    }
}
