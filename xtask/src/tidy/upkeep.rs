//! Rules that keep files short, introduced and finished.
//!
//! Owns the limit on a file's length and the list of marks. Knows nothing of what the code does.

use super::finding::Finding;
use super::tokens::Kind;
use super::tree::Tree;

/// The longest a source file may be, in lines; about 500 is natural.
const LINES_MAX: usize = 700;

/// Words in code or comments that say the work is not done.
const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Macros that stand for code that is not there.
const STAND_INS: &[&str] = &["todo", "unimplemented"];

/// No source file is longer than [`LINES_MAX`]; files of tests may be.
pub fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            findings.push(Finding::in_file(
                &source.path,
                format!("{lines} lines, {LINES_MAX} is the limit"),
                "split it by subject, or move its tests to a sibling `tests.rs` or `NAME_tests.rs`",
            ));
        }
    }
    findings
}

/// Each source file opens with a module comment; files of tests may do without.
pub fn files_open_with_their_subject(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let first = source.text.lines().find(|line| !line.trim().is_empty());
        if !first.is_some_and(|line| line.starts_with("//!")) {
            findings.push(Finding::at(
                &source.path,
                1,
                "no `//!` comment opens the file".to_owned(),
                "say what it owns, what it does not know, and its invariant",
            ));
        }
    }
    findings
}

/// No mark and no stand-in, in tests either.
pub fn nothing_is_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let remedy = "finish it, or write down what is missing where users look for it";
    for source in &tree.sources {
        let Ok(tokens) = &source.tokens else { continue };
        for (number, line) in tokens.without_literals(&source.text).lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(mark) = words.find(|word| MARKS.contains(word)) {
                let what = format!("the mark {mark}");
                findings.push(Finding::at(&source.path, number + 1, what, remedy));
            }
        }
        for pair in tokens.all.windows(2) {
            let [name, bang] = pair else { continue };
            let stand_in = STAND_INS.iter().find(|macro_name| name.is_word(macro_name));
            if let (Some(stand_in), Kind::Sign('!')) = (stand_in, &bang.kind) {
                let what = format!("`{stand_in}!` stands for code");
                findings.push(Finding::at(&source.path, name.line, what, remedy));
            }
        }
    }
    findings
}

/// Every file could be read: the other rules see nothing in one that could not.
pub fn everything_parses(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.manifests.iter().filter_map(|manifest| {
        let error = manifest.document.as_ref().err()?;
        Some((&manifest.path, error))
    });
    let sources = tree.sources.iter().filter_map(|source| {
        let error = source.tokens.as_ref().err()?;
        Some((&source.path, error))
    });
    manifests
        .chain(sources)
        .map(|(path, error)| {
            Finding::in_file(path, format!("cannot be parsed ({error})"), "mend its syntax")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    #[test]
    fn a_file_over_the_limit_is_found_and_one_at_it_is_not() {
        let count = |path, lines| files_are_short(&source(path, &"\n".repeat(lines))).len();
        assert_eq!(count("crates/pure/x/src/lib.rs", LINES_MAX), 0);
        assert_eq!(count("crates/pure/x/src/lib.rs", LINES_MAX + 1), 1);
        assert_eq!(count("crates/pure/x/src/tests.rs", LINES_MAX + 1), 0);
    }

    #[test]
    fn a_file_without_its_subject_is_found() {
        let count = |text| files_open_with_their_subject(&source("xtask/src/a.rs", text)).len();
        assert_eq!(count("//! A.\n"), 0);
        assert_eq!(count("\n//! A.\n"), 0);
        assert_eq!(count("use std::fmt;\n//! A.\n"), 1);
        assert_eq!(count(""), 1);
    }

    #[test]
    fn marks_and_stand_ins_are_found_with_their_lines() {
        for text in [
            "//! A.\n// TODO: more\n",
            "//! A.\n/// FIXME\nfn f() {}\n",
            "//! A.\nfn f() { /* XXX */ }\n",
            "//! A.\nfn f() { todo!() }\n",
            "//! A.\nfn f() { unimplemented!(\"later\") }\n",
        ] {
            let found = nothing_is_unfinished(&source("crates/pure/x/src/lib.rs", text));
            assert_eq!(found.first().and_then(|finding| finding.line), Some(2), "{text}");
            assert_eq!(found.len(), 1, "{text}");
        }
    }

    #[test]
    fn marks_in_strings_and_longer_words_are_not() {
        let text = "//! TODOS.\nconst A: &str = \"TODO\";\nfn todo() {}\n";
        assert_eq!(nothing_is_unfinished(&source("crates/pure/x/src/lib.rs", text)), []);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_found() {
        let tree = Tree::of(&[("Cargo.toml", "[workspace"), ("xtask/src/a.rs", "fn f( {")]);
        assert_eq!(everything_parses(&tree).len(), 2);
    }
}
