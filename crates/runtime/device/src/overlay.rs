//! A filter that keeps written data in memory, for users that have to write but must not change the device.
//!
//! Invariant: the device below gets reads only. The written data is dropped with the filter.

use crate::completion::{Completion, Outcome};
use crate::device::Device;
use crate::error::{IoError, IoErrorKind};
use crate::info::DeviceInfo;
use crate::io_set::IoSets;
use crate::request::{Op, Request};
use braid_shard::Shard;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Granularity of the overlay in bytes. The logical block of every device is a multiple of it.
const SECTOR: u64 = 512;

/// Written sectors, by number.
type Written = RefCell<BTreeMap<u64, Box<[u8; SECTOR as usize]>>>;

/// See the module's documentation.
pub struct Overlay {
    shard: Shard,
    sets: IoSets,
    below: Rc<dyn Device>,
    info: DeviceInfo,
    written: Rc<Written>,
}

impl Overlay {
    /// Over `below`, on the same shard, with nothing written yet.
    pub fn new(shard: &Shard, below: Rc<dyn Device>) -> Rc<Overlay> {
        let info = DeviceInfo {
            discards: false,
            writes_zeroes: false,
            volatile_cache: false,
            ..below.info().clone()
        };
        let (shard, sets) = (shard.clone(), IoSets::new(shard));
        Rc::new(Overlay { shard, sets, below, info, written: Rc::default() })
    }

    /// Stores `bytes`, which are whole sectors from byte `at` on.
    fn store(&self, at: u64, bytes: &[u8]) {
        let mut written = self.written.borrow_mut();
        for (number, sector) in (at / SECTOR..).zip(bytes.as_chunks().0) {
            written.insert(number, Box::new(*sector));
        }
    }

    fn read(&self, request: Request, done: Completion) {
        let (from, to) = (request.offset, request.offset + request.len());
        let sectors = from / SECTOR..to.div_ceil(SECTOR);
        if self.written.borrow().range(sectors).next().is_none() {
            return self.below.submit(request, done);
        }
        let (sets, below) = (self.sets.clone(), Rc::clone(&self.below));
        let written = Rc::clone(&self.written);
        self.shard.spawn(async move {
            let mut outcome = sets.one(&*below, request).await;
            if outcome.result.is_ok()
                && let Op::Read(bufs) = &mut outcome.op
            {
                let mut at = from;
                for buf in bufs.iter_mut() {
                    apply(&written, at, buf);
                    at += buf.len() as u64;
                }
            }
            done.complete(outcome);
        });
    }
}

/// Replaces the bytes of `buf`, which was read from byte `at` on, by those written since.
fn apply(written: &Written, at: u64, buf: &mut [u8]) {
    let end = at + buf.len() as u64;
    for (number, sector) in written.borrow().range(at / SECTOR..end.div_ceil(SECTOR)) {
        let start = number * SECTOR;
        let (from, to) = (start.max(at), (start + SECTOR).min(end));
        buf[(from - at) as usize..(to - at) as usize]
            .copy_from_slice(&sector[(from - start) as usize..(to - start) as usize]);
    }
}

impl Device for Overlay {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if request.check(&self.info).is_err() {
            return done.finish(Err(IoError::new(IoErrorKind::Invalid)), request.op);
        }
        match &request.op {
            Op::Read(_) => return self.read(request, done),
            Op::Write { bufs, .. } => {
                // The boundary between two buffers of a request may be within a sector.
                let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                self.store(request.offset, &all);
            }
            Op::WriteZeroes { len, .. } => {
                let zeroes = [0; SECTOR as usize];
                (0..len / SECTOR).for_each(|at| self.store(request.offset + at * SECTOR, &zeroes));
            }
            Op::Flush | Op::Discard { .. } => {}
        }
        done.complete(Outcome::ok(request.op));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::Ram;
    use crate::testing::{ask, bytes, fill, shard};

    #[test]
    fn what_is_written_is_read_back_and_does_not_reach_the_device() {
        let shard = shard();
        let below = Ram::new("r", 1 << 20).device();
        assert!(ask(&shard, &below, fill(&shard, 0, 16384, 1)).result.is_ok());
        let over: Rc<dyn Device> = Overlay::new(&shard, Rc::clone(&below));
        let read = |device: &Rc<dyn Device>, offset, len| {
            bytes(ask(&shard, device, Request::read(offset, shard.pool().get(len))))
        };
        assert_eq!(read(&over, 0, 4096), vec![1; 4096]);
        assert!(ask(&shard, &over, fill(&shard, 4608, 1024, 2)).result.is_ok());
        let zero = Op::WriteZeroes { len: 512, unmap: false, fua: false };
        assert!(ask(&shard, &over, Request { offset: 8192, op: zero }).result.is_ok());
        assert!(ask(&shard, &over, Request::flush()).result.is_ok());
        let mut expected = vec![1; 16384];
        expected[4608..5632].fill(2);
        expected[8192..8704].fill(0);
        assert_eq!(read(&over, 0, 16384), expected);
        assert_eq!(read(&over, 5120, 512), vec![2; 512]);
        assert_eq!(read(&below, 0, 16384), vec![1; 16384]);
        let beyond = fill(&shard, 1 << 20, 4096, 2);
        let refused = ask(&shard, &over, beyond).result.unwrap_err().kind;
        assert_eq!(refused, IoErrorKind::Invalid);
    }
}
