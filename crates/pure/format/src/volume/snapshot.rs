//! Snapshots of folders.
//!
//! A folder of which snapshots are made is a *subvolume*: every file in it has its number. When a snapshot was taken, records of
//! its files stay as they are until they change; the first change of one saves the value of before under a key of its own. So the
//! value that a record had when snapshot *s* was taken is the saved one with the lowest snapshot from *s* on, or else the record.
//!
//! Files in a snapshot have numbers of their own: that of the snapshot stands in the upper 20 bits, the file's in the lower
//! 44.

use super::RecordError;
use super::inode::Stamp;
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Files have numbers below this one.
pub const INO_END: u64 = 1 << SHIFT;
/// Snapshots have numbers from 1 on, below this one.
pub const SNAPSHOT_END: u32 = LISTING;
/// Stands for a snapshot in the number of the folder that lists the snapshots of a folder.
pub const LISTING: u32 = (1 << (64 - SHIFT)) - 1;
/// The name of that folder.
pub const LISTING_NAME: &[u8] = b".snapshots";
/// Bytes of the longest name of a snapshot.
pub const NAME_MAX: usize = 255;
const SHIFT: u32 = 44;

/// The number that a file has in a snapshot.
pub fn in_snapshot(ino: u64, snapshot: u32) -> u64 {
    file_of(ino) | u64::from(snapshot) << SHIFT
}

/// The snapshot that a file number says; 0: none, it is of a file as it is now.
pub fn snapshot_of(ino: u64) -> u32 {
    // Twenty bits are left.
    (ino >> SHIFT) as u32
}

/// The file that a number is about, without a snapshot.
pub fn file_of(ino: u64) -> u64 {
    ino & (INO_END - 1)
}

/// The state of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotState {
    /// It can be read.
    There,
    /// It is being removed: what only it holds is being freed.
    Going,
    /// It holds nothing any more; marks of that are still to be taken away.
    Empty,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The subvolume that it is of.
    pub subvolume: u16,
    /// Its state.
    pub state: SnapshotState,
    /// Files from this number on were made later.
    pub next_ino: u64,
    /// When it was taken.
    pub created: Stamp,
    /// Its name: 1 to 255 bytes, no slash, no control characters.
    pub name: String,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    subvolume: U16,
    state: u8,
    padding: u8,
    nanos: U32,
    next_ino: U64,
    seconds: I64,
}

/// Names that a snapshot may have.
pub fn is_name(name: &str) -> bool {
    let is_bad = |char: char| char == '/' || char.is_control();
    (1..=NAME_MAX).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(is_bad)
}

impl SnapshotRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let raw = Raw {
            subvolume: self.subvolume.into(),
            state: match self.state {
                SnapshotState::There => 1,
                SnapshotState::Going => 2,
                SnapshotState::Empty => 3,
            },
            padding: 0,
            nanos: self.created.nanos.into(),
            next_ino: self.next_ino.into(),
            seconds: self.created.seconds.into(),
        };
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Reads the record of snapshot `id`.
    ///
    /// # Errors
    /// When it is too short, or has an impossible value.
    pub fn parse(id: u32, bytes: &[u8]) -> Result<SnapshotRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("snapshot {id}"), why);
        let (raw, name) = Raw::read_from_prefix(bytes).map_err(|_| wrong("too short"))?;
        let state = match raw.state {
            1 => SnapshotState::There,
            2 => SnapshotState::Going,
            3 => SnapshotState::Empty,
            _ => return Err(wrong("no such state")),
        };
        let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
        let name = name.ok_or_else(|| wrong("no such name"))?.to_string();
        if id == 0 || id >= SNAPSHOT_END {
            return Err(wrong("no such number"));
        }
        if raw.nanos.get() >= 1_000_000_000 {
            return Err(wrong("a time with more than a second of nanoseconds"));
        }
        Ok(SnapshotRecord {
            subvolume: raw.subvolume.get(),
            state,
            next_ino: raw.next_ino.get(),
            created: Stamp { seconds: raw.seconds.get(), nanos: raw.nanos.get() },
            name,
        })
    }
}

/// A folder of which snapshots can be made. The volume's root, number 0, has no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubvolumeRecord {
    /// The folder.
    pub root: u64,
    /// The subvolume that it lies in.
    pub parent: u16,
    /// All files in it have its number.
    pub made: bool,
    /// The folder was removed; snapshots of one around it still have it.
    pub gone: bool,
}

