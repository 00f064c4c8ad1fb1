//! A mistake in the configuration, with its place.

use std::path::{Path, PathBuf};

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("reading the configuration {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Something in it is wrong.
    #[error("{}:{line}:{column}: {why}", path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The character in it, from 1.
        column: usize,
        /// The mistake.
        why: String,
    },
}

impl ConfigError {
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
        let mut why = error.to_string();
        if error.kind() == std::io::ErrorKind::NotFound {
            why.push_str(
                "; `braid detail --toml` of arrays that run writes one, --config names another",
            );
        }
        ConfigError::Unreadable { path: path.to_owned(), why }
    }

    /// A mistake at byte `at` of `text`.
    pub(super) fn at(path: &Path, text: &str, at: usize, why: String) -> ConfigError {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        // Messages of the parser may have several lines, the place among them.
        let why = why.lines().collect::<Vec<_>>().join("; ");
        ConfigError::At { path: path.to_owned(), line, column, why }
    }
}
