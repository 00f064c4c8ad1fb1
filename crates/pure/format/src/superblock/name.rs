//! The array's name: 32 bytes, NUL padded, nearly always text.
//!
//! Invariant: the 32 bytes are kept as found; the escaped form loses none of them
//! (`Name::from_escaped(&name.escaped()) == name`).

use std::fmt;

/// An array's name as stored.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Name(pub [u8; 32]);

/// The reason why a text cannot be the name of an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More bytes than the field holds.
    #[error(
        "array name {name:?} takes {len} bytes and a superblock holds 32; choose a shorter name \
         (the host name before the colon counts)"
    )]
    TooLong {
        /// The name given.
        name: String,
        /// Its length in bytes.
        len: usize,
    },
    /// A NUL ends the stored name, so it cannot be inside.
    #[error("array name {name:?} contains a NUL byte; remove it")]
    Nul {
        /// The name given.
        name: String,
    },
    /// A backslash that starts none of the known escapes.
    #[error("array name {name:?}: the escape at byte {at} is neither \\\\ nor \\xNN; correct it")]
    Escape {
        /// The name given.
        name: String,
        /// Byte position of the backslash.
        at: usize,
    },
}

impl Name {
    /// The name with this text, byte for byte. At most 32 bytes, none of them NUL.
    ///
    /// # Errors
    /// Text that is too long or has a NUL.
    pub fn new(text: &str) -> Result<Name, NameError> {
        if text.contains('\0') {
            return Err(NameError::Nul { name: text.to_owned() });
        }
        Name::fill(text, text.as_bytes())
    }

    fn fill(text: &str, bytes: &[u8]) -> Result<Name, NameError> {
        let mut name = [0u8; 32];
        match name.get_mut(..bytes.len()) {
            Some(head) => head.copy_from_slice(bytes),
            None => {
                return Err(NameError::TooLong { name: text.to_owned(), len: bytes.len() });
            }
        }
        Ok(Name(name))
    }

    /// The bytes without the NUL padding at the end.
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        // `len` is at most 32.
        self.0.get(..len).unwrap_or(&self.0)
    }

    /// The text, when the bytes are plain text: UTF-8 without control characters.
    pub fn as_text(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.bytes()).ok()?;
        (!text.contains(char::is_control)).then_some(text)
    }

    /// The part after the host name and colon, or the whole name when there is no colon.
    pub fn short(&self) -> &[u8] {
        let bytes = self.bytes();
        match bytes.iter().position(|&b| b == b':') {
            Some(colon) => bytes.get(colon + 1..).unwrap_or_default(),
            None => bytes,
        }
    }

    /// A reversible form for terminals and JSON: text as it is, `\\` for a backslash, `\xNN` for control characters and for
    /// bytes that are not UTF-8.
    pub fn escaped(&self) -> String {
        let mut out = String::new();
        for part in self.bytes().utf8_chunks() {
            for c in part.valid().chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    c if c.is_control() => {
                        let mut buffer = [0u8; 4];
                        push_hex(&mut out, c.encode_utf8(&mut buffer).as_bytes());
                    }
                    c => out.push(c),
                }
            }
            push_hex(&mut out, part.invalid());
        }
        out
    }

    /// Reads [`Name::escaped`] back.
    ///
    /// # Errors
    /// An unknown escape, or more than 32 bytes.
    pub fn from_escaped(text: &str) -> Result<Name, NameError> {
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c != '\\' {
                let len = c.len_utf8();
                bytes.extend_from_slice(rest.as_bytes().get(..len).unwrap_or_default());
                rest = rest.get(len..).unwrap_or_default();
            } else if let Some(after) = rest.strip_prefix("\\\\") {
                bytes.push(b'\\');
                rest = after;
            } else {
                let hex = rest.strip_prefix("\\x").and_then(|r| r.get(..2));
                let byte = hex
                    .filter(|h| !h.starts_with('+'))
                    .and_then(|h| u8::from_str_radix(h, 16).ok());
                match byte {
                    Some(byte) => bytes.push(byte),
                    None => {
                        return Err(NameError::Escape {
                            name: text.to_owned(),
                            at: text.len() - rest.len(),
                        });
                    }
                }
                // The escape was four ASCII characters.
                rest = rest.get(4..).unwrap_or_default();
            }
        }
        Name::fill(text, &bytes)
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str(&format!("\\x{byte:02x}"));
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.escaped())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({:?})", self.escaped())
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thirty_two_bytes_fit_and_thirty_three_do_not() {
        let name = Name::new(&"a".repeat(32)).unwrap();
        assert_eq!(name.as_text(), Some("a".repeat(32).as_str()));
        assert!(matches!(Name::new(&"a".repeat(33)), Err(NameError::TooLong { len: 33, .. })));
    }

    #[test]
    fn short_name_follows_the_colon() {
        assert_eq!(Name::new("host:data").unwrap().short(), b"data");
        assert_eq!(Name::new("data").unwrap().short(), b"data");
    }

    #[test]
    fn terminal_controls_are_shown_and_not_sent() {
        let name = Name::new("a\u{1b}[2J\\").unwrap();
        assert_eq!(name.to_string(), "a\\x1b[2J\\\\");
        assert_eq!(name.as_text(), None);
    }

    #[test]
    fn unknown_escapes_are_refused_with_their_place() {
        assert!(matches!(Name::from_escaped("ab\\n"), Err(NameError::Escape { at: 2, .. })));
        assert!(Name::from_escaped("\\x+1").is_err());
        assert!(Name::from_escaped("\\x\u{e9}").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_from_the_escaped_form(bytes: [u8; 32]) {
            let name = Name(bytes);
            prop_assert_eq!(Name::from_escaped(&name.escaped()).unwrap(), name);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(\\\\|\\\\x|\\PC){0,40}") {
            let _ = Name::from_escaped(&text);
            let _ = Name::new(&text);
        }
    }
}
