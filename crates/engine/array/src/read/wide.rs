//! Reads of less than a piece that a member could not serve: the whole piece is recovered, since that is what it takes to
//! mend it there. A disk whose physical blocks are larger than its logical ones loses all of a physical block, and a write
//! of a part of that need not help.

use crate::engine::Engine;
use crate::redundancy::mend::piece_size;
use braid_device::{IoError, IoErrorKind};
use braid_shard::BufMut;
use std::ops::Range;

/// Bytes `rows` of a chunk or unit, and those that are recovered for them.
pub(crate) struct Wide {
    rows: Range<u64>,
    /// To be locked.
    pub(crate) pieces: Range<u64>,
}

impl Wide {
    /// For `rows` of a chunk or unit of `room` bytes, whose member gave `error`: whole pieces, where it could not read them.
    pub(crate) fn of(engine: &Engine, rows: Range<u64>, room: u64, error: Option<IoError>) -> Wide {
        let unreadable = error.is_some_and(|error| error.kind == IoErrorKind::Medium);
        let piece = piece_size(engine);
        let pieces = match unreadable {
            true => {
                let end = rows.end.next_multiple_of(piece).min(room);
                rows.start / piece * piece..end.max(rows.end)
            }
            false => rows.clone(),
        };
        Wide { rows, pieces }
    }

    /// Has `recover` fill `buf` with the rows: out of whole pieces, or, where not all of those can be had, by themselves.
    /// `recover` is given the first byte of the chunk or unit.
    ///
    /// # Errors
    /// That of `recover` for the rows alone.
    pub(crate) async fn recover(
        &self,
        engine: &Engine,
        buf: &mut BufMut,
        recover: impl AsyncFn(u64, &mut BufMut) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        if self.pieces != self.rows {
            let mut all = engine.shard.pool().get((self.pieces.end - self.pieces.start) as usize);
            if recover(self.pieces.start, &mut all).await.is_ok() {
                let at = (self.rows.start - self.pieces.start) as usize;
                let len = buf.len();
                buf.copy_from_slice(&all[at..at + len]);
                return Ok(());
            }
        }
        recover(self.rows.start, buf).await
    }
}
