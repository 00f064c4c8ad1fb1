//! Rules about which module of a crate may name which.
//!
//! Owns the list of modules that still lie on a circle, and the reading of the order of modules in ARCHITECTURE.md. Both
//! lists of what is not mended yet can only get shorter: an entry that is true no longer is itself a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::known_circles::{CIRCLES, UNORDERED};
use super::modules::{self, Graph};
use super::tree::{CODE_MAP, Tree};

/// The heading in ARCHITECTURE.md below which the table of the modules' order stands.
const ORDER_HEADING: &str = "## Order of modules";

/// No two modules of a crate reach each other, but for those that are listed by name.
pub fn none_but_listed(tree: &Tree) -> Vec<Finding> {
    held_to(tree, CIRCLES)
}

fn held_to(tree: &Tree, listed: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for graph in modules::graphs(tree) {
        let rows = listed.iter().filter(|(folder, _)| *folder == graph.folder);
        let mut left: BTreeSet<&str> = rows.flat_map(|(_, names)| names.iter().copied()).collect();
        for circle in graph.circles() {
            let new = circle.iter().filter(|name| !left.contains(shown(name))).count();
            if new > 0 {
                let names: Vec<&str> = circle.iter().map(|name| shown(name)).collect();
                findings.push(Finding::in_file(
                    &graph.folder,
                    format!("modules name each other in a circle: {}", names.join(", ")),
                    "move what they share below them, or let the caller pass it in",
                ));
            }
            for name in &circle {
                left.remove(shown(name));
            }
        }
        for name in left {
            findings.push(Finding::in_file(
                &graph.folder,
                format!("{name} lies on no circle any more"),
                "strike it from the list in tidy/known_circles.rs",
            ));
        }
    }
    findings
}

/// The name of a module for people: the root has none of its own.
fn shown(name: &str) -> &str {
    if name.is_empty() { "lib" } else { name }
}

/// A crate's top-level modules name only those that stand below them in the table of ARCHITECTURE.md.
pub fn ordered(tree: &Tree) -> Vec<Finding> {
    ordered_but(tree, UNORDERED)
}

fn ordered_but(tree: &Tree, unordered: &[&str]) -> Vec<Finding> {
    let orders = orders(tree.document(CODE_MAP));
    let mut findings = Vec::new();
    let graphs = modules::graphs(tree);
    for graph in &graphs {
        let tops = top_level(graph);
        let listed = unordered.contains(&graph.folder.as_str());
        match orders.get(graph.folder.as_str()) {
            Some(order) if !listed => findings.extend(against(graph, &tops, order)),
            Some(_) => findings.push(Finding::in_file(
                &graph.folder,
                "its modules have an order in ARCHITECTURE.md now".to_owned(),
                "strike it from the list of unordered crates in tidy/known_circles.rs",
            )),
            None if tops.len() > 1 && !listed => findings.push(Finding::in_file(
                CODE_MAP,
                format!("the table of orders has no row for {}", graph.folder),
                "write its modules down, from the top",
            )),
            None => {}
        }
    }
    for folder in orders.keys().filter(|folder| graphs.iter().all(|g| g.folder != **folder)) {
        findings.push(Finding::in_file(
            CODE_MAP,
            format!("the table of orders has a row for {folder}, which is no crate"),
            "strike the row",
        ));
    }
    findings
}

/// Each top-level module with those that it names; the root, which names all, is left out.
fn top_level(graph: &Graph) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut tops: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, targets) in graph.arrows.iter().filter(|(from, _)| !from.is_empty()) {
        let own = first(from);
        let others = targets.iter().map(|target| first(target));
        let others = others.filter(|other| *other != own && !other.is_empty());
        tops.entry(own).or_default().extend(others);
    }
    tops
}

fn first(name: &str) -> &str {
    name.split("::").next().unwrap_or_default()
}

fn against(graph: &Graph, tops: &BTreeMap<&str, BTreeSet<&str>>, order: &[&str]) -> Vec<Finding> {
    let place = |name: &str| order.iter().position(|listed| *listed == name);
    let mut findings = Vec::new();
    let mut find = |what: String, remedy: &str| {
        findings.push(Finding::in_file(&graph.folder, what, remedy));
    };
    for listed in order.iter().filter(|listed| !tops.contains_key(**listed)) {
        find(format!("{listed} is in its order and no module"), "strike it from ARCHITECTURE.md");
    }
    for (from, targets) in tops {
        let Some(own) = place(from) else {
            find(
                format!("module {from} has no place in the crate's order"),
                "give it one in ARCHITECTURE.md",
            );
            continue;
        };
        for target in targets.iter().filter(|target| place(target).is_some_and(|at| at < own)) {
            find(
                format!("{from} names {target}, which stands above it"),
                "move what it needs down, or let the caller pass it in",
            );
        }
    }
    findings
}

