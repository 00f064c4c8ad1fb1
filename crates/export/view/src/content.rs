//! The bytes of a target as those of a file, on the shard of the mount.
//!
//! Invariant: as with a block device no write makes it larger, and what is written at the end is what fits.

use crate::offered::Offer;
use braid_device::{IoError, IoErrorKind, IoSets, Op, Request};
use braid_export::gate::Pass;
use braid_export::unaligned::{Unaligned, is_ragged};
use braid_export::{Disk, Hold};
use braid_filesystem::Errno;
use braid_shard::sync::Notify;
use braid_shard::{Buf, Shard};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that are zeroed by one request.
const ZEROES_MAX: u64 = 1 << 30;

/// Requests of all files of a mount pass it; closed, they wait.
pub(crate) struct Valve {
    held: Cell<bool>,
    stopped: Cell<bool>,
    under_way: Cell<u64>,
    changed: Notify,
}

impl Valve {
    pub fn new(shard: &Shard) -> Rc<Valve> {
        Rc::new(Valve {
            held: Cell::new(false),
            stopped: Cell::new(false),
            under_way: Cell::new(0),
            changed: Notify::new(shard),
        })
    }

    async fn enter(&self) -> Result<Passing<'_>, Errno> {
        let free = || (!self.held.get() || self.stopped.get()).then_some(());
        self.changed.wait_for(free).await;
        if self.stopped.get() {
            return Err(Errno::Io);
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(Passing(self))
    }
}

impl Hold for Valve {
    fn hold(&self, held: bool) -> u64 {
        self.held.set(held);
        self.changed.notify_all();
        self.under_way.get()
    }

    fn stop(&self) {
        self.stopped.set(true);
        self.changed.notify_all();
    }
}

struct Passing<'a>(&'a Valve);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

/// See the module's documentation.
pub(crate) struct Content {
    shard: Shard,
    offer: Arc<Offer>,
    disk: Disk,
    sets: IoSets,
    pass: Rc<Pass>,
    unaligned: RefCell<Rc<Unaligned>>,
    valve: Rc<Valve>,
}

impl Content {
    /// Opens the device of a target.
    ///
    /// # Errors
    /// When the target is being stopped.
    pub async fn open(
        shard: &Shard,
        offer: Arc<Offer>,
        valve: Rc<Valve>,
    ) -> Result<Content, Errno> {
        let disk = Disk::open(&offer.target, shard).map_err(|error| {
            tracing::warn!(%error, "a file of the FUSE view could not be opened");
            Errno::Nxio
        })?;
        let pass = offer.gate.enter(shard).await;
        let unaligned = RefCell::new(Unaligned::new(shard, &disk.device(), &pass));
        let (shard, sets) = (shard.clone(), IoSets::new(shard));
        Ok(Content { shard, offer, disk, sets, pass, unaligned, valve })
    }

    /// An opening has ended.
    pub fn closed(&self) {
        self.offer.closed();
    }

    /// Its size in bytes, which matters to a request that ends at `end`: what was known is enough for one that fits.
    fn size_for(&self, end: u64) -> u64 {
        let size = || self.disk.device().info().size;
        if end > size() && self.disk.has_grown() {
            let of_grown = Unaligned::new(&self.shard, &self.disk.device(), &self.pass);
            *self.unaligned.borrow_mut() = of_grown;
        }
        size()
    }

    fn unaligned(&self) -> Rc<Unaligned> {
        Rc::clone(&self.unaligned.borrow())
    }

    /// Reads up to `len` bytes at `offset`; fewer at the end.
    ///
    /// # Errors
    /// The device's.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Buf, Errno> {
        let left = self.size_for(offset.saturating_add(len as u64)).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        let buf = self.shard.pool().get(len);
        if len == 0 {
            return Ok(buf.freeze());
        }
        let _passing = self.valve.enter().await?;
        self.offer.figures.began();
        let request = Request::read(offset, buf);
        let device = self.disk.device();
        let outcome = match is_ragged(&*device, offset, len as u64) {
            true => self.unaligned().carry_out(offset, request.op).await,
            false => self.sets.one(&*device, request).await,
        };
        let read = if outcome.result.is_ok() { len as u64 } else { 0 };
        self.offer.figures.ended(read, 0, outcome.result.is_err());
        outcome.result.map_err(errno)?;
        match outcome.op {
            Op::Read(mut bufs) => bufs.pop().map(|buf| buf.freeze()).ok_or(Errno::Io),
            _ => Err(Errno::Io),
        }
    }

    /// Writes `data` at `offset`, or the part of it that fits.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when not all fits; else the device's.
    pub async fn write(&self, offset: u64, data: Buf) -> Result<(), Errno> {
        let end = offset.saturating_add(data.len() as u64);
        let left = self.size_for(end).saturating_sub(offset);
        let fits = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
        let whole = fits == data.len();
        if fits > 0 {
            let data = if whole { data } else { data.slice(0..fits) };
            let bytes = data.len() as u64;
            self.change(Request::write(offset, data, false), bytes).await?;
        }
        if whole { Ok(()) } else { Err(Errno::NoSpace) }
    }

    /// Makes a range read as zeroes; `unmap`: its space may be given back.
    ///
    /// # Errors
    /// [`Errno::NoSpace`] when it reaches beyond the end; else the device's.
    pub async fn zero(&self, offset: u64, len: u64, unmap: bool) -> Result<(), Errno> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size_for(*end));
        let end = end.ok_or(Errno::NoSpace)?;
        let mut at = offset;
        while at < end {
            let len = (end - at).min(ZEROES_MAX);
            let op = Op::WriteZeroes { len, unmap, fua: false };
            self.change(Request { offset: at, op }, 0).await?;
            at += len;
        }
        Ok(())
    }

    async fn change(&self, request: Request, bytes: u64) -> Result<(), Errno> {
        if self.disk.is_read_only() {
            return Err(Errno::ReadOnly);
        }
        let _passing = self.valve.enter().await?;
        self.offer.figures.began();
        let (offset, len) = (request.offset, request.len());
        let device = self.disk.device();
        let result = if is_ragged(&*device, offset, len) {
            self.unaligned().carry_out(offset, request.op).await.result
        } else {
            self.pass.write().await;
            let outcome = self.sets.one(&*device, request).await;
            self.pass.wrote();
            outcome.result
        };
        let written = if result.is_ok() { bytes } else { 0 };
        self.offer.figures.ended(0, written, result.is_err());
        result.map_err(errno)
    }

    /// Makes durable what was acknowledged.
    ///
    /// # Errors
    /// The device's.
    pub async fn flush(&self) -> Result<(), Errno> {
        let _passing = self.valve.enter().await?;
        self.offer.figures.began();
        let result = self.sets.one(&*self.disk.device(), Request::flush()).await.result;
        self.offer.figures.ended(0, 0, result.is_err());
        result.map_err(errno)
    }
}

fn errno(error: IoError) -> Errno {
    match error.kind {
        IoErrorKind::Medium | IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Reserved => {
            Errno::Io
        }
        IoErrorKind::Invalid => Errno::Invalid,
        IoErrorKind::Unsupported => Errno::Unsupported,
        IoErrorKind::NoSpace => Errno::NoSpace,
        IoErrorKind::Refused => Errno::ReadOnly,
    }
}
