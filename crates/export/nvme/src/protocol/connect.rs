//! The data of a Connect command (Base 2.0, section 6.3).

use super::fields::{put, text_at, u16_at};

/// Bytes of it.
pub const CONNECT_BYTES: usize = 1024;
const NAME_BYTES: usize = 256;

/// The host that connects, and the subsystem that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// The host's identifier.
    pub host_id: [u8; 16],
    /// The controller: 0xffff for a new one.
    pub controller: u16,
    /// The subsystem's name.
    pub subsystem: String,
    /// The host's name.
    pub host: String,
}

impl ConnectData {
    /// Takes the bytes apart; `None` when they are too short, or a name has no end. The position of the first wrong field.
    ///
    /// # Errors
    /// The offset of a name that is none.
    pub fn decode(bytes: &[u8]) -> Result<ConnectData, u16> {
        let host_id = bytes.first_chunk().copied().ok_or(0u16)?;
        let name = |at: u16| {
            text_at(bytes, at.into(), NAME_BYTES)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .ok_or(at)
        };
        let (subsystem, host) = (name(256)?, name(512)?);
        Ok(ConnectData { host_id, controller: u16_at(bytes, 16), subsystem, host })
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONNECT_BYTES];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, 16, &self.controller.to_le_bytes());
        put(&mut bytes, 256, self.subsystem.as_bytes());
        put(&mut bytes, 512, self.host.as_bytes());
        bytes
    }
}
