//! Blocks that are read before the database asks for them: its pages are small, and each read of the mirror is a message to
//! another thread, a wait for a device, and a message back.
//!
//! Reads that follow each other closely are a scan, of which there may be a few at a time. While the blocks of one run are
//! used, the next run of the scan is on its way.
//!
//! Invariant: what is kept is what the mirror holds. Whoever writes to the mirror makes this [forget](Ahead::forget) first.

use braid_device::IoError;
use braid_mirror::BLOCK;
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// Blocks of the first run of a scan, and of its longest.
const RUN_MIN: u64 = 16;
const RUN_MAX: u64 = 128;
/// Blocks that a scan may leave out between two reads.
const GAP: u64 = 16;
/// Scans that are remembered.
const SCANS: usize = 4;

/// Bytes that come later, perhaps fewer than were asked for.
pub(crate) type Coming = Receiver<Result<Vec<u8>, IoError>>;

/// Blocks in a row.
#[derive(Default)]
struct Run {
    first: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + (self.bytes.len() / BLOCK) as u64
    }

    fn get(&self, first: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(first.checked_sub(self.first)?).ok()?.checked_mul(BLOCK)?;
        self.bytes.get(at..at.checked_add(len)?)
    }
}

#[derive(Default)]
struct Scan {
    /// Behind the last block that was read.
    end: u64,
    kept: Run,
    /// The first block and the number of those that are on their way.
    coming: Option<(u64, u64, Coming)>,
    /// Blocks of the next run.
    next: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The one that was used last comes first.
    scans: VecDeque<Scan>,
}

impl Ahead {
    /// Fills `out` with whole blocks from `first` on, when they are kept or on their way. `begin` starts the reading of the
    /// next run: of its second argument's number of blocks, from its first on.
    pub(crate) fn get(
        &mut self,
        first: u64,
        out: &mut [u8],
        begin: &impl Fn(u64, u64) -> Coming,
    ) -> bool {
        let count = (out.len() / BLOCK) as u64;
        let found = self.scans.iter().position(|scan| scan.reaches(first, count));
        let Some(mut scan) = found.and_then(|at| self.scans.remove(at)) else { return false };
        if scan.kept.get(first, out.len()).is_none() {
            scan.take(begin);
        }
        let kept =
            scan.kept.get(first, out.len()).map(|bytes| out.copy_from_slice(bytes)).is_some();
        if kept {
            scan.end = scan.end.max(first + count);
        }
        self.scans.push_front(scan);
        kept
    }

    /// `count` blocks from `first` on were read, because they were not kept. If they belong to a scan, those behind them are
    /// read with `begin`, as by [`get`](Ahead::get).
    pub(crate) fn note_read(
        &mut self,
        first: u64,
        count: u64,
        begin: &impl Fn(u64, u64) -> Coming,
    ) {
        let end = first + count;
        let follows = |scan: &Scan| (scan.end..=scan.end + GAP).contains(&first);
        let found = self.scans.iter().position(follows);
        let scan = match found.and_then(|at| self.scans.remove(at)) {
            Some(mut scan) => {
                scan.end = end;
                scan.begin(end, begin);
                scan
            }
            None => {
                self.scans.truncate(SCANS - 1);
                Scan { end, next: RUN_MIN, ..Scan::default() }
            }
        };
        self.scans.push_front(scan);
    }

    /// Forgets all blocks: some of them will be written.
    pub(crate) fn forget(&mut self) {
        for scan in &mut self.scans {
            scan.kept = Run::default();
            scan.coming = None;
        }
    }
}

impl Scan {
    /// True when the blocks are kept, or may be when what is on its way has come.
    fn reaches(&self, first: u64, count: u64) -> bool {
        let from = match self.kept.bytes.is_empty() {
            true => self.coming.as_ref().map(|(from, ..)| *from),
            false => Some(self.kept.first),
        };
        let to = self.coming.as_ref().map_or(self.kept.end(), |(from, count, _)| from + count);
        from.is_some_and(|from| from <= first && first + count <= to)
    }

    /// Waits for what is on its way, and begins the run behind it. The run before it is still kept: a branch of the database's
    /// tree may lie ahead of leaves that come next.
    fn take(&mut self, begin: &impl Fn(u64, u64) -> Coming) {
        let Some((from, count, coming)) = self.coming.take() else { return };
        let bytes = coming.recv().ok().and_then(Result::ok).unwrap_or_default();
        let whole = bytes.len() as u64 == count * BLOCK as u64;
        match self.kept.end() == from {
            true => {
                let before = from.saturating_sub(self.kept.first + RUN_MAX);
                self.kept.bytes.drain(..before as usize * BLOCK);
                self.kept.first += before;
                self.kept.bytes.extend_from_slice(&bytes);
            }
            false => self.kept = Run { first: from, bytes },
        }
        if whole {
            self.begin(from + count, begin);
        }
    }

    fn begin(&mut self, from: u64, begin: &impl Fn(u64, u64) -> Coming) {
        self.coming = Some((from, self.next, begin(from, self.next)));
        self.next = (self.next * 2).min(RUN_MAX);
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
