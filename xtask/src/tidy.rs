//! `cargo xtask tidy`: the rules of the tree, as a table.
//!
//! Owns the table and the report. Each rule is a function from the [`Tree`] to its [`Finding`]s; it
//! reads nothing itself, so it can be shown failing on a tree made of strings. A rule's limits and
//! lists stand at the top of its module: that is where a deliberate change goes.

mod arrows;
mod dependencies;
mod documents;
mod reach;
mod tokens;
mod tree;
mod unsafety;
mod upkeep;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tree::Tree;

/// One rule: what it is called, what holds when it finds nothing, and how it looks.
struct Rule {
    name: &'static str,
    holds: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "arrows",
        holds: "crates depend downwards only (the table is in tidy/arrows.rs)",
        check: arrows::point_down,
    },
    Rule {
        name: "tokio",
        holds: "tokio is a dependency of crates in app only",
        check: arrows::tokio_only_in_app,
    },
    Rule {
        name: "dependencies",
        holds: "every third-party crate has its row in docs/dependencies.md",
        check: dependencies::every_crate_has_a_row,
    },
    Rule {
        name: "dependency-rows",
        holds: "every row of docs/dependencies.md is about a crate in use, and is complete",
        check: dependencies::every_row_has_a_crate,
    },
    Rule {
        name: "pins",
        holds: "every version pinned in the root manifest is used by some crate",
        check: dependencies::every_pin_is_used,
    },
    Rule {
        name: "unsafe-places",
        holds: "`unsafe` stands only in the modules listed in tidy/unsafety.rs",
        check: unsafety::only_in_listed_places,
    },
    Rule {
        name: "crate-roots",
        holds: "every crate root forbids unsafe code, or denies it where a listed module needs it",
        check: unsafety::roots_forbid_it,
    },
    Rule {
        name: "safety-comments",
        holds: "every unsafe block and unsafe impl has a `// SAFETY:` above it",
        check: unsafety::blocks_say_why,
    },
    Rule {
        name: "reach",
        holds: "pure and engine name no clock, thread, socket or file; only app names tokio",
        check: reach::forbidden_paths,
    },
    Rule {
        name: "locks",
        holds: "no Mutex or RwLock in runtime and engine",
        check: reach::no_locks,
    },
    Rule {
        name: "file-length",
        holds: "no source file is over 700 lines (test files excepted)",
        check: upkeep::files_are_short,
    },
    Rule {
        name: "module-comment",
        holds: "every source file opens with a `//!` comment that says what it owns",
        check: upkeep::files_open_with_their_subject,
    },
    Rule {
        name: "unfinished",
        holds: "no mark of unfinished work in comments or code",
        check: upkeep::nothing_is_unfinished,
    },
    Rule {
        name: "code-map",
        holds: "every crate has its place in the code map of ARCHITECTURE.md",
        check: documents::every_crate_is_on_the_map,
    },
    Rule {
        name: "targets",
        holds: "every target of the Makefile has its line in README.md",
        check: documents::every_target_is_in_the_readme,
    },
    Rule {
        name: "readable",
        holds: "every manifest and source file can be parsed",
        check: upkeep::everything_parses,
    },
];

/// Something that breaks a rule: where, what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// Path from the repository root.
    file: String,
    /// 1-based; `None` where the finding is about the whole file.
    line: Option<usize>,
    what: String,
    remedy: String,
}

impl Finding {
    fn in_file(file: &str, what: String, remedy: &str) -> Self {
        Finding { file: file.to_owned(), line: None, what, remedy: remedy.to_owned() }
    }

    fn at(file: &str, line: usize, what: String, remedy: &str) -> Self {
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

/// Holds the tree under `root` to every rule and prints what it finds. The exit code is a failure
/// when anything was found.
pub fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    let mut found = 0;
    for rule in RULES {
        for finding in (rule.check)(&tree) {
            println!("{finding} [{}]", rule.name);
            found += 1;
        }
    }
    let looked_at = format!(
        "{} rules, {} crates, {} source files",
        RULES.len(),
        tree.crates().count(),
        tree.sources.len()
    );
    if found == 0 {
        println!("tidy: {looked_at}: nothing found");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("tidy: {looked_at}: {found} to mend");
        Ok(ExitCode::FAILURE)
    }
}

/// Prints each rule's name and what holds when it is kept.
pub fn list_rules() {
    let width = RULES.iter().map(|rule| rule.name.len()).max().unwrap_or(0);
    for rule in RULES {
        println!("{:width$}  {}", rule.name, rule.holds);
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

    #[test]
    fn a_tree_that_keeps_the_rules_has_no_findings() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("docs/dependencies.md", "| crate | why | looked at |\n|---|---|---|\n"),
            ("ARCHITECTURE.md", "### `crates/pure/layout`\n"),
            ("crates/pure/layout/Cargo.toml", "[package]\nname = \"braid-layout\"\n"),
            ("crates/pure/layout/src/lib.rs", "//! Layouts.\n#![forbid(unsafe_code)]\n"),
        ]);
        for rule in RULES {
            assert_eq!((rule.check)(&tree), [], "{}", rule.name);
        }
    }
}
