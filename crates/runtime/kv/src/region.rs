//! Regions: ranges of devices that hold a store, used from the thread of the store.
//!
//! A region of a [`Device`] is reached by messages to the shard that the device is open on; the store's thread waits,
//! the shard does not. Requests must be whole blocks of [`BLOCK`] bytes.

use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Request};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use slab::Slab;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

/// Offsets and lengths in a region are multiples of this, in bytes.
pub const BLOCK: usize = 4096;

/// The most bytes of one request to a device.
const REQUEST_MAX: usize = 1 << 20;

/// The most requests to a device that are in flight at a time.
const TOGETHER_MAX: usize = 64;

/// Bytes to write, with their offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// First byte, from the start of the region; a multiple of [`BLOCK`].
    pub offset: u64,
    /// A multiple of [`BLOCK`] bytes.
    pub data: Vec<u8>,
}

/// A write or a flush in flight.
pub enum Underway {
    /// It has ended.
    Ended(Result<(), IoError>),
    /// Its end will be sent; if not, the device is gone.
    Sent(Receiver<Result<(), IoError>>),
}

impl Underway {
    /// Waits for the end.
    ///
    /// # Errors
    /// The device's.
    pub fn wait(self) -> Result<(), IoError> {
        match self {
            Underway::Ended(result) => result,
            Underway::Sent(end) => end.recv().unwrap_or(Err(IoError::new(IoErrorKind::Gone))),
        }
    }
}

/// A range of fixed size on one device, used from one thread. Errors are the device's.
pub trait Region: Send {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// Its size in bytes, a multiple of [`BLOCK`]. Never changes.
    fn size(&self) -> u64;

    /// Fills `buf`, a multiple of [`BLOCK`] long, with the bytes from `offset` on.
    ///
    /// # Errors
    /// When the device cannot give them; [`IoErrorKind::Invalid`] beyond the end.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError>;

    /// Begins to write all of `writes`, which do not overlap, in any order. They may be lost in a power cut until
    /// [`sync`](Region::sync). It ends with an error when the device refuses one; others of them may have been written.
    /// Nothing else is asked for before it has ended.
    fn write(&mut self, writes: &Arc<Vec<Write>>) -> Underway;

    /// Begins to make durable all that was written; an error when the device cannot promise that. Nothing else is asked
    /// for before it has ended.
    fn sync(&mut self) -> Underway;

    /// Begins to do both, one after the other.
    fn write_durably(&mut self, writes: &Arc<Vec<Write>>) -> Underway {
        match self.write(writes).wait() {
            Ok(()) => self.sync(),
            Err(error) => Underway::Ended(Err(error)),
        }
    }
}

/// Devices that regions of this shard lie on: they stay here, the store's thread knows their numbers.
#[derive(Default)]
struct Known {
    devices: RefCell<Slab<Rc<dyn Device>>>,
}

/// Ranges of a [`Device`] that is open on a shard, one after the other as one.
pub struct DeviceRegion {
    name: String,
    shard: Remote,
    number: usize,
    places: Places,
}

/// The ranges of a region: first byte on the device, and bytes.
#[derive(Clone)]
struct Places(Arc<[(u64, u64)]>);

impl Places {
    fn size(&self) -> u64 {
        self.0.iter().map(|(_, len)| len).sum()
    }

    /// The ranges of `len` bytes from `offset` of the region on: first byte on the device, and bytes.
    fn cut(&self, mut offset: u64, len: usize) -> Vec<(u64, usize)> {
        let (mut left, mut pieces) = (len as u64, Vec::new());
        for (start, bytes) in self.0.iter() {
            if offset < *bytes && left > 0 {
                let piece = left.min(bytes - offset);
                pieces.push((start + offset, piece as usize));
                left -= piece;
                offset = 0;
            } else {
                offset = offset.saturating_sub(*bytes);
            }
        }
        pieces
    }
}

