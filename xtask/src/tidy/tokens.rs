//! A source file as the rules see it: a flat run of tokens with their lines, without comments and
//! with the tests marked.
//!
//! Owns the reading of Rust; knows no rule. Working on tokens rather than on text means that a word
//! in a string or a comment is never mistaken for code, and that code inside macro calls is seen.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What one token is, as far as a rule can ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Word(String),
    Sign(char),
    Open(Delimiter),
    Close(Delimiter),
    Literal,
}

/// One token.
#[derive(Debug, Clone)]
pub struct Token {
    pub kind: Kind,
    /// 1-based.
    pub line: usize,
    /// Whether the token is part of an item that is compiled for tests only.
    pub in_test: bool,
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// A path as written (`std::fs::read`), or one leaf of a `use` tree.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// A glob is the segment `*`.
    pub segments: Vec<String>,
    pub line: usize,
    pub in_test: bool,
}

/// The tokens of one file.
pub struct Tokens {
    pub all: Vec<Token>,
    /// Byte ranges of string, character and number literals; a comment is none.
    literals: Vec<Range<usize>>,
}

impl Tokens {
    /// Reads a file; the error is the lexer's own.
    pub fn of(text: &str) -> Result<Tokens, String> {
        let stream = TokenStream::from_str(text).map_err(|error| error.to_string())?;
        let mut tokens = Tokens { all: Vec::new(), literals: Vec::new() };
        tokens.flatten(text, stream, false);
        Ok(tokens)
    }

    fn flatten(&mut self, text: &str, stream: TokenStream, in_test: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut test_item = false;
        for (position, tree) in trees.iter().enumerate() {
            test_item |= opens_test_item(trees.get(position..).unwrap_or_default());
            let in_test = in_test || test_item;
            let mut push = |kind, line| self.all.push(Token { kind, line, in_test });
            match tree {
                TokenTree::Ident(word) => {
                    push(Kind::Word(word.to_string()), word.span().start().line);
                }
                TokenTree::Punct(sign) => {
                    push(Kind::Sign(sign.as_char()), sign.span().start().line);
                    test_item &= sign.as_char() != ';';
                }
                TokenTree::Literal(literal) => {
                    push(Kind::Literal, literal.span().start().line);
                    // The text of a doc comment also arrives as a literal: it starts with a slash.
                    let range = literal.span().byte_range();
                    if text.get(range.clone()).is_some_and(|own| !own.starts_with('/')) {
                        self.literals.push(range);
                    }
                }
                TokenTree::Group(group) => {
                    let delimiter = group.delimiter();
                    push(Kind::Open(delimiter), group.span_open().start().line);
                    self.flatten(text, group.stream(), in_test);
                    let line = group.span_close().start().line;
                    self.all.push(Token { kind: Kind::Close(delimiter), line, in_test });
                    test_item &= delimiter != Delimiter::Brace;
                }
            }
        }
    }

