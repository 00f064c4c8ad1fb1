//! The name of a new volume: what may be one.
//!
//! Owns the rule: what a superblock can hold, in characters that are safe in a file name and a table of mounts.

use braid_control::safe_name;
use braid_format::brick::MAX_NAME;
use std::fmt;
use std::str::FromStr;

/// A name that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName(String);

impl VolumeName {
    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeName, String> {
        if text.is_empty() {
            return Err("a volume needs a name".to_string());
        }
        safe_name::check(text, "a volume", MAX_NAME)?;
        Ok(VolumeName(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_safe_everywhere_are_taken_and_others_are_refused() {
        for name in ["pool", "0", "a.b_c-d", &"x".repeat(MAX_NAME)] {
            assert_eq!(name.parse::<VolumeName>().map(|n| n.to_string()), Ok(name.to_string()));
        }
        for (name, says) in [
            ("", "needs a name"),
            ("a b", "' '"),
            ("../x", "'/'"),
            (".x", "must begin"),
            (&"x".repeat(MAX_NAME + 1), "choose a shorter one"),
        ] {
            let error = name.parse::<VolumeName>().unwrap_err();
            assert!(error.contains(says), "{name:?}: {error}");
        }
    }
}
