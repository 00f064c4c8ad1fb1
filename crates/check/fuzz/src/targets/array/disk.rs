//! Members of any size in memory, of which only what was written takes any.
//!
//! Invariant: what a member that is opened to be read holds does not change.

use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, OpenError, Opener, Outcome, Request,
};
use braid_format::SECTOR;
use braid_format::superblock::{READ_LEN, Superblock, Version, location};
use braid_shard::Shard;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are kept together.
const PAGE: u64 = 4096;

type Pages = BTreeMap<u64, Arc<[u8; PAGE as usize]>>;

/// See the module's documentation. A clone is another handle of the same member.
#[derive(Clone)]
pub struct Disk {
    info: DeviceInfo,
    pages: Arc<Mutex<Pages>>,
    /// Writes are what should not happen.
    read_only: Arc<AtomicBool>,
    written: Arc<AtomicBool>,
}

impl Disk {
    /// A member of zeros; `size` is a multiple of 4096.
    pub fn new(name: impl Into<String>, size: u64) -> Disk {
        Disk {
            info: DeviceInfo::plain(name, size),
            pages: Arc::default(),
            read_only: Arc::default(),
            written: Arc::default(),
        }
    }

    /// Another member that holds the same.
    pub fn copy(&self) -> Disk {
        Disk {
            info: self.info.clone(),
            pages: Arc::new(Mutex::new(self.locked(|pages| pages.clone()))),
            read_only: Arc::default(),
            written: Arc::default(),
        }
    }

    /// From now on a write is noted, and not carried out.
    pub fn read_only(self) -> Disk {
        self.read_only.store(true, Ordering::Relaxed);
        self
    }

    /// Somebody tried to write to a member that is only read.
    pub fn was_written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes that it has.
    pub fn size(&self) -> u64 {
        self.info.size
    }

    /// The superblock that it holds, of whichever version; `None` if none can be read.
    pub fn superblock(&self) -> Option<Superblock> {
        let sectors = self.size() / SECTOR as u64;
        Version::ALL.into_iter().find_map(|version| {
            let at = location(version, sectors)?;
            let bytes = self.get(at * SECTOR as u64, READ_LEN);
            Superblock::parse(&bytes, version, at, sectors).ok()
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        // A panic of the code under test is reported and leaves nothing behind that is used again.
        work(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `len` bytes at `at`; zeros beyond the end.
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(at, &mut bytes);
        bytes
    }

    fn fill(&self, at: u64, out: &mut [u8]) {
        self.locked(|pages| {
            each_piece(at, out.len(), |page, within, range| {
                let piece = &mut out[range];
                match pages.get(&page) {
                    Some(bytes) => piece.copy_from_slice(&bytes[within..within + piece.len()]),
                    None => piece.fill(0),
                }
            });
        });
    }

    /// Writes, also to a member that is only read; what lies beyond the end is left out.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let len = bytes.len().min(self.info.size.saturating_sub(at) as usize);
        self.locked(|pages| {
            each_piece(at, len, |page, within, range| {
                let piece = &bytes[range];
                // A job that writes zeros over zeros takes no memory.
                if !pages.contains_key(&page) && piece.iter().all(|byte| *byte == 0) {
                    return;
                }
                let entry = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
                Arc::make_mut(entry)[within..within + piece.len()].copy_from_slice(piece);
            });
        });
    }

    fn zero(&self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let (first, last) = (at.next_multiple_of(PAGE).min(end), (end / PAGE * PAGE).max(at));
        if first >= last {
            return self.put(at, &vec![0; len as usize]);
        }
        self.put(at, &vec![0; (first - at) as usize]);
        self.put(last, &vec![0; (end - last) as usize]);
        self.locked(|pages| {
            let mut rest = pages.split_off(&(first / PAGE));
            pages.append(&mut rest.split_off(&(last / PAGE)));
        });
    }
}

/// Calls `work` with the number of each page, the place within it, and the part of the bytes that lies there.
fn each_piece(at: u64, len: usize, mut work: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let here = at + done as u64;
        let within = (here % PAGE) as usize;
        let piece = (PAGE as usize - within).min(len - done);
        work(here / PAGE, within, done..done + piece);
        done += piece;
    }
}

impl Opener for Disk {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self, _: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(Rc::new(self.clone()))
    }
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let Request { offset, mut op } = request;
        let writes = matches!(op, Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard { .. });
        if writes && self.read_only.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::Relaxed);
            return done.complete(Outcome::failed(IoError::new(IoErrorKind::Refused), op));
        }
        let mut at = offset;
        match &mut op {
            Op::Read(bufs) => {
                for buf in bufs {
                    self.fill(at, buf);
                    at += buf.len() as u64;
                }
            }
            Op::Write { bufs, .. } => {
                for buf in bufs {
                    self.put(at, buf);
                    at += buf.len() as u64;
                }
            }
            Op::WriteZeroes { len, .. } => self.zero(offset, *len),
            Op::Flush | Op::Discard { .. } => {}
        }
        done.complete(Outcome::ok(op));
    }
}