impl DeviceRegion {
    /// The `size` bytes from `start` on of `device`, which is open on `shard`. Both are rounded to whole blocks of
    /// [`BLOCK`] bytes, inwards. The device stays in use until the region is dropped.
    ///
    /// # Errors
    /// [`IoErrorKind::Invalid`] when the range reaches beyond the device, or the device's logical blocks are larger than
    /// [`BLOCK`] or no divisor of it.
    pub fn new(
        shard: &Shard,
        device: Rc<dyn Device>,
        start: u64,
        size: u64,
    ) -> Result<DeviceRegion, IoError> {
        DeviceRegion::of_ranges(shard, device, &[(start, size)])
    }

    /// The same of several ranges, each a first byte and a number of bytes: one follows the other in the region.
    ///
    /// # Errors
    /// As [`new`](DeviceRegion::new).
    pub fn of_ranges(
        shard: &Shard,
        device: Rc<dyn Device>,
        ranges: &[(u64, u64)],
    ) -> Result<DeviceRegion, IoError> {
        let invalid = IoError::new(IoErrorKind::Invalid);
        let info = device.info();
        let block = BLOCK as u64;
        let mut places = Vec::with_capacity(ranges.len());
        for (start, size) in ranges {
            let end = start.checked_add(*size).ok_or(invalid)?;
            let start = start.checked_next_multiple_of(block).ok_or(invalid)?;
            let end = end - end % block;
            if end > info.size || start > end {
                return Err(invalid);
            }
            places.push((start, end - start));
        }
        if !block.is_multiple_of(info.logical_block.max(1).into()) {
            return Err(invalid);
        }
        let name = info.name.clone();
        let number = shard.local::<Known>().devices.borrow_mut().insert(device);
        Ok(DeviceRegion { name, shard: shard.remote(), number, places: Places(places.into()) })
    }

    /// True when `len` bytes from `offset` on are within the region.
    fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.places.size())
    }

    fn holds_all(&self, writes: &[Write]) -> bool {
        writes.iter().all(|write| self.holds(write.offset, write.data.len()))
    }

    /// Runs `work` with the device on its shard; the result is sent back.
    fn there<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Shard, Rc<dyn Device>) -> F + Send + 'static,
    ) -> Receiver<Result<T, IoError>>
    where
        F: Future<Output = Result<T, IoError>> + 'static,
    {
        let number = self.number;
        let (send, receive) = mpsc::sync_channel(1);
        // A shard that has ended drops the job, and with it the sender.
        self.shard.run(move |shard| {
            let device = shard.local::<Known>().devices.borrow().get(number).cloned();
            match device {
                Some(device) => {
                    let work = work(shard.clone(), device);
                    shard.spawn(async move {
                        let _ = send.send(work.await);
                    });
                }
                None => {
                    let _ = send.send(Err(IoError::new(IoErrorKind::Gone)));
                }
            }
        });
        receive
    }
}

impl Drop for DeviceRegion {
    fn drop(&mut self) {
        let number = self.number;
        self.shard.run(move |shard| {
            let known = shard.local::<Known>();
            let device = known.devices.borrow_mut().try_remove(number);
            drop(device);
        });
    }
}

impl Region for DeviceRegion {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.places.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if !self.holds(offset, buf.len()) {
            return Err(IoError::new(IoErrorKind::Invalid));
        }
        let pieces = self.places.cut(offset, buf.len());
        let read = self.there(move |shard, device| read_all(shard, device, pieces));
        buf.copy_from_slice(&read.recv().unwrap_or(Err(IoError::new(IoErrorKind::Gone)))?);
        Ok(())
    }

    fn write(&mut self, writes: &Arc<Vec<Write>>) -> Underway {
        if !self.holds_all(writes) {
            return Underway::Ended(Err(IoError::new(IoErrorKind::Invalid)));
        }
        let (places, writes) = (self.places.clone(), Arc::clone(writes));
        Underway::Sent(self.there(move |shard, device| write_all(shard, device, places, writes)))
    }

    fn sync(&mut self) -> Underway {
        Underway::Sent(self.there(flush))
    }

    // One round trip to the shard rather than two, because a commit consists of little else.
    fn write_durably(&mut self, writes: &Arc<Vec<Write>>) -> Underway {
        if !self.holds_all(writes) {
            return Underway::Ended(Err(IoError::new(IoErrorKind::Invalid)));
        }
        let (places, writes) = (self.places.clone(), Arc::clone(writes));
        Underway::Sent(self.there(move |shard, device| async move {
            write_all(shard.clone(), Rc::clone(&device), places, writes).await?;
            flush(shard, device).await
        }))
    }
}

