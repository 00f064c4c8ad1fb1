//! Numbers of the places in the tree, by which the kernel names them.
//!
//! Invariant: a path has one number for the life of the mount. They are as many as the names that ever were.

use braid_filesystem::{Ino, ROOT};
use std::collections::HashMap;

/// See the module's documentation.
pub(crate) struct Numbers {
    by_path: HashMap<String, Ino>,
    /// That of number n at n - 1.
    paths: Vec<String>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { by_path: HashMap::from([(String::new(), ROOT)]), paths: vec![String::new()] }
    }
}

impl Numbers {
    /// The number of a path.
    pub fn of(&mut self, path: &str) -> Ino {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        self.paths.push(path.to_string());
        let number = self.paths.len() as Ino;
        self.by_path.insert(path.to_string(), number);
        number
    }

    /// The path of a number.
    pub fn path(&self, number: Ino) -> Option<String> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.paths.get(index).cloned()
    }
}

/// The path of `name` in `folder`.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}

/// The folder of a path, and its name there; `None` for the root.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/') {
        Some(both) => Some(both),
        None => (!path.is_empty()).then_some(("", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_number() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.of(""), ROOT);
        let (a, b) = (numbers.of("a"), numbers.of("a/b"));
        assert!(a != b && a != ROOT && b != ROOT);
        assert_eq!((numbers.of("a"), numbers.of("a/b")), (a, b));
        assert_eq!(numbers.path(a).as_deref(), Some("a"));
        assert_eq!(numbers.path(b).as_deref(), Some("a/b"));
        assert_eq!(numbers.path(ROOT).as_deref(), Some(""));
        assert_eq!((numbers.path(0), numbers.path(u64::MAX), numbers.path(4)), (None, None, None));
    }

    #[test]
    fn paths_are_split_where_they_are_joined() {
        for (folder, name) in [("", "mdstat"), ("a", "data"), ("a/md", "level")] {
            assert_eq!(split(&join(folder, name)), Some((folder, name)));
        }
        assert_eq!(split(""), None);
    }
}
