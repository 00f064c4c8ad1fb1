//! A signature that was found on a device, and the text that describes it.

/// Something recognised on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its kind in one word: `ext4`, `gpt`, `linux_raid_member`, … (blkid's names, where it has one).
    pub kind: &'static str,
    /// Description for people: `ext4 filesystem, label "data", uuid …`.
    pub what: String,
    /// Byte offset of the signature itself.
    pub at: u64,
    /// Length in bytes; once they are overwritten, the signature is gone.
    pub len: u64,
}

/// Builds the description: the name of the format, then label and uuid if there are any.
pub struct Text(String);

impl Text {
    pub fn new(what: impl Into<String>) -> Text {
        Text(what.into())
    }

    /// Adds a label of padded text in any encoding that has ASCII in it; an empty one is left out.
    pub fn label(self, bytes: &[u8]) -> Text {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
        self.named("label", text.trim_end())
    }

    /// Adds `, name "value"` unless the value is empty. Quotes and control characters are escaped.
    pub fn named(mut self, name: &str, value: &str) -> Text {
        if !value.is_empty() {
            self.0.push_str(&format!(", {name} {value:?}"));
        }
        self
    }

    /// Adds a uuid stored in the order of its text; one of zeros is left out.
    pub fn uuid(mut self, bytes: Option<[u8; 16]>) -> Text {
        if let Some(bytes) = bytes.filter(|b| *b != [0; 16]) {
            self.0.push_str(&format!(", uuid {}", uuid::Uuid::from_bytes(bytes)));
        }
        self
    }

    /// Adds more text after a comma.
    pub fn add(mut self, more: impl AsRef<str>) -> Text {
        self.0.push_str(", ");
        self.0.push_str(more.as_ref());
        self
    }

    /// The signature with this description.
    pub fn at(self, kind: &'static str, at: u64, len: u64) -> Signature {
        Signature { kind, what: self.0, at, len }
    }
}