async fn flush(shard: Shard, device: Rc<dyn Device>) -> Result<(), IoError> {
    IoSets::new(&shard).one(&*device, Request::flush()).await.result
}

async fn read_all(
    shard: Shard,
    device: Rc<dyn Device>,
    pieces: Vec<(u64, usize)>,
) -> Result<Vec<u8>, IoError> {
    let sets = IoSets::new(&shard);
    let mut bytes = Vec::with_capacity(pieces.iter().map(|(_, len)| len).sum());
    for (start, len) in pieces {
        for at in (0..len).step_by(REQUEST_MAX) {
            let piece = (len - at).min(REQUEST_MAX);
            let request = Request::read(start + at as u64, shard.pool().get(piece));
            let outcome = sets.one(&*device, request).await;
            outcome.result?;
            match outcome.op {
                Op::Read(bufs) => bufs.iter().for_each(|buf| bytes.extend_from_slice(buf)),
                _ => return Err(IoError::new(IoErrorKind::Gone)),
            }
        }
    }
    Ok(bytes)
}

async fn write_all(
    shard: Shard,
    device: Rc<dyn Device>,
    places: Places,
    writes: Arc<Vec<Write>>,
) -> Result<(), IoError> {
    let sets = IoSets::new(&shard);
    let mut pieces: Vec<(u64, &[u8])> = Vec::new();
    for write in writes.iter() {
        let mut data = &write.data[..];
        for (start, len) in places.cut(write.offset, data.len()) {
            let (here, behind) = data.split_at(len);
            let parts = here.chunks(REQUEST_MAX).enumerate();
            pieces.extend(parts.map(|(n, data)| (start + (n * REQUEST_MAX) as u64, data)));
            data = behind;
        }
    }
    for together in pieces.chunks(TOGETHER_MAX) {
        let mut set = sets.start();
        for (offset, data) in together {
            let buf = shard.pool().copy_of(data).freeze();
            set.submit(0, &*device, Request::write(*offset, buf, false));
        }
        for (_, outcome) in set.finish().await {
            outcome.result?;
        }
    }
    Ok(())
}

/// A region in memory: for tests, and for volumes that need not outlive the process.
pub struct RamRegion {
    name: String,
    bytes: Vec<u8>,
}

impl RamRegion {
    /// `size` zero bytes, rounded down to whole blocks.
    pub fn new(name: impl Into<String>, size: usize) -> RamRegion {
        RamRegion { name: name.into(), bytes: vec![0; size / BLOCK * BLOCK] }
    }

    fn range(&self, offset: u64, len: usize) -> Result<std::ops::Range<usize>, IoError> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.bytes.len() => Ok(start..end),
            _ => Err(IoError::new(IoErrorKind::Invalid)),
        }
    }
}

impl Region for RamRegion {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let range = self.range(offset, buf.len())?;
        buf.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, writes: &Arc<Vec<Write>>) -> Underway {
        Underway::Ended(writes.iter().try_for_each(|write| {
            let range = self.range(write.offset, write.data.len())?;
            self.bytes[range].copy_from_slice(&write.data);
            Ok(())
        }))
    }

    fn sync(&mut self) -> Underway {
        Underway::Ended(Ok(()))
    }
}
