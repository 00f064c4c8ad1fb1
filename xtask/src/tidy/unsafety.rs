//! Rules about `unsafe`: where it may stand, and that it says why it holds.
//!
//! Owns the list of modules that may use it. A module stands for its file and for the folder of the
//! same name.

use super::finding::Finding;
use super::tokens::Kind;
use super::tree::{Source, Tree};
use proc_macro2::Delimiter;

/// The modules that may contain `unsafe`, each as the path of its file without `.rs`.
const PLACES: &[&str] = &[
    "crates/pure/parity/src/arch",
    "crates/runtime/shard/src/ring",
    "crates/runtime/shard/src/buffer",
    "crates/runtime/device/src/file",
    "crates/export/fuse/src/clone",
    "crates/export/fuse/src/uring/entry",
    "crates/export/ublk/src/raw",
    "crates/export/vhost/src/fault",
    "crates/check/bench-compare/src/isal",
    "crates/check/posix/src/raw",
];

/// `unsafe` stands in the listed modules only.
pub fn only_in_listed_places(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !in_listed_place(&source.path)) {
        for line in unsafe_lines(source) {
            findings.push(Finding::at(
                &source.path,
                line,
                "`unsafe` outside the modules that may hold it".to_owned(),
                "use a safe interface of shard, device or parity, or put it behind one there; the \
                 list is in xtask/src/tidy/unsafety.rs",
            ));
        }
    }
    findings
}

/// Each crate root starts with `#![forbid(unsafe_code)]`; `deny` will do in a crate that has a
/// listed module.
pub fn roots_forbid_it(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, manifest) in tree.crates() {
        let folder = manifest.folder();
        let may_deny = PLACES.iter().any(|place| place.starts_with(&format!("{folder}src/")));
        for source in tree.sources.iter().filter(|source| is_root(folder, &source.path)) {
            let held = has_lint(source, "forbid") || (may_deny && has_lint(source, "deny"));
            if !held {
                let wanted = if may_deny { "deny" } else { "forbid" };
                findings.push(Finding::in_file(
                    &source.path,
                    format!("the crate root has no `#![{wanted}(unsafe_code)]`"),
                    "add it below the module comment",
                ));
            }
        }
    }
    findings
}

/// Above each unsafe block and unsafe impl stands a comment with `SAFETY:`.
pub fn blocks_say_why(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for line in unsafe_block_lines(source) {
            if !says_why(&lines, line) {
                findings.push(Finding::at(
                    &source.path,
                    line,
                    "an unsafe block or impl without `// SAFETY:`".to_owned(),
                    "say above it what makes it sound, so that a reviewer can check it",
                ));
            }
        }
    }
    findings
}

fn in_listed_place(path: &str) -> bool {
    PLACES.iter().any(|place| {
        path.strip_prefix(place).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    })
}

fn unsafe_lines(source: &Source) -> Vec<usize> {
    let tokens = source.tokens.iter().flat_map(|tokens| &tokens.all);
    tokens.filter(|token| token.is_word("unsafe")).map(|token| token.line).collect()
}

fn unsafe_block_lines(source: &Source) -> Vec<usize> {
    let Ok(tokens) = &source.tokens else { return Vec::new() };
    tokens
        .all
        .windows(2)
        .filter_map(|pair| match pair {
            [first, second]
                if first.is_word("unsafe")
                    && (second.kind == Kind::Open(Delimiter::Brace) || second.is_word("impl")) =>
            {
                Some(first.line)
            }
            _ => None,
        })
        .collect()
}

fn is_root(folder: &str, path: &str) -> bool {
    let Some(inner) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix("src/")) else {
        return false;
    };
    match inner.strip_prefix("bin/") {
        Some(binary) => !binary.contains('/') || binary.ends_with("/main.rs"),
        None => inner == "lib.rs" || inner == "main.rs",
    }
}

/// Whether the file has the inner attribute `#![LEVEL(…, unsafe_code, …)]`.
fn has_lint(source: &Source, level: &str) -> bool {
    let Ok(tokens) = &source.tokens else { return false };
    let attribute = [
        Kind::Sign('#'),
        Kind::Sign('!'),
        Kind::Open(Delimiter::Bracket),
        Kind::Word(level.to_owned()),
    ];
    tokens.all.windows(attribute.len()).enumerate().any(|(start, window)| {
        window.iter().map(|token| &token.kind).eq(&attribute)
            && tokens
                .all
                .iter()
                .skip(start + attribute.len())
                .take_while(|token| token.kind != Kind::Close(Delimiter::Bracket))
                .any(|token| token.is_word("unsafe_code"))
    })
}