    /// The file's text with its literals blanked out, line for line: code and comments.
    pub fn without_literals(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for literal in &self.literals {
            for byte in bytes.get_mut(literal.clone()).into_iter().flatten() {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Every path in the file, `use` trees unfolded. A single name counts as a path of one segment.
    pub fn paths(&self) -> Vec<NamedPath> {
        let mut found = Vec::new();
        let mut position = 0;
        while position < self.all.len() {
            position = self.path_at(position, &[], &mut found);
        }
        found
    }

    /// Reads the path that starts at `position`, if one does, and returns the position behind it.
    fn path_at(&self, position: usize, prefix: &[String], found: &mut Vec<NamedPath>) -> usize {
        let Some(first) = self.all.get(position) else { return position + 1 };
        let name = match &first.kind {
            Kind::Word(name) => name.clone(),
            Kind::Sign('*') if !prefix.is_empty() => "*".to_owned(),
            Kind::Open(Delimiter::Brace) if !prefix.is_empty() => {
                return self.use_group(position + 1, prefix, found);
            }
            _ => return position + 1,
        };
        let mut segments = prefix.to_vec();
        if name != "self" || prefix.is_empty() {
            segments.push(name);
        }
        let continues = |at: usize| self.all.get(at).is_some_and(|token| token.is_sign(':'));
        let next_starts_segment = self.all.get(position + 3).is_some_and(|token| {
            matches!(token.kind, Kind::Word(_) | Kind::Open(Delimiter::Brace)) || token.is_sign('*')
        });
        if continues(position + 1) && continues(position + 2) && next_starts_segment {
            return self.path_at(position + 3, &segments, found);
        }
        found.push(NamedPath { segments, line: first.line, in_test: first.in_test });
        position + 1
    }

    /// Reads a braced part of a `use` tree, from behind its opening brace to behind its closing one.
    fn use_group(
        &self,
        mut position: usize,
        prefix: &[String],
        found: &mut Vec<NamedPath>,
    ) -> usize {
        while let Some(token) = self.all.get(position) {
            if token.kind == Kind::Close(Delimiter::Brace) {
                return position + 1;
            }
            // `name as other`: the path is already read, and `other` is no part of it.
            position = if token.is_word("as") {
                position + 2
            } else {
                self.path_at(position, prefix, found)
            };
        }
        position
    }
}

/// Whether an attribute that keeps an item for tests starts here: `#[test]`, `#[cfg(test)]` or
/// `#[cfg(all(test, …))]`.
fn opens_test_item(trees: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = trees else { return false };
    if hash.as_char() != '#' || attribute.delimiter() != Delimiter::Bracket {
        return false;
    }
    let written: String =
        attribute.stream().to_string().chars().filter(|c| !c.is_whitespace()).collect();
    written == "test" || written == "cfg(test)" || written.starts_with("cfg(all(test,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let tokens = Tokens::of(text).unwrap();
        let named = tokens.paths().into_iter().filter(|path| path.segments.len() > 1);
        named.map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_unfolded() {
        assert_eq!(
            paths("use std::{fs, io::{self as i, Read}, time::*}; use a::b as c;"),
            ["std::fs", "std::io", "std::io::Read", "std::time::*", "a::b"]
        );
    }

    #[test]
    fn paths_in_macro_calls_are_seen_and_those_in_strings_and_comments_are_not() {
        assert_eq!(
            paths("// std::fs\nfn f() { assert!(::std::fs::exists(\"std::net\")); } /* a::b */"),
            ["std::fs::exists"]
        );
    }

    #[test]
    fn a_turbofish_ends_a_path() {
        assert_eq!(paths("fn f() { a::b::<c::d>(); }"), ["a::b", "c::d"]);
    }

    #[test]
    fn items_for_tests_are_marked_and_what_follows_is_not() {
        let tokens = Tokens::of(
            "fn one() {}\n#[cfg(test)]\nuse two;\nfn three() {}\n#[cfg(test)]\nmod four { fn five() {} }\n\
             fn six() {}\n#[cfg(not(test))]\nfn seven() {}\n#[test]\nfn eight() {}\nfn nine() {}",
        )
        .unwrap();
        let marked = |name: &str| tokens.all.iter().find(|t| t.is_word(name)).unwrap().in_test;
        for (name, expected) in [
            ("one", false),
            ("two", true),
            ("three", false),
            ("four", true),
            ("five", true),
            ("six", false),
            ("seven", false),
            ("eight", true),
            ("nine", false),
        ] {
            assert_eq!(marked(name), expected, "{name}");
        }
    }

    #[test]
    fn literals_are_blanked_and_comments_are_kept() {
        let text = "/// one\nconst A: &str = \"two\nthree\"; // four\nconst B: char = 'v';";
        let bare = Tokens::of(text).unwrap().without_literals(text);
        assert_eq!(bare.lines().count(), text.lines().count());
        assert!(bare.contains("one") && bare.contains("four"));
        assert!(!bare.contains("two") && !bare.contains("three") && !bare.contains("'v'"));
    }

    #[test]
    fn what_is_no_rust_is_an_error() {
        assert!(Tokens::of("fn f( {").is_err());
    }
}
