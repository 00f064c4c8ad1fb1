//! A finding: where a rule is broken, in words for whoever mends it.

use std::fmt;

/// Something that breaks a rule: where, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the repository root.
    pub file: String,
    /// 1-based; `None` where the finding is about the whole file.
    pub line: Option<usize>,
    pub what: String,
    pub remedy: String,
}

impl Finding {
    pub fn in_file(file: &str, what: String, remedy: &str) -> Self {
        Finding { file: file.to_owned(), line: None, what, remedy: remedy.to_owned() }
    }

    pub fn at(file: &str, line: usize, what: String, remedy: &str) -> Self {
        Finding { line: Some(line), ..Finding::in_file(file, what, remedy) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
        }
        write!(out, ": {}; {}", self.what, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let at = Finding::at("a/b.rs", 7, "is wrong".to_owned(), "mend it");
        assert_eq!(at.to_string(), "a/b.rs:7: is wrong; mend it");
        let whole = Finding::in_file("a/b.rs", "is wrong".to_owned(), "mend it");
        assert_eq!(whole.to_string(), "a/b.rs: is wrong; mend it");
    }
}
