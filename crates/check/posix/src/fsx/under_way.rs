//! Asynchronous direct I/O of a run: what is under way, and waiting for it before its bytes are touched otherwise.
//!
//! Two requests that overlap have no order while both are under way, so no model could say what the file holds then.
//! Whatever touches a page of a request that is under way, in a way that matters, waits for it; all else goes on beside
//! it, and what a request reads is what the model held when it began.

use crate::bytes::Aligned;
use crate::raw::aio::{Aio, Memory};
use crate::scene::{equal, same_bytes, works};
use anyhow::{Context, Result};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd;

/// Requests of one file that are under way at a time.
const DEPTH: usize = 16;
const PAGE: usize = 4096;

/// The access of an operation to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It sees the bytes.
    Read,
    /// It changes them.
    Write,
}

/// A request that has begun.
#[derive(Debug)]
struct Call {
    /// The operation that began it.
    step: u64,
    range: Range<usize>,
    /// The bytes that a read must find; none for a write.
    wanted: Option<Vec<u8>>,
}

impl Call {
    fn is_in_the_way(&self, touch: Touch, range: &Range<usize>) -> bool {
        let meets = self.range.start < range.end && range.start < self.range.end;
        meets && (touch == Touch::Write || self.wanted.is_none())
    }
}

/// The asynchronous requests of one file.
#[derive(Debug)]
pub struct UnderWay {
    aio: Aio,
    calls: BTreeMap<u64, Call>,
    /// Requests that were begun while another was under way.
    pub side_by_side: u64,
    /// Bytes of reads that were compared.
    pub compared: u64,
}

impl UnderWay {
    /// Nothing is under way; `None` where the machine has no asynchronous I/O.
    ///
    /// # Errors
    ///
    /// That of io_setup(2).
    pub fn new() -> Result<Option<Self>> {
        match Aio::new(u32::try_from(DEPTH)?) {
            Err(Errno::NOSYS) => Ok(None),
            made => {
                let aio = works("io_setup", made)?;
                Ok(Some(Self { aio, calls: BTreeMap::new(), side_by_side: 0, compared: 0 }))
            }
        }
    }

    /// Begins to read what `wanted` says into `len` bytes of memory; `at` and `len` are multiples of a page.
    ///
    /// # Errors
    ///
    /// That of io_submit(2), or of a request that had to be waited for.
    pub fn read(
        &mut self,
        file: &impl AsFd,
        step: u64,
        at: usize,
        len: usize,
        wanted: Vec<u8>,
    ) -> Result<()> {
        self.make_room()?;
        // A pattern that shows bytes that the kernel did not fill.
        let memory = Memory::Own(Aligned::of(&vec![0xa5; len]));
        let number = works("io_submit of a read", self.aio.read(file, at as u64, memory))?;
        self.calls.insert(number, Call { step, range: at..at + len, wanted: Some(wanted) });
        Ok(())
    }

    /// Begins to write `bytes`, whole pages, at `at`.
    ///
    /// # Errors
    ///
    /// As [`UnderWay::read`].
    pub fn write(&mut self, file: &impl AsFd, step: u64, at: usize, bytes: &[u8]) -> Result<()> {
        self.make_room()?;
        let memory = Memory::Own(Aligned::of(bytes));
        let number = works("io_submit of a write", self.aio.write(file, at as u64, memory))?;
        self.calls.insert(number, Call { step, range: at..at + bytes.len(), wanted: None });
        Ok(())
    }

    fn make_room(&mut self) -> Result<()> {
        while self.calls.len() >= DEPTH {
            self.wait()?;
        }
        self.side_by_side += u64::from(!self.calls.is_empty());
        Ok(())
    }

    /// True if a write may be under way.
    pub fn has_writes(&self) -> bool {
        self.calls.values().any(|call| call.wanted.is_none())
    }

    /// Waits until nothing is in the way of an operation that touches `range`: whole pages of it, since that is what
    /// caches hold.
    ///
    /// # Errors
    ///
    /// A request that was waited for ended with an error, too few bytes, or others than it should have read.
    pub fn settle(&mut self, touch: Touch, range: Range<usize>) -> Result<()> {
        let range = range.start / PAGE * PAGE..range.end.div_ceil(PAGE).saturating_mul(PAGE);
        while self.calls.values().any(|call| call.is_in_the_way(touch, &range)) {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for all.
    ///
    /// # Errors
    ///
    /// As [`UnderWay::settle`].
    pub fn settle_all(&mut self) -> Result<()> {
        while !self.calls.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for the next that ends, and looks at what came of it.
    fn wait(&mut self) -> Result<()> {
        let ended = works("io_getevents", self.aio.wait())?.context("a request is under way")?;
        let (result, memory, number) = ended;
        let call =
            self.calls.remove(&number).context("a request that was never begun has ended")?;
        let (at, end) = (call.range.start, call.range.end);
        let kind = if call.wanted.is_some() { "read" } else { "write" };
        let what = format!("asynchronous {kind} of {at}..{end}, begun by operation {}", call.step);
        let bytes = works(&what, result)?;
        match (call.wanted, memory) {
            (Some(wanted), Memory::Own(mut memory)) => {
                equal(format!("bytes of the {what}"), bytes, wanted.len())?;
                self.compared += bytes as u64;
                same_bytes(what, &memory.bytes()[..bytes], &wanted)
            }
            _ => equal(format!("bytes of the {what}"), bytes, end - at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(range: Range<usize>, reads: bool) -> Call {
        Call { step: 1, range, wanted: reads.then(Vec::new) }
    }

    #[test]
    fn what_matters_to_each_other_is_in_the_way() {
        let (read, write) = (call(0..4096, true), call(4096..8192, false));
        assert!(read.is_in_the_way(Touch::Write, &(0..4096)));
        assert!(!read.is_in_the_way(Touch::Read, &(0..4096)));
        assert!(!read.is_in_the_way(Touch::Write, &(4096..8192)));
        assert!(write.is_in_the_way(Touch::Read, &(8191..8192)));
        assert!(write.is_in_the_way(Touch::Write, &(0..usize::MAX)));
    }

    #[test]
    fn a_read_that_finds_other_bytes_is_told() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 2 * PAGE], 0).unwrap();
        let mut under_way = UnderWay::new().unwrap().unwrap();
        under_way.read(&file, 1, 0, 2 * PAGE, vec![1; 2 * PAGE]).unwrap();
        under_way.write(&file, 2, 2 * PAGE, &[3; PAGE]).unwrap();
        under_way.settle_all().unwrap();
        assert_eq!((under_way.side_by_side, under_way.compared), (1, 2 * PAGE as u64));
        let mut wanted = vec![1; 2 * PAGE];
        wanted[77] = 2;
        under_way.read(&file, 3, 0, 2 * PAGE, wanted).unwrap();
        let error = format!("{:#}", under_way.settle(Touch::Write, 5000..5001).unwrap_err());
        assert!(error.contains("begun by operation 3") && error.contains("byte 77"), "{error}");
    }
}
