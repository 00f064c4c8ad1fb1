//! Entries of directories. Each is recorded twice: by name for look-ups, by cookie for reading in order.
//!
//! ```text
//! by name    ino u64 | cookie u64 | kind u8
//! by cookie  ino u64 | kind u8 | name
//! ```
//! The kind is the type nibble of `st_mode` (`S_IFMT >> 12`).

use super::RecordError;

/// An entry as it is found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByName {
    /// The file.
    pub ino: u64,
    /// Its place in the order of reading.
    pub cookie: u64,
    /// Type nibble.
    pub kind: u8,
}

/// An entry as it is found by its cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByCookie {
    /// The file.
    pub ino: u64,
    /// Type nibble.
    pub kind: u8,
    /// Its name.
    pub name: Vec<u8>,
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl ByName {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(17);
        bytes.extend_from_slice(&self.ino.to_le_bytes());
        bytes.extend_from_slice(&self.cookie.to_le_bytes());
        bytes.push(self.kind);
        bytes
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When its length is wrong or a number is 0.
    pub fn parse(bytes: &[u8]) -> Result<ByName, RecordError> {
        let parsed = (bytes.len() == 17)
            .then(|| {
                Some(ByName { ino: number(bytes, 0)?, cookie: number(bytes, 8)?, kind: bytes[16] })
            })
            .flatten();
        parsed
            .filter(|entry| entry.ino != 0 && entry.cookie != 0)
            .ok_or_else(|| RecordError::new("a directory entry", "wrong length or number"))
    }
}

impl ByCookie {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + self.name.len());
        bytes.extend_from_slice(&self.ino.to_le_bytes());
        bytes.push(self.kind);
        bytes.extend_from_slice(&self.name);
        bytes
    }

    /// Reads the record.
    ///
    /// # Errors
    /// When it is too short, or the number is 0.
    pub fn parse(bytes: &[u8]) -> Result<ByCookie, RecordError> {
        let parsed = (bytes.len() > 9)
            .then(|| {
                Some(ByCookie { ino: number(bytes, 0)?, kind: bytes[8], name: bytes[9..].to_vec() })
            })
            .flatten();
        parsed
            .filter(|entry| entry.ino != 0)
            .ok_or_else(|| RecordError::new("a directory entry", "wrong length or number"))
    }
}
