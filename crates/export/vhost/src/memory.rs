//! The guest's memory: regions of files that the front end passes, mapped here.
//!
//! Invariant: each address is checked against the regions before it is used.
//!
//! A front end that makes such a file shorter while it is mapped takes its memory away from under whoever reads it. Then
//! there are zeroes instead, and the memory [says so](Memory::is_broken).

use crate::fault::Guard;
use crate::protocol::Region;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Memory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A region that is empty, reaches beyond the end of its file, or overflows.
    #[error(
        "a region of {size:#x} bytes at {guest:#x}, {offset:#x} in its file, cannot be: it is empty, or reaches \
         beyond the end"
    )]
    Region {
        /// Its address for the guest.
        guest: u64,
        /// Its size in bytes.
        size: u64,
        /// Where it begins in its file.
        offset: u64,
    },
    /// The kernel does not map it.
    #[error("mapping the guest's memory: {0}")]
    Map(String),
    /// Too many are mapped in this process.
    #[error("there are too many guests: the memory of no further one can be watched")]
    Guards,
    /// Two regions have addresses in common.
    #[error("regions of the guest's memory overlap")]
    Overlap,
}

/// A file's device and inode: the same for all who have it open.
pub type FileId = (u64, u64);

struct Mapped {
    guard: Guard,
    file: FileId,
    user: u64,
    guest: u64,
    size: u64,
}

/// The memory of one guest.
pub struct Memory {
    /// Before the mappings, which its guards must not outlive.
    regions: Vec<Mapped>,
    guest: GuestMemoryMmap<()>,
}

impl Memory {
    /// Maps `regions`, each of its file.
    ///
    /// # Errors
    /// Regions that are impossible or overlap, files that are too short or cannot be mapped.
    pub fn map(regions: &[Region], files: Vec<OwnedFd>) -> Result<Memory, MemoryError> {
        let mut mapped = Vec::new();
        let mut table = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let Region { guest, size, user, offset } = *region;
            let file = File::from(file);
            let found = file.metadata().ok();
            let length = found.as_ref().map_or(0, std::fs::Metadata::len);
            let file_id = found.as_ref().map_or((0, 0), |found| (found.dev(), found.ino()));
            let fits = size > 0
                && guest.checked_add(size).is_some()
                && user.checked_add(size).is_some()
                && offset.checked_add(size).is_some_and(|end| end <= length);
            let impossible = || MemoryError::Region { guest, size, offset };
            let bytes = usize::try_from(size).ok().filter(|_| fits).ok_or_else(impossible)?;
            let map = MmapRegion::from_file(FileOffset::new(file, offset), bytes)
                .map_err(|error| MemoryError::Map(error.to_string()))?;
            let region = GuestRegionMmap::new(map, GuestAddress(guest)).ok_or_else(impossible)?;
            let guard = Guard::new(region.as_ptr(), bytes).ok_or(MemoryError::Guards)?;
            mapped.push((guest, region));
            table.push(Mapped { guard, file: file_id, user, guest, size });
        }
        mapped.sort_by_key(|(guest, _)| *guest);
        let mapped = mapped.into_iter().map(|(_, region)| region).collect();
        let guest = GuestMemoryMmap::from_regions(mapped).map_err(|_| MemoryError::Overlap)?;
        Ok(Memory { regions: table, guest })
    }

    /// The memory by the guest's addresses.
    #[must_use]
    pub fn guest(&self) -> &GuestMemoryMmap<()> {
        &self.guest
    }

    /// Some of it is gone: its file was made shorter, and what is read is zeroes.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.regions.iter().any(|region| region.guard.is_broken())
    }

    fn region_of(&self, user: u64) -> Option<&Mapped> {
        let within = |region: &&Mapped| {
            user.checked_sub(region.user).is_some_and(|within| within < region.size)
        };
        self.regions.iter().find(within)
    }

    /// The guest's address for an address in the front end.
    #[must_use]
    pub fn of_user(&self, user: u64) -> Option<u64> {
        let region = self.region_of(user)?;
        Some(region.guest + (user - region.user))
    }

    /// The file that an address in the front end is in.
    #[must_use]
    pub fn file_of_user(&self, user: u64) -> Option<FileId> {
        self.region_of(user).map(|region| region.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    fn file(bytes: u64) -> OwnedFd {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file.into()
    }

    fn region(guest: u64, size: u64, user: u64, offset: u64) -> Region {
        Region { guest, size, user, offset }
    }

    #[test]
    fn addresses_of_both_kinds_are_found_in_any_order_of_regions() {
        let regions = [region(1 << 20, 8192, 0x7000_0000, 4096), region(0, 4096, 0x1000, 0)];
        let memory = Memory::map(&regions, vec![file(12288), file(4096)]).unwrap();
        assert_eq!(memory.of_user(0x7000_1000), Some((1 << 20) + 4096));
        assert_eq!(memory.of_user(0x1fff), Some(0xfff));
        assert_eq!((memory.of_user(0x2000), memory.of_user(0)), (None, None));
        memory.guest().write_slice(b"here", GuestAddress((1 << 20) + 8188)).unwrap();
        assert!(memory.guest().write_slice(b"beyond", GuestAddress(4092)).is_err());
    }

    #[test]
    fn memory_that_is_taken_away_reads_as_zeroes_and_says_so() {
        let kept = file(8192);
        let memory = Memory::map(&[region(0, 8192, 0, 0)], vec![kept.try_clone().unwrap()]);
        let memory = memory.unwrap();
        memory.guest().write_slice(&[7; 8192], GuestAddress(0)).unwrap();
        assert!(!memory.is_broken());
        File::from(kept).set_len(4096).unwrap();
        let mut found = [1; 4096];
        memory.guest().read_slice(&mut found, GuestAddress(4096)).unwrap();
        assert_eq!(found, [0; 4096]);
        assert!(memory.is_broken());
        // Others are as they were, and nothing is left of this one.
        drop(memory);
        let other = Memory::map(&[region(0, 8192, 0, 0)], vec![file(8192)]).unwrap();
        assert!(!other.is_broken());
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        for bad in [
            region(0, 0, 0, 0),
            region(0, 8192, 0, 0),
            region(0, 4096, 0, 4096),
            region(u64::MAX - 4095, 4096 * 2, 0, 0),
            region(0, u64::MAX, 0, 0),
            region(0, 4096, u64::MAX, 0),
            region(0, 4096, 0, u64::MAX),
        ] {
            assert!(Memory::map(&[bad], vec![file(4096)]).is_err(), "{bad:?}");
        }
        let twice = [region(0, 8192, 0, 0), region(4096, 4096, 1 << 20, 0)];
        let refused = Memory::map(&twice, vec![file(8192), file(4096)]);
        assert!(matches!(refused, Err(MemoryError::Overlap)));
    }
}
