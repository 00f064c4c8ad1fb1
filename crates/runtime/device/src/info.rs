//! The properties of a device: size, block sizes, abilities.

/// The description of a device. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name for messages: a path, `ram:256M`, an array's name.
    pub name: String,
    /// Size of the device. Requests must not reach beyond it.
    pub size: u64,
    /// Every offset and length must be a multiple of this (512 to 4096).
    pub logical_block: u32,
    /// Smaller writes make the device read before it writes.
    pub physical_block: u32,
    /// The preferred minimum size of requests, such as the chunk of an array; 0 if unknown. Linux calls
    /// it `io_min`.
    pub minimum_io: u32,
    /// The optimal size of requests, a multiple of `minimum_io`; 0 if unknown. Linux
    /// calls it `io_opt`.
    pub optimal_io: u32,
    /// Discards are supported.
    pub discards: bool,
    /// Write-zeroes is cheaper than writing zero bytes.
    pub writes_zeroes: bool,
    /// A power failure may lose written data that was not flushed.
    pub volatile_cache: bool,
    /// Requests should be collected, sorted and merged before they are submitted.
    pub wants_plug: bool,
    /// The device has heads that must seek.
    pub rotational: bool,
    /// Reads and writes bypass the page cache (or there is none).
    pub direct: bool,
}

impl DeviceInfo {
    /// The description of a device in memory; other kinds change single fields of it.
    pub fn plain(name: impl Into<String>, size: u64) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            size,
            logical_block: 512,
            physical_block: 4096,
            minimum_io: 0,
            optimal_io: 0,
            discards: true,
            writes_zeroes: true,
            volatile_cache: false,
            wants_plug: false,
            rotational: false,
            direct: true,
        }
    }
}
