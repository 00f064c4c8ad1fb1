//! A request of a disk, taken out of its chain.
//!
//! ```text
//!  readable: type u32, reserved u32, sector u64, data of a write     writable: data of a read, status u8
//! ```
//!
//! A driver may lay these bytes out in any parts it likes. The header is copied out here and never looked at again.

use crate::memory::Memory;
use crate::queue::{Chain, Part, Parts, QueueError};
use vm_memory::{Bytes, GuestAddress};

/// Bytes of a sector, in which requests count whatever the disk's blocks.
pub const SECTOR: u64 = 512;
/// Ranges of a discard or of write-zeroes.
pub const RANGES_MAX: u32 = 32;
/// Sectors of such a range: 2 GiB.
pub const SECTORS_PER_RANGE_MAX: u32 = 1 << 22;
const RANGE_BYTES: usize = 16;
const HEADER_BYTES: usize = 16;
/// Bytes of the answer to a request for the disk's name.
pub const ID_BYTES: usize = 20;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable.
    Flush,
    /// Tell the disk's name.
    Id,
    /// Give ranges up.
    Discard,
    /// Zero ranges.
    WriteZeroes,
    /// Something that is not known here.
    Unknown,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// It failed, or cannot be.
    Failed = 1,
    /// It is not known here.
    Unsupported = 2,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The chain's head.
    pub head: u16,
    /// The operation.
    pub verb: Verb,
    /// Where, in sectors.
    pub sector: u64,
    /// The data: to be read by the device for a write, to be written for a read.
    pub data: Parts,
    /// Its bytes.
    pub bytes: u64,
    /// Where the status goes.
    pub status: GuestAddress,
}

/// A range of a discard or of write-zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// Flags: bit 0 lets zeroing give space back.
    pub flags: u32,
}

