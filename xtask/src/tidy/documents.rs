//! Rules that tie ARCHITECTURE.md and README.md to what they describe.
//!
//! Owns no list: the crates and the Makefile are the lists. Knows only whether a thing is named, not
//! whether what is said of it is right.

use super::finding::Finding;
use super::tree::{CODE_MAP, MAKEFILE, README, Tree};

/// The folder of each crate stands in the code map, in backticks.
pub fn every_crate_is_on_the_map(tree: &Tree) -> Vec<Finding> {
    let map = tree.document(CODE_MAP);
    let mut findings = Vec::new();
    for (_, manifest) in tree.crates() {
        let folder = manifest.folder().trim_end_matches('/');
        if !map.contains(&format!("`{folder}`")) {
            findings.push(Finding::in_file(
                CODE_MAP,
                format!("the code map has no `{folder}`"),
                "say what it owns, its invariant, and what it must not know",
            ));
        }
    }
    findings
}

/// Each target that the Makefile describes stands in the README as a command.
pub fn every_target_is_in_the_readme(tree: &Tree) -> Vec<Finding> {
    let readme = tree.document(README);
    let mut findings = Vec::new();
    for (number, line) in tree.document(MAKEFILE).lines().enumerate() {
        let Some((target, rest)) = line.split_once(':') else { continue };
        let described = rest.contains("## ") && !line.starts_with(['#', '\t']);
        let named = readme.contains(&format!("`make {target}`"))
            || readme.contains(&format!("`make {target} "));
        if described && target != "help" && !named {
            findings.push(Finding::at(
                MAKEFILE,
                number + 1,
                format!("`make {target}` is not in {README}"),
                "give it a line in the table of targets",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        let found = |map: &str| {
            every_crate_is_on_the_map(&Tree::of(&[
                ("crates/pure/layout/Cargo.toml", "[package]\nname = \"braid-layout\"\n"),
                (CODE_MAP, map),
            ]))
            .len()
        };
        assert_eq!(found("### `crates/pure/layout-two`"), 1);
        assert_eq!(found("### `crates/pure/layout`"), 0);
    }

    #[test]
    fn a_target_that_is_not_in_the_readme_is_found_with_its_line() {
        let makefile =
            "# make: ## a comment\nsim: build ## Seeds\n\tdo: ## it\nbuild:\nhelp: ## Help\n";
        let found = |readme: &str| {
            every_target_is_in_the_readme(&Tree::of(&[(MAKEFILE, makefile), (README, readme)]))
        };
        let lines: Vec<Option<usize>> = found("`make simple`").iter().map(|f| f.line).collect();
        assert_eq!(lines, [Some(2)]);
        assert_eq!(found("`make sim SEEDS=N`"), []);
    }
}
