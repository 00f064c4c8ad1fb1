//! A volume's name, as users type and see it.
//!
//! Invariant: it is text that can be shown, and it fits its field.

use std::fmt;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 64;

/// A volume's name: 1 to [`MAX_NAME`] bytes of text without control characters and slashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeName(String);

/// The reason why a text cannot be the name of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeNameError {
    /// No name.
    #[error("the name of a volume is empty; give it one")]
    Empty,
    /// Longer than its field.
    #[error("volume name {name:?} takes {} bytes and a superblock holds {MAX_NAME}; choose a shorter name", name.len())]
    TooLong {
        /// The name given.
        name: String,
    },
    /// A character that would break paths or terminals.
    #[error(
        "volume name {name:?} contains {found:?}; choose a name without control characters and slashes"
    )]
    Character {
        /// The name given.
        name: String,
        /// The first such character.
        found: char,
    },
    /// Stored bytes that are not text.
    #[error(
        "the stored volume name is not text (UTF-8 up to the first NUL, then only NUL): {bytes:02x?}"
    )]
    NotText {
        /// The bytes stored.
        bytes: Vec<u8>,
    },
}

impl VolumeName {
    /// The name with this text.
    ///
    /// # Errors
    /// Text that is empty, too long, or has a control character or a slash in it.
    pub fn new(text: &str) -> Result<VolumeName, VolumeNameError> {
        if text.is_empty() {
            return Err(VolumeNameError::Empty);
        }
        if text.len() > MAX_NAME {
            return Err(VolumeNameError::TooLong { name: text.to_owned() });
        }
        if let Some(found) = text.chars().find(|c| c.is_control() || *c == '/') {
            return Err(VolumeNameError::Character { name: text.to_owned(), found });
        }
        Ok(VolumeName(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn padded(&self) -> [u8; MAX_NAME] {
        let mut field = [0; MAX_NAME];
        // A name is at most as long as its field.
        if let Some(head) = field.get_mut(..self.0.len()) {
            head.copy_from_slice(self.0.as_bytes());
        }
        field
    }

    pub(super) fn of_padded(field: &[u8; MAX_NAME]) -> Result<VolumeName, VolumeNameError> {
        let not_text = || VolumeNameError::NotText { bytes: field.to_vec() };
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(MAX_NAME);
        let (text, rest) = field.split_at_checked(end).ok_or_else(not_text)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(not_text());
        }
        VolumeName::new(std::str::from_utf8(text).map_err(|_| not_text())?)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
