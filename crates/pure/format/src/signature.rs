//! Earlier content of a device: filesystems, partition tables, volumes, members of other arrays. So that
//! `create` can show it before it is lost.
//!
//! Owns where each format has its signature and how to tell it. Does not read the device: the caller
//! reads each of [`ranges`] into [`Areas`] and calls [`detect`]. What could not be read is not judged.
//!
//! Invariant: a signature is reported only for bytes that were given; nothing given makes it panic.

mod boot_sectors;
mod filesystems;
mod raid;
mod tables;
mod volumes;

pub use raid::{Container, ContainerError, refuse_container};
pub use tables::partitions;

/// Something recognised on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its kind in one word: `ext4`, `gpt`, `linux_raid_member`, … (blkid's names, where it has one).
    pub kind: &'static str,
    /// Description for people: `ext4 filesystem, label "data", uuid …`.
    pub what: String,
    /// Byte offset of the bytes it was recognised by.
    pub at: u64,
    /// Length in bytes; once they are overwritten, the signature is gone.
    pub len: u64,
}

/// Bytes at the start of a device that signatures are looked for in.
const HEAD: u64 = 512 << 10;
/// ZFS keeps two labels in the last half MiB of the whole 256 KiB units; everything else at the end is in it or
/// behind it.
const TAIL: u64 = 512 << 10;
const TAIL_UNIT: u64 = 256 << 10;

/// The ranges to read of a device of `dev_bytes`: offsets and lengths in bytes, both multiples of 4096 on
/// devices whose size is one (an offset always is).
pub fn ranges(dev_bytes: u64) -> Vec<(u64, usize)> {
    let tail = (dev_bytes & !(TAIL_UNIT - 1)).saturating_sub(TAIL);
    // Each length is below 1.5 MiB.
    if tail <= HEAD {
        return vec![(0, dev_bytes as usize)];
    }
    vec![(0, HEAD as usize), (tail, (dev_bytes - tail) as usize)]
}

/// The parts of a device that were read.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    parts: Vec<(u64, Vec<u8>)>,
}

impl Areas {
    /// Nothing read yet.
    pub fn new() -> Areas {
        Areas::default()
    }

    /// Adds what was read at byte `offset`.
    pub fn push(&mut self, offset: u64, bytes: Vec<u8>) {
        self.parts.push((offset, bytes));
    }

    /// `len` bytes at `offset`, when one part has them all.
    pub fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(len)?)
        })
    }

    fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        self.get(offset, N)?.try_into().ok()
    }

    fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        self.get(offset, bytes.len()) == Some(bytes)
    }

    fn byte(&self, offset: u64) -> Option<u8> {
        self.array::<1>(offset).map(|[byte]| byte)
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }

    fn u16_be(&self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_be_bytes)
    }

    fn u32_be(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_be_bytes)
    }

    fn u64_be(&self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_be_bytes)
    }
}

/// A device as the probes see it.
struct Device<'a> {
    bytes: u64,
    areas: &'a Areas,
}

/// Everything that is recognised on a device of `dev_bytes`, by position. Several are usual: a GPT has two
/// copies, and formats that were not wiped show through.
pub fn detect(dev_bytes: u64, areas: &Areas) -> Vec<Signature> {
    let device = Device { bytes: dev_bytes, areas };
    let mut found = Vec::new();
    filesystems::probe(&device, &mut found);
    boot_sectors::probe(&device, &mut found);
    volumes::probe(&device, &mut found);
    raid::probe(&device, &mut found);
    tables::probe(&device, &mut found);
    found.sort_by_key(|signature| signature.at);
    found
}

/// A description in parts: `what`, then label and uuid where there are any.
struct Text(String);

impl Text {
    fn new(what: impl Into<String>) -> Text {
        Text(what.into())
    }

    /// Adds a label of padded text in any encoding that has ASCII in it; an empty one is left out.
    fn label(self, bytes: &[u8]) -> Text {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
        self.named("label", text.trim_end())
    }

    /// Adds `, name "value"` unless the value is empty. Quotes and control characters are escaped.
    fn named(mut self, name: &str, value: &str) -> Text {
        if !value.is_empty() {
            self.0.push_str(&format!(", {name} {value:?}"));
        }
        self
    }

    /// Adds a uuid stored in the order of its text; one of zeros is left out.
    fn uuid(mut self, bytes: Option<[u8; 16]>) -> Text {
        if let Some(bytes) = bytes.filter(|b| *b != [0; 16]) {
            self.0.push_str(&format!(", uuid {}", uuid::Uuid::from_bytes(bytes)));
        }
        self
    }

    /// Adds more text after a comma.
    fn add(mut self, more: impl AsRef<str>) -> Text {
        self.0.push_str(", ");
        self.0.push_str(more.as_ref());
        self
    }

    /// The signature with this description.
    fn at(self, kind: &'static str, at: u64, len: u64) -> Signature {
        Signature { kind, what: self.0, at, len }
    }
}