impl Job {
    /// Takes a chain apart.
    ///
    /// # Errors
    /// A chain without a header or without room for a status.
    pub fn parse(memory: &Memory, chain: Chain) -> Result<Job, QueueError> {
        let Chain { head, mut readable, mut writable } = chain;
        let mut header = [0; HEADER_BYTES];
        read_front(memory, &mut readable, &mut header)?;
        let status = take_last_byte(&mut writable)?;
        let word = |at: usize| {
            // Four bytes of sixteen.
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let sector = u64::from(word(12)) << 32 | u64::from(word(8));
        let verb = match word(0) {
            0 => Verb::Read,
            1 => Verb::Write,
            4 => Verb::Flush,
            8 => Verb::Id,
            11 => Verb::Discard,
            13 => Verb::WriteZeroes,
            _ => Verb::Unknown,
        };
        let data = match verb {
            Verb::Read | Verb::Id => writable,
            _ => readable,
        };
        let bytes = data.iter().map(|part| u64::from(part.length)).sum();
        Ok(Job { head, verb, sector, data, bytes, status })
    }

    /// The ranges of a discard or of write-zeroes, copied out of the guest's memory; `None` when there are none, too many,
    /// or a part of one.
    pub fn ranges(&self, memory: &Memory) -> Option<Vec<Range>> {
        let count = usize::try_from(self.bytes).ok()? / RANGE_BYTES;
        let whole = self.bytes.is_multiple_of(RANGE_BYTES as u64);
        if !whole || !(1..=RANGES_MAX as usize).contains(&count) {
            return None;
        }
        let mut bytes = vec![0; count * RANGE_BYTES];
        copy_in(memory, &self.data, &mut bytes).ok()?;
        let range = |range: &[u8]| {
            let (sector, rest) = range.split_first_chunk::<8>()?;
            let (sectors, rest) = rest.split_first_chunk::<4>()?;
            let (flags, _) = rest.split_first_chunk::<4>()?;
            Some(Range {
                sector: u64::from_le_bytes(*sector),
                sectors: u32::from_le_bytes(*sectors),
                flags: u32::from_le_bytes(*flags),
            })
        };
        bytes.chunks_exact(RANGE_BYTES).map(range).collect()
    }
}

/// Copies the guest's `parts` into `into`, which has their length.
///
/// # Errors
/// Memory that is not there.
pub fn copy_in(memory: &Memory, parts: &[Part], into: &mut [u8]) -> Result<(), QueueError> {
    let mut rest = into;
    for part in parts {
        let length = (part.length as usize).min(rest.len());
        let (now, later) = rest.split_at_mut(length);
        memory.guest().read_slice(now, part.address).map_err(|_| outside(part))?;
        rest = later;
    }
    Ok(())
}

/// Copies `from` into the guest's `parts`, as far as either goes.
///
/// # Errors
/// Memory that is not there.
pub fn copy_out(memory: &Memory, parts: &[Part], from: &[u8]) -> Result<(), QueueError> {
    let mut rest = from;
    for part in parts {
        let (now, later) = rest.split_at((part.length as usize).min(rest.len()));
        memory.guest().write_slice(now, part.address).map_err(|_| outside(part))?;
        rest = later;
    }
    Ok(())
}

fn outside(part: &Part) -> QueueError {
    QueueError::Memory { address: part.address.0, length: part.length }
}

/// Reads the first bytes of `parts`, and takes them away.
fn read_front(memory: &Memory, parts: &mut Parts, into: &mut [u8]) -> Result<(), QueueError> {
    let mut rest = into;
    while !rest.is_empty() {
        let Some(first) = parts.first_mut() else { return Err(QueueError::Short) };
        let length = (first.length as usize).min(rest.len());
        let (now, later) = rest.split_at_mut(length);
        memory.guest().read_slice(now, first.address).map_err(|_| outside(first))?;
        // The part is within the guest's memory, so its end does not overflow.
        first.address = GuestAddress(first.address.0 + length as u64);
        first.length -= length as u32;
        if first.length == 0 {
            parts.remove(0);
        }
        rest = later;
    }
    Ok(())
}

/// Takes the last byte of `parts` away; gives where it is.
fn take_last_byte(parts: &mut Parts) -> Result<GuestAddress, QueueError> {
    let last = parts.last_mut().ok_or(QueueError::Short)?;
    // Parts have at least one byte.
    last.length -= 1;
    let at = GuestAddress(last.address.0 + u64::from(last.length));
    if last.length == 0 {
        parts.pop();
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Region;

    fn memory() -> Memory {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 16).unwrap();
        let region = Region { guest: 0, size: 1 << 16, user: 0, offset: 0 };
        Memory::map(&[region], vec![file.into()]).unwrap()
    }

    fn parts(all: &[(u64, u32)]) -> Parts {
        let part = |(address, length): &(u64, u32)| Part {
            address: GuestAddress(*address),
            length: *length,
        };
        all.iter().map(part).collect()
    }

    fn parsed(memory: &Memory, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> Option<Job> {
        let (readable, writable) = (parts(readable), parts(writable));
        Job::parse(memory, Chain { head: 3, readable, writable }).ok()
    }

    #[test]
    fn the_layout_of_a_request_is_the_drivers_to_choose() {
        let memory = memory();
        let header = [1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0xaa];
        memory.guest().write_slice(&header, GuestAddress(100)).unwrap();
        let whole = parsed(&memory, &[(100, 16), (4096, 512)], &[(8192, 1)]).unwrap();
        assert_eq!((whole.verb, whole.sector), (Verb::Write, (1 << 32) + 9));
        assert_eq!((whole.data, whole.status.0), (parts(&[(4096, 512)]), 8192));
        let joined = parsed(&memory, &[(100, 3), (103, 13 + 512)], &[(8000, 17)]).unwrap();
        assert_eq!(joined.sector, (1 << 32) + 9);
        assert_eq!((joined.data, joined.status.0), (parts(&[(116, 512)]), 8016));
        memory.guest().write_obj(0u32, GuestAddress(100)).unwrap();
        let read = parsed(&memory, &[(100, 16)], &[(4096, 512), (8192, 513)]).unwrap();
        assert_eq!((read.verb, read.bytes, read.status.0), (Verb::Read, 1024, 8192 + 512));
    }

    #[test]
    fn chains_without_a_header_or_a_status_are_refused() {
        let memory = memory();
        assert!(parsed(&memory, &[(0, 15)], &[(100, 1)]).is_none());
        assert!(parsed(&memory, &[(0, 16)], &[]).is_none());
        assert!(parsed(&memory, &[], &[(0, 17)]).is_none());
    }

    #[test]
    fn ranges_are_copied_whole_or_not_at_all() {
        let memory = memory();
        memory.guest().write_obj(11u32, GuestAddress(0)).unwrap();
        memory.guest().write_obj(7u64, GuestAddress(16)).unwrap();
        memory.guest().write_obj(5u32, GuestAddress(24)).unwrap();
        memory.guest().write_obj(1u32, GuestAddress(28)).unwrap();
        let job = parsed(&memory, &[(0, 32)], &[(100, 1)]).unwrap();
        let range = Range { sector: 7, sectors: 5, flags: 1 };
        assert_eq!(job.ranges(&memory), Some(vec![range]));
        for bytes in [0, 15, 17, 33 * 16] {
            let job = parsed(&memory, &[(0, 16 + bytes)], &[(100, 1)]).unwrap();
            assert_eq!(job.ranges(&memory), None);
        }
    }
}