/// Whether `SAFETY:` stands on the line itself or in the comment above the statement that the line
/// is part of. Lines count from 1.
fn says_why(lines: &[&str], line: usize) -> bool {
    let above = lines.iter().take(line).rev();
    let mut in_comment = false;
    for (distance, text) in above.enumerate() {
        let text = text.trim();
        let is_comment = text.starts_with("//");
        if is_comment || distance == 0 {
            if text.contains("SAFETY:") {
                return true;
            }
            in_comment = is_comment;
            continue;
        }
        let ends_other_code = text.is_empty() || text.ends_with([';', '{', '}', ',']);
        if in_comment || (ends_other_code && !text.starts_with("#[")) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"x\"\n";

    fn places(path: &str) -> usize {
        let text = "// unsafe\nfn f() { let _ = \"unsafe\"; unsafe { g() } }\n";
        only_in_listed_places(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn unsafe_outside_its_places_is_found() {
        assert_eq!(places("crates/engine/array/src/write.rs"), 1);
        assert_eq!(places("crates/pure/parity/src/lib.rs"), 1);
        assert_eq!(places("crates/pure/parity/src/architecture.rs"), 1);
        assert_eq!(places("crates/runtime/shard/tests/ring.rs"), 1);
    }

    #[test]
    fn a_place_is_a_file_or_a_folder() {
        assert_eq!(places("crates/pure/parity/src/arch.rs"), 0);
        assert_eq!(places("crates/pure/parity/src/arch/avx2.rs"), 0);
        assert_eq!(places("crates/runtime/shard/src/buffer.rs"), 0);
        assert_eq!(places("crates/check/bench-compare/src/isal.rs"), 0);
    }

    #[test]
    fn unsafe_in_a_macro_call_is_found_with_its_line() {
        let tree =
            Tree::of(&[("crates/app/braid/src/main.rs", "fn f() {\n  m!(unsafe { g() });\n}")]);
        let found = only_in_listed_places(&tree);
        assert_eq!(found.first().unwrap().line, Some(2));
    }

    fn roots(folder: &str, file: &str, text: &str) -> usize {
        let manifest = format!("{folder}/Cargo.toml");
        let file = format!("{folder}/{file}");
        roots_forbid_it(&Tree::of(&[(&manifest, MANIFEST), (&file, text)])).len()
    }

    #[test]
    fn roots_without_the_attribute_are_found() {
        let array = "crates/engine/array";
        assert_eq!(roots(array, "src/lib.rs", "//! X.\n"), 1);
        assert_eq!(roots(array, "src/lib.rs", "// #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(roots(array, "src/bin/tool.rs", ""), 1);
        assert_eq!(roots(array, "src/other.rs", ""), 0, "not a root");
        assert_eq!(roots(array, "src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(roots(array, "src/lib.rs", "#![forbid(missing_docs, unsafe_code)]\n"), 0);
    }

    #[test]
    fn deny_will_do_only_where_a_module_is_listed() {
        let deny = "#![deny(unsafe_code)]\n";
        assert_eq!(roots("crates/engine/array", "src/lib.rs", deny), 1);
        assert_eq!(roots("crates/pure/parity", "src/lib.rs", deny), 0);
    }

    fn unexplained(text: &str) -> usize {
        blocks_say_why(&Tree::of(&[("crates/pure/parity/src/arch.rs", text)])).len()
    }

    #[test]
    fn a_block_without_its_reason_is_found() {
        assert_eq!(unexplained("fn f() {\n    unsafe { g() }\n}"), 1);
        assert_eq!(unexplained("// SAFETY: for another.\nlet a = 1;\nlet b = unsafe { g() };"), 1);
        assert_eq!(unexplained("// why not\nunsafe impl Send for X {}"), 1);
    }

    #[test]
    fn the_reason_may_stand_above_the_statement_or_beside_the_block() {
        for text in [
            "// SAFETY: it holds.\nunsafe { g() }",
            "// SAFETY: it holds,\n// as any reader sees.\n#[inline]\nunsafe impl Send for X {}",
            "// SAFETY: it holds.\nlet a =\n    unsafe { g() };",
            "unsafe { g() } // SAFETY: it holds.",
        ] {
            assert_eq!(unexplained(text), 0, "{text}");
        }
    }

    #[test]
    fn an_unsafe_function_is_no_block() {
        assert_eq!(unexplained("unsafe fn f() {}\ntype G = unsafe fn();"), 0);
    }
}
