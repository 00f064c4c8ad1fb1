//! The heartbeat of whoever uses an array, in a block of each member that md leaves alone: so that two hosts which reach the
//! same members do not both start the array. The idea is that of ext4's multi-mount protection (fs/ext4/mmp.c).
//!
//! The block is braid's own, and md neither reads nor writes it. All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | magic, `braidHB1` |
//! | 8–11 | CRC32C of bytes 0–511, computed with these four zero |
//! | 12–15 | 0: ended, 1: beating |
//! | 16–31 | uuid of the array |
//! | 32–47 | owner: random, new at each start |
//! | 48–63 | boot: of the running kernel (Linux: `/proc/sys/kernel/random/boot_id`), zeroes where unknown |
//! | 64–71 | count of beats |
//! | 72–79 | time of the beat, seconds since 1970, by the owner's clock |
//! | 80–83 | milliseconds between two beats |
//! | 84–87 | zero |
//! | 88–151 | name of the host, UTF-8, padded with zeroes |
//! | 152–159 | namespace of the owner's process (Linux: the inode of `/proc/self/ns/pid`), zero where unknown |
//! | 160–163 | its process id in that |
//!
//! The rest is zero. All that counts lies in the first 512 bytes, so that no device tears it.
//!
//! Its place never changes, whatever becomes of the array's data, bitmap and logs ([`sector`]). Whoever looks for a superblock
//! of version 1.1 has read it.

use crate::crc;
use crate::superblock::{Area, Superblock, Version};

/// Bytes of the block.
pub const LEN: usize = 4096;

const MAGIC: &[u8; 8] = b"braidHB1";
/// Where it stands, on members that have a place for it.
pub const SECTOR: u64 = 0;
/// Bytes that count.
const USED: usize = 512;
const HOST_MAX: usize = 64;

/// The process that uses an array, as those on its host can look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Of process ids, as the kernel numbers such namespaces; not zero.
    pub namespace: u64,
    /// In that.
    pub id: u32,
}

/// One beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The array that is used, by its uuid.
    pub array: [u8; 16],
    /// Random, new at each start of an array.
    pub owner: [u8; 16],
    /// Of the kernel that the owner runs under; zeroes: not known.
    pub boot: [u8; 16],
    /// Counts the owner's beats.
    pub sequence: u64,
    /// By the owner's clock, in seconds since 1970.
    pub time: u64,
    /// Milliseconds between two beats.
    pub interval: u32,
    /// The owner uses the array; false once it has stopped it.
    pub beating: bool,
    /// The name of the owner's host; of a longer one the first 64 bytes.
    pub host: String,
    /// The owner's process; `None`: not known, as of the first programs that wrote beats.
    pub process: Option<Process>,
}

/// The content of a block where a heartbeat may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: only zeroes.
    Nothing,
    /// A beat of somebody.
    Beat(Heartbeat),
    /// Something else, such as a boot loader, which must stay.
    Foreign,
}

impl Found {
    /// Understands a block; of fewer than 512 bytes it is [`Found::Foreign`].
    pub fn parse(block: &[u8]) -> Found {
        if block.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        Heartbeat::parse(block).map_or(Found::Foreign, Found::Beat)
    }
}

impl Heartbeat {
    fn parse(block: &[u8]) -> Option<Heartbeat> {
        let used: &[u8; USED] = block.first_chunk()?;
        let mut summed = *used;
        summed[8..12].fill(0);
        let number = |at: usize| Some(u32::from_le_bytes(*used.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*used.get(at..)?.first_chunk()?));
        let id = |at: usize| used.get(at..)?.first_chunk::<16>().copied();
        if !used.starts_with(MAGIC) || number(8)? != crc::checksum(&summed) {
            return None;
        }
        let host = used.get(88..88 + HOST_MAX)?.split(|byte| *byte == 0).next()?;
        Some(Heartbeat {
            array: id(16)?,
            owner: id(32)?,
            boot: id(48)?,
            sequence: long(64)?,
            time: long(72)?,
            interval: number(80)?,
            beating: number(12)? != 0,
            host: String::from_utf8_lossy(host).into_owned(),
            process: match long(152)? {
                0 => None,
                namespace => Some(Process { namespace, id: number(160)? }),
            },
        })
    }

    /// The whole block.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut block = [0; LEN];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(12, &u32::from(self.beating).to_le_bytes());
        put(16, &self.array);
        put(32, &self.owner);
        put(48, &self.boot);
        put(64, &self.sequence.to_le_bytes());
        put(72, &self.time.to_le_bytes());
        put(80, &self.interval.to_le_bytes());
        let end = self.host.floor_char_boundary(HOST_MAX);
        put(88, &self.host.as_bytes()[..end]);
        if let Some(process) = self.process {
            put(152, &process.namespace.to_le_bytes());
            put(160, &process.id.to_le_bytes());
        }
        let sum = crc::checksum(&block[..USED]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        block
    }
}

/// The sector at which the block of a member stands: with version 1.2 the 4 KiB before the superblock, where nothing of the
/// array ever comes to lie. `None` with other versions: they leave no place that stays free whatever becomes of the array.
pub fn sector(superblock: &Superblock) -> Option<u64> {
    if superblock.version != Version::V1_2 {
        return None;
    }
    let end = SECTOR + LEN as u64 / crate::SECTOR as u64;
    let free = |area: Area| area.sectors.start >= end;
    superblock.areas().into_iter().all(free).then_some(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat() -> Heartbeat {
        Heartbeat {
            array: [1; 16],
            owner: [2; 16],
            boot: [3; 16],
            sequence: 1 << 40,
            time: 1_700_000_000,
            interval: 2000,
            beating: true,
            host: "alpha.example".to_string(),
            process: Some(Process { namespace: 1 << 33, id: 4711 }),
        }
    }

    #[test]
    fn a_beat_is_read_as_it_was_written() {
        for (beating, process) in [(true, None), (true, beat().process), (false, beat().process)] {
            let beat = Heartbeat { beating, process, ..beat() };
            assert_eq!(Found::parse(&beat.to_bytes()), Found::Beat(beat));
        }
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        let long = Heartbeat { host: format!("a{}", "ö".repeat(60)), ..beat() };
        let Found::Beat(read) = Found::parse(&long.to_bytes()) else { panic!("no beat") };
        assert_eq!(read.host, format!("a{}", "ö".repeat(31)));
    }

    #[test]
    fn zeroes_are_nothing_and_all_else_is_foreign() {
        assert_eq!(Found::parse(&[0; LEN]), Found::Nothing);
        let mut boot_loader = [0; LEN];
        boot_loader[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(Found::parse(&boot_loader), Found::Foreign);
        let good = beat().to_bytes();
        assert_eq!(Found::parse(&good[..100]), Found::Foreign);
        for at in 0..USED {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert_eq!(Found::parse(&bad), Found::Foreign, "byte {at}");
        }
    }
}
