//! The name of a group of arrays that share their spares, as mdadm's `spare-group`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of a name at most.
const LEN_MAX: usize = 32;

/// Letters, digits, `.`, `_` and `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpareGroup {
    name: [u8; LEN_MAX],
    len: u8,
}

impl SpareGroup {
    /// The name.
    pub fn as_str(&self) -> &str {
        let name = self.name.get(..self.len.into()).unwrap_or_default();
        // ASCII alone gets in.
        std::str::from_utf8(name).unwrap_or_default()
    }
}

impl FromStr for SpareGroup {
    type Err = String;

    fn from_str(text: &str) -> Result<SpareGroup, String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let mut name = [0; LEN_MAX];
        let room = name.get_mut(..text.len()).filter(|_| !text.is_empty());
        match room.filter(|_| text.bytes().all(fits)) {
            Some(room) => room.copy_from_slice(text.as_bytes()),
            None => {
                return Err(format!(
                    "{text:?} is no name of a spare group: 1 to {LEN_MAX} letters, digits, '.', '_' or '-'"
                ));
            }
        }
        // At most `LEN_MAX`.
        Ok(SpareGroup { name, len: text.len() as u8 })
    }
}

impl TryFrom<String> for SpareGroup {
    type Error = String;

    fn try_from(text: String) -> Result<SpareGroup, String> {
        text.parse()
    }
}

impl From<SpareGroup> for String {
    fn from(group: SpareGroup) -> String {
        group.to_string()
    }
}

impl fmt::Display for SpareGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_what_is_none_is_refused() {
        for name in ["a", "rack-1_left.disks", &"x".repeat(LEN_MAX)] {
            assert_eq!(name.parse::<SpareGroup>().unwrap().to_string(), name);
        }
        for name in ["", "two words", "\u{e9}", "a=b", &"x".repeat(LEN_MAX + 1)] {
            assert!(name.parse::<SpareGroup>().unwrap_err().contains("spare group"), "{name}");
        }
    }
}
