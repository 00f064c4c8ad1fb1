//! The offer of a server: exports, their sizes, block sizes and features.
//!
//! Owns the names and their look-up, and the rules on what may be advertised. Does not know what
//! is behind an export. Invariant: a table that could be built can be advertised as it is.

use super::constants::*;

/// Block size constraints of an export, in bytes (proto.md, "Block size constraints").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Smallest length and alignment of a request; a power of two, 1 to 65536.
    pub minimum: u32,
    /// Requests of at least this size and alignment are efficient; a power of two, at least 512
    /// and at least `minimum`.
    pub preferred: u32,
    /// Largest read or write; a multiple of `minimum`.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 512, preferred: 4096, maximum: PAYLOAD_BYTES_MAX }
    }
}

/// The features of an export beyond reading and writing (proto.md, "Transmission flags").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Writes, trims and zeroes are refused.
    pub read_only: bool,
    /// Flush is supported.
    pub flush: bool,
    /// Forced unit access is supported.
    pub fua: bool,
    /// Trim is supported.
    pub trim: bool,
    /// Write zeroes is supported.
    pub write_zeroes: bool,
    /// Fast zero is understood: it succeeds only where zeroing is faster than writing.
    pub fast_zero: bool,
    /// A flush on any connection covers writes completed on every connection.
    pub multi_conn: bool,
    /// Prefetch is understood.
    pub cache: bool,
    /// The export behaves like a rotating disk.
    pub rotational: bool,
}

impl Features {
    /// The transmission flags; `structured` says whether structured replies were negotiated,
    /// without which `NBD_FLAG_SEND_DF` must stay clear.
    #[must_use]
    pub fn transmission_flags(&self, structured: bool) -> u16 {
        [
            (true, FLAG_HAS_FLAGS),
            (self.read_only, FLAG_READ_ONLY),
            (self.flush, FLAG_SEND_FLUSH),
            (self.fua, FLAG_SEND_FUA),
            (self.rotational, FLAG_ROTATIONAL),
            (self.trim, FLAG_SEND_TRIM),
            (self.write_zeroes, FLAG_SEND_WRITE_ZEROES),
            (structured, FLAG_SEND_DF),
            (self.multi_conn, FLAG_CAN_MULTI_CONN),
            (self.cache, FLAG_SEND_CACHE),
            // Must be clear when write zeroes is (proto.md, bit 11 of "Transmission flags").
            (self.fast_zero && self.write_zeroes, FLAG_SEND_FAST_ZERO),
        ]
        .iter()
        .filter(|(set, _)| *set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    /// The features that the given transmission flags advertise.
    #[must_use]
    pub fn from_transmission_flags(flags: u16) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            read_only: has(FLAG_READ_ONLY),
            flush: has(FLAG_SEND_FLUSH),
            fua: has(FLAG_SEND_FUA),
            trim: has(FLAG_SEND_TRIM),
            write_zeroes: has(FLAG_SEND_WRITE_ZEROES),
            fast_zero: has(FLAG_SEND_FAST_ZERO),
            multi_conn: has(FLAG_CAN_MULTI_CONN),
            cache: has(FLAG_SEND_CACHE),
            rotational: has(FLAG_ROTATIONAL),
        }
    }
}

/// One export as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Name, at most 4096 bytes, without NUL; the empty name is the default export's.
    pub name: String,
    /// Text for a human reader, at most 4096 bytes; may be empty.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Block size constraints.
    pub block: BlockSizes,
    /// Its features.
    pub features: Features,
}

/// The exports of a server, with unique names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTable {
    exports: Vec<Export>,
    default: Option<usize>,
}

/// Why a table of exports cannot be advertised.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExportTableError {
    /// Two exports share a name.
    #[error("two exports are named {0:?}: give each export a name of its own")]
    DuplicateName(String),
    /// A name or description is too long or holds a NUL byte.
    #[error(
        "export name or description starting {0:?} is longer than 4096 bytes or holds a NUL \
         byte: choose a shorter text without NUL"
    )]
    BadString(String),
    /// Block sizes break the protocol's rules.
    #[error(
        "export {name:?} has block sizes minimum {}, preferred {}, maximum {}: the minimum must be \
         a power of two up to 65536, the preferred one a power of two of at least the minimum and \
         512, the maximum a multiple of the minimum and not below the preferred one", .block.minimum,
         .block.preferred, .block.maximum
    )]
    BadBlockSizes {
        /// Export name.
        name: String,
        /// The sizes given.
        block: BlockSizes,
    },
    /// The default export named is not in the table.
    #[error("no export is named {0:?}, which was to be the default: name an existing export")]
    NoSuchDefault(String),
}

impl ExportTable {
    /// A table of `exports`. The empty name leads to the export named `default`, or to the only
    /// export when there is one and `default` is `None`, or to an export whose name is empty.
    ///
    /// # Errors
    /// Names that are not unique or not allowed, block sizes that are not allowed, an unknown
    /// default.
    pub fn new(exports: Vec<Export>, default: Option<&str>) -> Result<Self, ExportTableError> {
        for (at, export) in exports.iter().enumerate() {
            for text in [&export.name, &export.description] {
                if text.len() > STRING_BYTES_MAX || text.contains('\0') {
                    return Err(ExportTableError::BadString(text.chars().take(32).collect()));
                }
            }
            if exports.iter().take(at).any(|other| other.name == export.name) {
                return Err(ExportTableError::DuplicateName(export.name.clone()));
            }
            let BlockSizes { minimum, preferred, maximum } = export.block;
            let allowed = minimum.is_power_of_two()
                && minimum <= 1 << 16
                && preferred.is_power_of_two()
                && preferred >= minimum.max(512)
                && maximum % minimum == 0
                && maximum >= preferred;
            if !allowed {
                return Err(ExportTableError::BadBlockSizes {
                    name: export.name.clone(),
                    block: export.block,
                });
            }
        }
        let position = |name: &str| exports.iter().position(|export| export.name == name);
        let default = match default {
            Some(name) => Some(
                position(name).ok_or_else(|| ExportTableError::NoSuchDefault(name.to_owned()))?,
            ),
            None if exports.len() == 1 => Some(0),
            None => position(""),
        };
        Ok(Self { exports, default })
    }

    /// Index of the export called `name`; the empty name finds the default export, if any.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        if name.is_empty() {
            return self.default;
        }
        self.exports.iter().position(|export| export.name == name)
    }

    /// The export at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Export> {
        self.exports.get(index)
    }

    /// All exports, in the order given.
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }
}
