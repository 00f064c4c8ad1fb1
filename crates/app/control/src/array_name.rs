//! The name of a new array: what may be one.
//!
//! Owns the rule that mdadm has too: characters that are safe in a file name, not more than the
//! superblock has room for.

use crate::safe_name;
use std::fmt;
use std::str::FromStr;

/// Bytes that a superblock has for host, colon and name together.
pub const ROOM: usize = 32;

/// A name that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayName(String);

impl ArrayName {
    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ArrayName {
    type Err = String;

    fn from_str(text: &str) -> Result<ArrayName, String> {
        if let Some(name) = text.strip_prefix("/dev/") {
            let name = name.strip_prefix("md/").unwrap_or(name);
            return Err(format!("an array has a name here, no device node; write {name:?}"));
        }
        if text.is_empty() || text == "missing" {
            return Err("an array needs a name".to_string());
        }
        safe_name::check(text, "an array", ROOM)?;
        Ok(ArrayName(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_safe_everywhere_are_taken() {
        for name in ["data", "0", "md127", "a.b_c-d", &"x".repeat(32)] {
            assert_eq!(name.parse::<ArrayName>().map(|n| n.to_string()), Ok(name.to_string()));
        }
    }

    #[test]
    fn others_are_refused_with_what_to_write() {
        for (name, says) in [
            ("", "needs a name"),
            ("/dev/md0", "write \"md0\""),
            ("/dev/md/data", "write \"data\""),
            ("a b", "' '"),
            ("host:data", "':'"),
            ("../x", "'/'"),
            (".x", "must begin"),
            ("\u{1b}[2J", "\\u{1b}"),
            (&"x".repeat(33), "33 bytes"),
        ] {
            let error = name.parse::<ArrayName>().unwrap_err();
            assert!(error.contains(says), "{name:?}: {error}");
        }
    }
}
