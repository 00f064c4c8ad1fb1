//! The agreement with the kernel when a mount starts: capabilities and limits (`FUSE_INIT`).

use super::fields::{Fields, Out};

/// The protocol's version that is spoken here; an older kernel is answered with its own.
const MAJOR: u32 = 7;
const MINOR: u32 = 42;

// Capabilities of linux/fuse.h.
pub(crate) const ASYNC_READ: u64 = 1 << 0;
pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
pub(crate) const BIG_WRITES: u64 = 1 << 5;
pub(crate) const DONT_MASK: u64 = 1 << 6;
pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
pub(crate) const ASYNC_DIO: u64 = 1 << 15;
pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
pub(crate) const POSIX_ACL: u64 = 1 << 20;
pub(crate) const MAX_PAGES: u64 = 1 << 22;
pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
const INIT_EXT: u64 = 1 << 30;
pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
pub(crate) const OVER_IO_URING: u64 = 1 << 41;

/// The kernel's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Version of its protocol.
    pub version: (u32, u32),
    /// The farthest that it reads ahead, in bytes.
    pub read_ahead: u32,
    /// Its capabilities.
    pub flags: u64,
}

impl Offer {
    /// From what comes after the header of `FUSE_INIT`.
    pub fn parse(body: &[u8]) -> Option<Offer> {
        let mut fields = Fields(body);
        let version = (fields.u32()?, fields.u32()?);
        let (read_ahead, low) = (fields.u32()?, u64::from(fields.u32()?));
        let high = if low & INIT_EXT != 0 { u64::from(fields.u32()?) } else { 0 };
        Some(Offer { version, read_ahead, flags: high << 32 | low })
    }

    /// It speaks a later version, and asks again in ours when it is told so.
    pub fn is_too_new(&self) -> bool {
        self.version.0 > MAJOR
    }

    /// It speaks ours.
    pub fn is_spoken(&self) -> bool {
        // 5.15 has 7.34; what came with 7.23 changed the length of this very reply, and what came with 7.33 that of a request
        // to set an attribute.
        self.version.0 == MAJOR && self.version.1 >= 33
    }
}

/// Names our version to a kernel that [is too new](Offer::is_too_new).
pub(crate) fn our_version() -> Out {
    Out::new().u32(MAJOR).u32(MINOR)
}

/// The features and limits to ask for, within the offer.
pub(crate) struct Wanted {
    /// Capabilities, used where they are offered.
    pub flags: u64,
    /// Bytes to read ahead.
    pub read_ahead: u32,
    /// Requests under way in the background.
    pub background: u16,
    /// From how many on the kernel takes the device to be busy.
    pub congested: u16,
    /// Bytes of the largest write and read, a multiple of 4096.
    pub max_write: u32,
}

/// The body of the reply: `fuse_init_out`.
pub(crate) fn agreed(offer: &Offer, wanted: &Wanted) -> Out {
    let flags = (wanted.flags | INIT_EXT) & offer.flags;
    // At most 16 MiB, so it fits.
    let pages = u16::try_from(wanted.max_write / 4096).unwrap_or(u16::MAX).max(1);
    let out = Out::new()
        .u32(MAJOR)
        .u32(MINOR.min(offer.version.1))
        .u32(wanted.read_ahead.min(offer.read_ahead))
        .u32(flags as u32)
        .u16(wanted.background)
        .u16(wanted.congested)
        .u32(wanted.max_write)
        // Times are kept to the nanosecond.
        .u32(1)
        .u16(pages)
        .u16(0)
        .u32((flags >> 32) as u32);
    (0..7).fold(out, |out, _| out.u32(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fields: &[u32]) -> Vec<u8> {
        fields.iter().flat_map(|field| field.to_ne_bytes()).collect()
    }

    #[test]
    fn an_offer_is_read_with_and_without_its_second_half() {
        let low = (WRITEBACK_CACHE | INIT_EXT) as u32;
        let offer = Offer::parse(&body(&[7, 40, 1 << 20, low, 1 << 4])).expect("it is whole");
        assert_eq!(offer.flags, WRITEBACK_CACHE | INIT_EXT | DIRECT_IO_ALLOW_MMAP);
        assert!(offer.is_spoken() && !offer.is_too_new());
        let old = Offer::parse(&body(&[7, 34, 1 << 20, WRITEBACK_CACHE as u32])).expect("whole");
        assert_eq!(old.flags, WRITEBACK_CACHE);
        assert_eq!(Offer::parse(&body(&[7, 40, 1 << 20, low])), None);
    }

    #[test]
    fn nothing_is_agreed_that_was_not_offered() {
        let offer = Offer { version: (7, 34), read_ahead: 4096, flags: WRITEBACK_CACHE };
        let wanted = Wanted {
            flags: WRITEBACK_CACHE | DIRECT_IO_ALLOW_MMAP,
            read_ahead: 8 << 20,
            background: 256,
            congested: 192,
            max_write: 1 << 20,
        };
        let out = agreed(&offer, &wanted);
        let expected = [7, 34, 4096, WRITEBACK_CACHE as u32, 192 << 16 | 256, 1 << 20, 1, 256];
        assert_eq!(out.bytes().len(), 64);
        if cfg!(target_endian = "little") {
            assert_eq!(out.bytes()[..32], body(&expected));
        }
        assert_eq!(out.bytes()[32..], [0; 32]);
    }
}
