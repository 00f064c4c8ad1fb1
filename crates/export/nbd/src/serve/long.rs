//! Trims and zeroes that are about more bytes than a device is given at a time, up to a whole export (extended headers).
//!
//! They are carried out piece by piece, one after the other: memory is that of one piece, and between two of them others get
//! what they have asked for. A piece that has begun is waited for, and then nothing further is done for a client that has gone
//! or a server that stops; a trim, which is a hint, also ends, with success, where its client is to be held. Invariant: a
//! client that is told of success finds zeroes in all of what it has asked to be zeroed.

use std::rc::Rc;

use braid_device::{IoError, Op};
use braid_export::unaligned::Unaligned;

use super::replies::{Replies, Token};
use crate::protocol::{ErrorCode, Refusal, Request};

/// Bytes of a trim that a device is given at a time. Most devices do that at once.
const TRIM_BYTES: u64 = 1 << 30;
/// Bytes of zeroes that a device is given at a time: members that cannot zero have them written.
const ZEROES_BYTES: u64 = 128 << 20;

/// A request in pieces.
pub(super) struct Pieces {
    at: u64,
    end: u64,
    step: u64,
    /// A piece with this length.
    piece: fn(u64, bool) -> Op,
    unmap: bool,
    hint: bool,
    /// All of it must be durable at the end.
    flush: bool,
}

/// The pieces of `op` at `offset`; `None` when it is done as a whole.
pub(super) fn pieces(offset: u64, op: &Op) -> Option<Pieces> {
    let (len, step, piece, unmap, flush): (_, _, fn(u64, bool) -> Op, _, _) = match *op {
        Op::Discard { len } => (len, TRIM_BYTES, |len, _| Op::Discard { len }, false, false),
        Op::WriteZeroes { len, unmap, fua } => {
            let piece = |len, unmap| Op::WriteZeroes { len, unmap, fua: false };
            (len, ZEROES_BYTES, piece, unmap, fua)
        }
        Op::Read(_) | Op::Write { .. } | Op::Flush => return None,
    };
    let (end, hint) = (offset + len, matches!(op, Op::Discard { .. }));
    (len > step).then_some(Pieces { at: offset, end, step, piece, unmap, hint, flush })
}

impl Iterator for Pieces {
    type Item = (u64, Op);

    fn next(&mut self) -> Option<(u64, Op)> {
        let at = self.at;
        // The next multiple of the step, which is one of every block, so that only the ends are ragged.
        self.at = (at - at % self.step + self.step).min(self.end);
        (at < self.end).then(|| (at, (self.piece)(self.at - at, self.unmap)))
    }
}

/// Carries the pieces out, and answers.
pub(super) async fn carry_out(
    unaligned: Rc<Unaligned>,
    replies: Rc<Replies>,
    token: Token,
    request: Request,
    pieces: Pieces,
) {
    let (hint, flush) = (pieces.hint, pieces.flush);
    let mut result: Result<(), IoError> = Ok(());
    for (offset, op) in pieces {
        if hint && !replies.takes_requests() {
            break;
        }
        if replies.gives_up() {
            let Request { cookie, offset, .. } = request;
            let (code, message) =
                (ErrorCode::Shutdown, "ended before it was done: not all is zero");
            return replies.refuse(token, Refusal { cookie, offset, code, message });
        }
        result = unaligned.change(offset, op).await;
        if result.is_err() {
            break;
        }
    }
    if flush && result.is_ok() {
        result = unaligned.carry_out(0, Op::Flush).await.result;
    }
    replies.completion(token).finish(result, Op::Flush);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lengths(offset: u64, op: &Op) -> Vec<(u64, u64)> {
        let length = |op| match op {
            Op::Discard { len } => len,
            Op::WriteZeroes { len, unmap: true, fua: false } => len,
            other => panic!("{other:?}"),
        };
        pieces(offset, op).unwrap().map(|(at, op)| (at, length(op))).collect()
    }

    #[test]
    fn pieces_cover_the_range_and_only_its_ends_are_ragged() {
        let zeroes = |len| Op::WriteZeroes { len, unmap: true, fua: true };
        assert!(pieces(7, &zeroes(ZEROES_BYTES)).is_none());
        let (from, len) = (ZEROES_BYTES - 3, 2 * ZEROES_BYTES + 9);
        let expected = [
            (from, 3),
            (ZEROES_BYTES, ZEROES_BYTES),
            (2 * ZEROES_BYTES, ZEROES_BYTES),
            (3 * ZEROES_BYTES, 6),
        ];
        assert_eq!(lengths(from, &zeroes(len)), expected);
        assert!(pieces(0, &zeroes(1 << 40)).unwrap().flush);
        assert!(pieces(0, &Op::Discard { len: TRIM_BYTES }).is_none());
        let trimmed = lengths(0, &Op::Discard { len: TRIM_BYTES + 512 });
        assert_eq!(trimmed, [(0, TRIM_BYTES), (TRIM_BYTES, 512)]);
        assert!(pieces(0, &Op::Flush).is_none());
    }
}