impl SubvolumeRecord {
    /// The record: folder, subvolume that it lies in, 1 when all files have its number, 2 when the folder was removed.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.root.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.parent.to_le_bytes());
        bytes.push(if self.gone { 2 } else { self.made.into() });
        bytes
    }

    /// Reads the record of subvolume `id`.
    ///
    /// # Errors
    /// When its length is wrong, or it lies in itself, or has no such state.
    pub fn parse(id: u16, bytes: &[u8]) -> Result<SubvolumeRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("subvolume {id}"), why);
        let [root @ .., p0, p1, made] = bytes else { return Err(wrong("too short")) };
        let root = root.try_into().map_err(|_| wrong("wrong length"))?;
        let parent = u16::from_le_bytes([*p0, *p1]);
        if id == 0 || parent == id {
            return Err(wrong("it lies in itself"));
        }
        let (made, gone) = match made {
            0 => (false, false),
            1 => (true, false),
            2 => (true, true),
            _ => return Err(wrong("no such state")),
        };
        Ok(SubvolumeRecord { root: u64::from_le_bytes(root), parent, made, gone })
    }
}

/// The value that a record had before it changed, as it is saved for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// There was no such record.
    Absent,
    /// This one.
    Value(Vec<u8>),
    /// The snapshot is being removed, and does not need it any more.
    Gone,
}

impl Saved {
    /// The record: an octet, then the value.
    pub fn encode(self) -> Vec<u8> {
        match self {
            Saved::Absent => vec![0],
            Saved::Value(mut value) => {
                value.insert(0, 1);
                value
            }
            Saved::Gone => vec![2],
        }
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When it is empty, or there is no such kind.
    pub fn parse(bytes: &[u8]) -> Result<Saved, RecordError> {
        match bytes {
            [0] => Ok(Saved::Absent),
            [1, value @ ..] => Ok(Saved::Value(value.to_vec())),
            [2] => Ok(Saved::Gone),
            _ => Err(RecordError::new("a saved value", "no such kind")),
        }
    }

    /// The value, if there was one.
    pub fn value(self) -> Option<Vec<u8>> {
        match self {
            Saved::Value(value) => Some(value),
            Saved::Absent | Saved::Gone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_as_written_and_damaged_ones_are_refused() {
        let record = SnapshotRecord {
            subvolume: 7,
            state: SnapshotState::Going,
            next_ino: 99,
            created: Stamp { seconds: -3, nanos: 4 },
            name: "täglich".into(),
        };
        let bytes = record.encode();
        assert_eq!(SnapshotRecord::parse(5, &bytes), Ok(record));
        assert!(SnapshotRecord::parse(0, &bytes).is_err());
        assert!(SnapshotRecord::parse(LISTING, &bytes).is_err());
        for cut in 0..=24 {
            assert!(SnapshotRecord::parse(5, &bytes[..cut]).is_err());
        }
        for (at, value) in [(2, 0), (2, 4), (7, 0xff), (24, b'/'), (24, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            assert!(SnapshotRecord::parse(5, &bytes).is_err(), "{at}");
        }
        for bad in ["", ".", "..", "a/b", "a\nb", &"n".repeat(256)] {
            assert!(!is_name(bad));
        }
    }

    #[test]
    fn a_subvolume_is_read_as_written() {
        let there = SubvolumeRecord { root: 7, parent: 1, made: true, gone: false };
        for record in [
            there,
            SubvolumeRecord { made: false, ..there },
            SubvolumeRecord { gone: true, ..there },
        ] {
            assert_eq!(SubvolumeRecord::parse(2, &record.encode()), Ok(record));
        }
        let mut bytes = there.encode();
        assert!(SubvolumeRecord::parse(1, &bytes).is_err());
        assert!(SubvolumeRecord::parse(0, &bytes).is_err());
        assert!(SubvolumeRecord::parse(2, &bytes[1..]).is_err());
        assert!(SubvolumeRecord::parse(2, &[]).is_err());
        bytes[10] = 3;
        assert!(SubvolumeRecord::parse(2, &bytes).is_err());
    }

    #[test]
    fn a_saved_value_is_read_as_written() {
        for saved in [Saved::Absent, Saved::Value(vec![]), Saved::Value(vec![5]), Saved::Gone] {
            assert_eq!(Saved::parse(&saved.clone().encode()), Ok(saved));
        }
        for damaged in [&[][..], &[3], &[0, 1]] {
            assert!(Saved::parse(damaged).is_err());
        }
    }

    #[test]
    fn a_number_says_file_and_snapshot() {
        let ino = in_snapshot(77, SNAPSHOT_END - 1);
        assert_eq!((file_of(ino), snapshot_of(ino)), (77, SNAPSHOT_END - 1));
        assert_eq!((in_snapshot(ino, 0), snapshot_of(77)), (77, 0));
    }
}
