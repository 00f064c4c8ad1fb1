//! `cargo xtask tidy`: the rules of the tree, as a table.
//!
//! Owns the table and the report. Each rule is a function from the [`Tree`] to its [`Finding`]s; it
//! reads nothing itself, so it can be shown failing on a tree made of strings. A rule's limits and
//! lists stand at the top of its module: that is where a deliberate change goes.

mod arrows;
mod circles;
mod dependencies;
mod documents;
mod finding;
mod known_circles;
mod modules;
mod reach;
mod tokens;
mod tree;
mod unsafety;
mod upkeep;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use finding::Finding;
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
        name: "circles",
        holds: "no modules of a crate name each other in a circle (those left: tidy/known_circles.rs)",
        check: circles::none_but_listed,
    },
    Rule {
        name: "order",
        holds: "the modules of a crate name only those below them in ARCHITECTURE.md's table",
        check: circles::ordered,
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
    fn a_tree_that_keeps_the_rules_has_no_findings() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("docs/dependencies.md", "| crate | why | looked at |\n|---|---|---|\n"),
            ("ARCHITECTURE.md", "### `crates/pure/sums`\n"),
            ("crates/pure/sums/Cargo.toml", "[package]\nname = \"braid-sums\"\n"),
            ("crates/pure/sums/src/lib.rs", "//! Sums.\n#![forbid(unsafe_code)]\n"),
        ]);
        for rule in RULES {
            assert_eq!((rule.check)(&tree), [], "{}", rule.name);
        }
    }
}
