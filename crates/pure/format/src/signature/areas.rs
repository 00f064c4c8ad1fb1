//! The parts of a device that are read to look for signatures, and access to the numbers in them.

/// Bytes at the start of a device that are searched for signatures.
const HEAD: u64 = 512 << 10;
/// ZFS keeps two labels in the last half MiB, counted in whole units of 256 KiB. All other signatures at the end of a device
/// lie in this range or behind it.
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

    pub(super) fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        self.get(offset, N)?.try_into().ok()
    }

    pub(super) fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        self.get(offset, bytes.len()) == Some(bytes)
    }

    pub(super) fn byte(&self, offset: u64) -> Option<u8> {
        self.array::<1>(offset).map(|[byte]| byte)
    }

    pub(super) fn u16(&self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }

    pub(super) fn u16_be(&self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_be_bytes)
    }

    pub(super) fn u32_be(&self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_be_bytes)
    }

    pub(super) fn u64_be(&self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_be_bytes)
    }
}

/// A device as the probes see it.
pub(super) struct Device<'a> {
    pub bytes: u64,
    pub areas: &'a Areas,
}
