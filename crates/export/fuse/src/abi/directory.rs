//! Entries of a directory, as many as the kernel has room for (`fuse_dirent`, `fuse_direntplus`).

use super::fields::Out;
use super::reply;
use braid_filesystem::{Entry, Ino, Kind};
use std::time::Duration;

/// Bytes of an entry before its name.
pub(crate) const ENTRY: usize = 24;
/// The same with what a look-up gives.
pub(crate) const ENTRY_PLUS: usize = ENTRY + 128;
/// Entries begin at multiples of so many bytes.
const ALIGNMENT: usize = 8;

/// A list that grows up to what the kernel has room for.
pub(crate) struct Listing {
    bytes: Vec<u8>,
    room: usize,
}

/// One entry.
pub(crate) struct Listed<'a> {
    /// The file's number.
    pub ino: Ino,
    /// Where to go on after it.
    pub next: u64,
    /// The kind of file.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
}

impl Listing {
    /// With room for `room` bytes.
    pub fn new(room: usize) -> Listing {
        // The kernel asks for a few pages; a larger number reserves no more than this.
        Listing { bytes: Vec::with_capacity(room.min(64 << 10)), room }
    }

    /// The entries that were added, as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds an entry; true when it has no room.
    pub fn add(&mut self, entry: &Listed<'_>) -> bool {
        if !self.has_room(ENTRY, entry) {
            return true;
        }
        self.put(entry);
        false
    }

    /// Adds an entry with what its look-up found, if anything; true when it has no room.
    pub fn add_plus(&mut self, entry: &Listed<'_>, found: Option<(&Entry, Duration)>) -> bool {
        if !self.has_room(ENTRY_PLUS, entry) {
            return true;
        }
        let looked_up = match found {
            Some((found, known)) => reply::entry(found, known, known),
            None => reply::no_entry(Duration::ZERO),
        };
        self.bytes.extend_from_slice(looked_up.bytes());
        self.put(entry);
        false
    }

    fn has_room(&self, before: usize, entry: &Listed<'_>) -> bool {
        let len = (before + entry.name.len()).next_multiple_of(ALIGNMENT);
        self.bytes.len() + len <= self.room
    }

    fn put(&mut self, entry: &Listed<'_>) {
        // A name has at most 255 bytes.
        let len = u32::try_from(entry.name.len()).unwrap_or(u32::MAX);
        let head = Out::new().u64(entry.ino).u64(entry.next).u32(len).u32(entry.kind.bits() >> 12);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_first_without_room_is_refused() {
        let entry = |name| Listed { ino: 5, next: 9, kind: Kind::Directory, name };
        let mut listing = Listing::new(2 * 32 + 8);
        assert!(!listing.add(&entry(b"a")) && !listing.add(&entry(b"12345678")));
        assert!(listing.add(&entry(b"")), "8 bytes are left, 24 are needed");
        assert_eq!(listing.bytes().len(), 64);
        assert_eq!(listing.bytes()[16..25], *b"\x01\0\0\0\x04\0\0\0a");
        let mut plus = Listing::new(2 * ENTRY_PLUS + 8);
        assert!(!plus.add_plus(&entry(b"a"), None) && plus.add_plus(&entry(b"12345"), None));
        assert_eq!(plus.bytes().len(), ENTRY_PLUS + 8);
    }
}
