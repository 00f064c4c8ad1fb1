//! Copies held against each other, block by block: which differ, and which of them is wrong.
//!
//! Where more than half of three or more copies agree, the others are wrong. Where they do not, and of two copies, the
//! first counts, as in md.

use braid_shard::Buf;
use smallvec::SmallVec;
use std::ops::Range;

/// Neighbouring rows in which the same copies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) rows: Range<usize>,
    /// The copy that counts.
    pub(crate) right: usize,
    /// Copies that hold something else.
    pub(crate) wrong: SmallVec<[usize; 2]>,
    /// Most copies agree.
    pub(crate) known: bool,
}

/// Where `copies` (each with its number) differ, in blocks of `block` bytes. `ask`: the copies were equal once, so
/// that most of them are right.
pub(crate) fn runs(copies: &[(usize, Buf)], block: usize, ask: bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let Some(((first, head), others)) = copies.split_first() else { return runs };
    if others.iter().all(|(_, copy)| copy[..] == head[..]) {
        return runs;
    }
    let len = head.len();
    for start in (0..len).step_by(block.max(1)) {
        let rows = start..(start + block).min(len);
        let agree = |a: &Buf, b: &Buf| a[rows.clone()] == b[rows.clone()];
        if others.iter().all(|(_, copy)| agree(copy, head)) {
            continue;
        }
        let like = |one: &Buf| copies.iter().filter(|(_, copy)| agree(copy, one)).count();
        let most = copies.iter().find(|(_, one)| ask && 2 * like(one) > copies.len());
        let (right, model) = most.map_or((*first, head), |(nr, copy)| (*nr, copy));
        let wrong = copies.iter().filter(|(_, copy)| !agree(copy, model)).map(|(nr, _)| *nr);
        let run = Run { right, wrong: wrong.collect(), known: most.is_some(), rows };
        match runs.last_mut() {
            Some(last)
                if last.rows.end == run.rows.start
                    && (last.right, &last.wrong, last.known)
                        == (run.right, &run.wrong, run.known) =>
            {
                last.rows.end = run.rows.end;
            }
            _ => runs.push(run),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn seen(copies: &[&[u8]], ask: bool) -> Vec<Run> {
        let shard = testing::shard();
        let copies: Vec<_> = copies
            .iter()
            .enumerate()
            .map(|(nr, bytes)| (nr, shard.pool().copy_of(bytes).freeze()))
            .collect();
        runs(&copies, 2, ask)
    }

    fn run(rows: Range<usize>, right: usize, wrong: &[usize], known: bool) -> Run {
        Run { rows, right, wrong: SmallVec::from_slice(wrong), known }
    }

    #[test]
    fn most_copies_name_the_wrong_one_block_by_block() {
        assert_eq!(seen(&[b"aabbcc", b"aabbcc", b"aabbcc"], true), []);
        assert_eq!(
            seen(&[b"xabbcc", b"aabbcc", b"aabbyc"], true),
            [run(0..2, 1, &[0], true), run(4..6, 0, &[2], true)]
        );
        assert_eq!(seen(&[b"xxxxcc", b"aabbcc", b"aabbcc"], true), [run(0..4, 1, &[0], true)]);
    }

    #[test]
    fn where_no_more_than_half_agree_the_first_counts() {
        assert_eq!(seen(&[b"xx", b"aa"], true), [run(0..2, 0, &[1], false)]);
        assert_eq!(seen(&[b"xx", b"aa", b"bb"], true), [run(0..2, 0, &[1, 2], false)]);
        assert_eq!(seen(&[b"xx", b"aa", b"aa", b"xx"], true), [run(0..2, 0, &[1, 2], false)]);
        assert_eq!(seen(&[b"xx", b"aa", b"aa"], false), [run(0..2, 0, &[1, 2], false)]);
    }
}
