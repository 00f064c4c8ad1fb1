//! The description of one parser under test, and the helpers that the parsers' checks share.

use crate::mutate::Field;
use std::fmt;

/// One parser under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also of its corpus.
    pub name: &'static str,
    /// What it reads.
    pub what: &'static str,
    /// Where the fields of an input are.
    pub fields: &'static [Field],
    /// Makes checksums right again after a change.
    pub fix: fn(&mut [u8]),
    /// Runs the parser and checks what must hold; what does not is the error.
    pub run: fn(&[u8]) -> Result<Verdict, String>,
    /// Bytes that any input may make it allocate; more are justified by the input's length.
    pub memory: usize,
    /// Bytes that it may hold at any moment, whatever the input.
    pub peak: usize,
    /// An input takes about as long as so many of a parser's: of so many that are asked for, one is run.
    pub slowness: u64,
}

/// A parser, which needs little memory and time.
pub const PLAIN: Target = Target {
    name: "",
    what: "",
    fields: &[],
    fix: no_checksum,
    run: |_| Ok(Verdict::Refused),
    memory: 1 << 20,
    peak: 64 << 20,
    slowness: 1,
};

/// What a parser made of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is one of its format.
    Accepted,
    /// It is not.
    Refused,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Accepted => "accepted",
            Verdict::Refused => "refused",
        })
    }
}

/// `holds`, or else what does not.
pub fn must(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("does not hold: {what}")) }
}

/// The first `N` bytes and the rest; zeros stand in for what is missing.
pub fn head<const N: usize>(input: &[u8]) -> ([u8; N], &[u8]) {
    let mut first = [0; N];
    let (found, rest) = input.split_at(input.len().min(N));
    first[..found.len()].copy_from_slice(found);
    (first, rest)
}

/// For formats without a checksum.
pub fn no_checksum(_: &mut [u8]) {}
