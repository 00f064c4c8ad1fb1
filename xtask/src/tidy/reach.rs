//! Rules about what a layer may name: what it must not know, it cannot reach.
//!
//! Owns the lists of forbidden paths and words. Code that is compiled for tests only is excepted.

use super::finding::Finding;
use super::tokens::NamedPath;
use super::tree::{Layer, Source, Tree};

/// Paths that some layers must not name.
struct Ban {
    layers: &'static [Layer],
    paths: &'static [&'static str],
    remedy: &'static str,
}

use Layer::{Check, Engine, Export, Pure, Runtime, Xtask};

const BANS: &[Ban] = &[
    Ban {
        layers: &[Pure, Engine],
        paths: &["std::time::Instant", "std::time::SystemTime"],
        remedy: "take the time from the shard, whose clock the simulator can turn",
    },
    Ban {
        layers: &[Pure, Engine],
        paths: &["std::thread", "std::net", "std::fs"],
        remedy: "do it in runtime, behind the Device trait or the shard, and pass it in",
    },
    Ban {
        layers: &[Pure, Runtime, Engine, Export, Check, Xtask],
        paths: &["tokio"],
        remedy: "use the shard executor here; tokio serves the control plane in app only",
    },
];

/// Types that make a thread wait for another.
const LOCKS: &[&str] = &["Mutex", "RwLock"];

/// No layer names what it must not know.
pub fn forbidden_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (layer, source) in product_sources(tree) {
        for path in named_paths(source) {
            for ban in BANS.iter().filter(|ban| ban.layers.contains(&layer)) {
                if let Some(banned) = ban.paths.iter().find(|banned| reaches(&path, banned)) {
                    findings.push(Finding::at(
                        &source.path,
                        path.line,
                        format!("{} must not know {banned}", layer.name()),
                        ban.remedy,
                    ));
                }
            }
        }
    }
    findings
}

/// No lock in the layers that a request passes through.
pub fn no_locks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (layer, source) in product_sources(tree) {
        if !matches!(layer, Runtime | Engine) {
            continue;
        }
        for path in named_paths(source) {
            let Some(lock) = path.segments.iter().find(|name| LOCKS.contains(&name.as_str()))
            else {
                continue;
            };
            findings.push(Finding::at(
                &source.path,
                path.line,
                format!("{lock} in {}", layer.name()),
                "give the state one owning shard and send it messages",
            ));
        }
    }
    findings
}

fn product_sources(tree: &Tree) -> impl Iterator<Item = (Layer, &Source)> {
    let sources = tree.sources.iter().filter(|source| !source.is_test());
    sources.filter_map(|source| Some((Layer::of(&source.path)?, source)))
}

fn named_paths(source: &Source) -> Vec<NamedPath> {
    let mut paths = source.tokens.as_ref().map(|tokens| tokens.paths()).unwrap_or_default();
    paths.retain(|path| !path.in_test);
    paths
}

/// Whether a path names `banned` or something inside it: from its first segment, by a glob over its
/// parent, or from its parent's name once that was imported (`time::Instant`).
fn reaches(path: &NamedPath, banned: &str) -> bool {
    let banned: Vec<&str> = banned.split("::").collect();
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    let by_glob = banned.split_last().is_some_and(|(_, parent)| {
        !parent.is_empty() && segments.strip_prefix(parent) == Some(&["*"])
    });
    let by_parent =
        banned.len() > 2 && banned.get(1..).is_some_and(|tail| segments.starts_with(tail));
    segments.starts_with(&banned) || by_glob || by_parent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Finding> {
        forbidden_paths(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn what_engine_and_pure_must_not_know_is_found() {
        for text in [
            "use std::time::Instant;",
            "use std::time::{Duration, SystemTime};",
            "use std::time::*;",
            "fn f() { let _ = time::Instant::now(); }",
            "fn f() { ::std::thread::yield_now(); }",
            "use std::{io, net::TcpStream};",
            "use std::fs::{self, File};",
            "use std::*;",
            "use tokio::sync;",
        ] {
            for layer in ["pure", "engine"] {
                let path = format!("crates/{layer}/x/src/lib.rs");
                assert!(!found(&path, text).is_empty(), "{layer}: {text}");
            }
        }
    }

    #[test]
    fn durations_and_names_that_only_look_alike_are_not() {
        for text in [
            "use std::time::Duration;",
            "use crate::thread::local;",
            "// std::fs\nconst A: &str = \"std::net\";",
            "#[cfg(test)]\nmod tests { use std::fs; }",
        ] {
            assert_eq!(found("crates/engine/x/src/lib.rs", text), [], "{text}");
        }
        assert_eq!(found("crates/engine/x/src/tests.rs", "use std::fs;"), []);
        assert_eq!(found("crates/runtime/x/src/lib.rs", "use std::fs;"), []);
    }

    #[test]
    fn the_finding_names_the_line_and_what_to_do() {
        let findings = found("crates/engine/x/src/lib.rs", "\nuse std::thread;\n");
        assert_eq!(
            findings.first().unwrap().to_string(),
            "crates/engine/x/src/lib.rs:2: engine must not know std::thread; do it in runtime, \
             behind the Device trait or the shard, and pass it in"
        );
    }

    #[test]
    fn tokio_is_found_everywhere_but_in_app() {
        let text = "fn f() { tokio::spawn(g()); }";
        for layer in ["pure", "runtime", "engine", "export", "check"] {
            assert_eq!(found(&format!("crates/{layer}/x/src/lib.rs"), text).len(), 1, "{layer}");
        }
        assert_eq!(found("crates/app/x/src/lib.rs", text), []);
    }

    #[test]
    fn locks_are_found_in_runtime_and_engine() {
        let locks = |path: &str, text: &str| no_locks(&Tree::of(&[(path, text)])).len();
        let text = "use std::sync::{Arc, Mutex};";
        assert_eq!(locks("crates/runtime/x/src/lib.rs", text), 1);
        assert_eq!(locks("crates/engine/x/src/lib.rs", "struct S(parking_lot::RwLock<u8>);"), 1);
        assert_eq!(locks("crates/app/x/src/lib.rs", text), 0);
        assert_eq!(locks("crates/engine/x/src/lib.rs", "#[cfg(test)]\nuse std::sync::Mutex;"), 0);
    }
}
