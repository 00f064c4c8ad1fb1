//! Rules that tie docs/dependencies.md and the versions pinned in the root to the manifests.
//!
//! Owns the reading of that page: its rows are those of every table whose first column is headed
//! `crate`. Other tables of the page are prose.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tree::{DEPENDENCY_LIST, Manifest, Tree};

/// Columns of the table: the crate, why it is used, what else was looked at.
const COLUMNS: usize = 3;

/// A crate's row in the list.
struct Row {
    name: String,
    /// 1-based line of the page.
    line: usize,
    /// The cells with anything in them.
    filled: usize,
}

/// Every crate that a manifest names and that is not ours has a row. A crate that lacks it is found
/// once, at the first manifest that names it.
pub fn every_crate_has_a_row(tree: &Tree) -> Vec<Finding> {
    let mut known: BTreeSet<String> = rows(tree).into_iter().map(|row| row.name).collect();
    let mut findings = Vec::new();
    for manifest in &tree.manifests {
        for package in third_party(tree, manifest) {
            if !known.contains(&package) {
                findings.push(Finding::in_file(
                    &manifest.path,
                    format!("{package} has no row in {DEPENDENCY_LIST}"),
                    "add one: crate | why | what else was looked at",
                ));
                known.insert(package);
            }
        }
    }
    findings
}

/// Every row names a crate that some manifest uses, once, with all its columns filled.
pub fn every_row_has_a_crate(tree: &Tree) -> Vec<Finding> {
    let used: BTreeSet<String> =
        tree.manifests.iter().flat_map(|manifest| third_party(tree, manifest)).collect();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    let mut find = |row: &Row, what: &str, remedy| {
        findings.push(Finding::at(
            DEPENDENCY_LIST,
            row.line,
            format!("{} {what}", row.name),
            remedy,
        ));
    };
    for row in rows(tree) {
        if !used.contains(&row.name) {
            find(&row, "is used by no crate", "take the row out");
        }
        if row.filled < COLUMNS {
            find(&row, "has an empty cell", "say why it is used and what else was looked at");
        }
        if !seen.insert(row.name.clone()) {
            find(&row, "has a second row", "make the two rows one");
        }
    }
    findings
}

/// Every version that the root manifest pins is used by some crate.
pub fn every_pin_is_used(tree: &Tree) -> Vec<Finding> {
    let used: BTreeSet<String> = tree
        .manifests
        .iter()
        .flat_map(Manifest::dependencies)
        .map(|dependency| dependency.package)
        .collect();
    let mut findings = Vec::new();
    for manifest in &tree.manifests {
        for pinned in manifest.workspace_dependencies() {
            if !used.contains(&pinned.package) {
                findings.push(Finding::in_file(
                    &manifest.path,
                    format!("{} is pinned and no crate uses it", pinned.package),
                    "take the line out, and the row in docs/dependencies.md if there is one",
                ));
            }
        }
    }
    findings
}

/// The names of the crates that a manifest uses and that are not ours.
fn third_party(tree: &Tree, manifest: &Manifest) -> BTreeSet<String> {
    let mut dependencies = manifest.dependencies();
    dependencies.extend(manifest.workspace_dependencies());
    dependencies
        .into_iter()
        .map(|dependency| dependency.package)
        .filter(|package| tree.crate_named(package).is_none())
        .collect()
}

fn rows(tree: &Tree) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for (number, line) in tree.document(DEPENDENCY_LIST).lines().enumerate() {
        let Some(inner) = line.trim().strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let cells: Vec<&str> = inner.trim_end_matches('|').split('|').map(str::trim).collect();
        let first = cells.first().map_or("", |cell| cell.trim_matches('`'));
        if first == "crate" {
            in_table = true;
        } else if in_table && !first.starts_with("--") {
            rows.push(Row {
                name: first.to_owned(),
                line: number + 1,
                filled: cells.iter().filter(|cell| !cell.is_empty()).count(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| crate | why | looked at |\n|---|---|---|\n";

    fn tree(manifest: &str, rows: &str) -> Tree {
        Tree::of(&[
            ("crates/pure/x/Cargo.toml", &format!("[package]\nname = \"x\"\n{manifest}")),
            ("crates/pure/y/Cargo.toml", "[package]\nname = \"y\"\n"),
            (DEPENDENCY_LIST, &format!("{HEAD}{rows}")),
        ])
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let manifest = "[dependencies]\nslab = \"0.4\"\ny.workspace = true\n";
        let found = every_crate_has_a_row(&tree(manifest, ""));
        let message = found.first().unwrap().to_string();
        assert_eq!(found.len(), 1, "crates of ours need none");
        assert!(message.starts_with("crates/pure/x/Cargo.toml: slab has no row"), "{message}");
        assert_eq!(every_crate_has_a_row(&tree(manifest, "| `slab` | tasks | none |\n")), []);
    }

    #[test]
    fn a_crate_of_the_root_manifest_needs_a_row_too() {
        let root = "[workspace.dependencies]\nslab = \"0.4\"\n";
        assert_eq!(every_crate_has_a_row(&Tree::of(&[("Cargo.toml", root)])).len(), 1);
    }

    #[test]
    fn a_pin_that_no_crate_uses_is_found() {
        let root = "[workspace.dependencies]\nslab = \"0.4\"\nx = { path = \"x\" }\n";
        let user = "[package]\nname = \"x\"\n[dev-dependencies]\nslab.workspace = true\n";
        let found =
            every_pin_is_used(&Tree::of(&[("Cargo.toml", root), ("xtask/Cargo.toml", user)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found.first().unwrap().what.starts_with("x is pinned"));
    }

    #[test]
    fn a_row_that_no_crate_uses_is_found_with_its_line() {
        let found = every_row_has_a_crate(&tree("", "| slab | tasks | none |\n"));
        let message = found.first().unwrap().to_string();
        assert_eq!(message, "docs/dependencies.md:3: slab is used by no crate; take the row out");
    }

    #[test]
    fn empty_cells_and_second_rows_are_found() {
        let manifest = "[dependencies]\nslab = \"0.4\"\n";
        let row = "| slab | tasks | none |\n";
        let count = |rows: &str| every_row_has_a_crate(&tree(manifest, rows)).len();
        assert_eq!(count(row), 0);
        assert_eq!(count("| slab | | none |\n"), 1);
        assert_eq!(count(&format!("{row}{row}")), 1);
    }

    #[test]
    fn tables_about_something_else_are_prose() {
        let other = "| slab | tasks | none |\n\n| package | why |\n|---|---|\n| fio | load |\n";
        let manifest = "[dependencies]\nslab = \"0.4\"\n";
        assert_eq!(every_row_has_a_crate(&tree(manifest, other)), []);
    }
}