/// The rows of the table of orders: a crate's folder and its modules from the top.
fn orders(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let table = text.split_once(ORDER_HEADING).map_or("", |(_, below)| below);
    let table = table.split_once("\n## ").map_or(table, |(table, _)| table);
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|');
        let folder = cells.next()?.trim().strip_prefix('`')?.strip_suffix('`')?;
        let modules = cells.next()?.split([',', '·']).map(|name| name.trim().trim_matches('`'));
        Some((folder, modules.filter(|name| !name.is_empty()).collect()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = ("crates/pure/x/Cargo.toml", "[package]\nname = \"braid-x\"\n");

    fn tree(files: &[(&str, &str)]) -> Tree {
        let paths: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| {
                let inside = path.ends_with(".rs");
                (
                    if inside { format!("crates/pure/x/src/{path}") } else { (*path).to_owned() },
                    *text,
                )
            })
            .collect();
        let all: Vec<(&str, &str)> = std::iter::once(MANIFEST)
            .chain(paths.iter().map(|(path, text)| (path.as_str(), *text)))
            .collect();
        Tree::of(&all)
    }

    fn said(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn two_modules_that_name_each_other_are_found() {
        let found = |files: &[(&str, &str)]| said(held_to(&tree(files), &[]));
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("fn f() { super::b::g() }", "fn g() { crate::a::f() }"),
            ("use super::{b::B, c};", "use super::a::{self, A};"),
        ] {
            let files = [("a.rs", a), ("b.rs", b), ("c.rs", "")];
            assert_eq!(found(&files), ["modules name each other in a circle: a, b"], "{a} {b}");
        }
        assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "use std::fmt;")]), [""; 0]);
        let tests = "#[cfg(test)]\nmod tests { use crate::a::A; }";
        assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", tests)]), [""; 0]);
    }

    #[test]
    fn a_circle_over_several_folders_is_one() {
        let files = [
            ("a/mod.rs", "mod deep;\nuse deep::D;"),
            ("a/deep.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
        ];
        let found = said(held_to(&tree(&files), &[]));
        assert_eq!(found, ["modules name each other in a circle: a, a::deep, b"]);
    }

    #[test]
    fn a_name_that_is_passed_on_leads_to_its_owner() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::A;\npub struct B(A);"),
        ];
        assert_eq!(said(held_to(&tree(&files), &[])), [""; 0]);
        let files = [files[0], ("a.rs", "use crate::B;\npub struct A(B);"), files[2]];
        let found = said(held_to(&tree(&files), &[]));
        assert_eq!(found, ["modules name each other in a circle: a, b"]);
    }

    #[test]
    fn what_is_listed_is_no_finding_until_it_is_mended() {
        let listed: &[(&str, &[&str])] = &[("crates/pure/x", &["a", "b"])];
        let circle = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
        assert_eq!(said(held_to(&tree(&circle), listed)), [""; 0]);
        let mended = [("a.rs", "use crate::b::B;"), ("b.rs", "")];
        let found = said(held_to(&tree(&mended), listed));
        assert_eq!(found, ["a lies on no circle any more", "b lies on no circle any more"]);
        let grown = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ];
        let found = said(held_to(&tree(&grown), listed));
        assert_eq!(found, ["modules name each other in a circle: a, b, c"]);
    }

    fn in_order(row: &str, unordered: &[&str]) -> Vec<String> {
        let text =
            format!("# Map\n{ORDER_HEADING}\n\n| crate | modules |\n|---|---|\n{row}\n\n## Next");
        let files = [
            (CODE_MAP, text.as_str()),
            ("lib.rs", "mod a;\nmod b;"),
            ("a/mod.rs", "use crate::b::B;"),
            ("a/deep.rs", "use crate::b::B;"),
            ("b.rs", ""),
        ];
        said(ordered_but(&tree(&files), unordered))
    }

    #[test]
    fn an_import_against_the_order_is_found() {
        assert_eq!(in_order("| `crates/pure/x` | a, b |", &[]), [""; 0]);
        let found = in_order("| `crates/pure/x` | b, a |", &[]);
        assert_eq!(found, ["a names b, which stands above it"]);
    }

    #[test]
    fn an_order_names_every_module_and_no_other() {
        let found = in_order("| `crates/pure/x` | b, c |", &[]);
        assert_eq!(
            found,
            ["c is in its order and no module", "module a has no place in the crate's order"]
        );
    }

    #[test]
    fn a_crate_without_an_order_is_found_unless_it_is_listed() {
        assert_eq!(in_order("", &[]), ["the table of orders has no row for crates/pure/x"]);
        assert_eq!(in_order("", &["crates/pure/x"]), [""; 0]);
        let found = in_order("| `crates/pure/x` | a, b |", &["crates/pure/x"]);
        assert_eq!(found, ["its modules have an order in ARCHITECTURE.md now"]);
        let found = in_order("| `crates/pure/x` | a, b |\n| `crates/pure/y` | a |", &[]);
        assert_eq!(found, ["the table of orders has a row for crates/pure/y, which is no crate"]);
    }
}
