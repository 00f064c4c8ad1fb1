//! A device in figures and properties: what it tells whoever uses it.

/// The description of a device. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name for messages: a path, `ram:256M`, an array's name.
    pub name: String,
    /// Size; requests never reach beyond it.
    pub size: u64,
    /// Every offset and length must be a multiple of this (512 to 4096).
    pub logical_block: u32,
    /// Writes smaller than this cost a read inside the device.
    pub physical_block: u32,
    /// The smallest request that goes to one place only, a chunk of an array; 0 when it does not say. Linux calls
    /// it `io_min`.
    pub minimum_io: u32,
    /// The size of request that the device likes best, a multiple of `minimum_io`; 0 when it does not say. Linux
    /// calls it `io_opt`.
    pub optimal_io: u32,
    /// Discards do something.
    pub discards: bool,
    /// Write-zeroes is cheaper than writing zero bytes.
    pub writes_zeroes: bool,
    /// Written data may be lost at a power cut until a flush.
    pub volatile_cache: bool,
    /// Requests gain from being collected, sorted and merged before they are submitted.
    pub wants_plug: bool,
    /// Seeks cost time.
    pub rotational: bool,
    /// Reads and writes bypass the page cache (or there is none).
    pub direct: bool,
}

impl DeviceInfo {
    /// The description of a plain memory-like device, for kinds to start from.
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
