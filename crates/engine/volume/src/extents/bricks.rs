//! The bricks of a volume: their devices, what is written to them, and what becomes of one that fails.
//!
//! Invariant: a brick that has failed a flush, or is gone, is detached before the next commit. Nothing that it acknowledged
//! since its last flush can be trusted.

use super::brick::Brick;
use crate::stripes::Geometry;
use braid_device::{Device, IoError, IoSet, IoSets, Op, Request};
use braid_filesystem::Errno;
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::extent::Extent;
use braid_kv::{Answer, StoreError};
use braid_shard::version::Version;
use braid_shard::{BufMut, Shard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Nanoseconds between two looks whether a brick that has failed has ended its requests, and the number of looks.
const QUIET_EVERY: u64 = 100_000_000;
const QUIET_LOOKS: u32 = 100;

/// Notes, where the next mount looks before it uses its bricks, that the brick of this number is not used any more until
/// then. Answers when that is durable; on an error nothing may be made durable that relies on it.
pub type NoteLost = Rc<dyn Fn(u16) -> Answer<()>>;

/// Told of a brick, by its number, that may have lost writes which it had acknowledged.
pub type TellLost = Rc<dyn Fn(u16)>;

/// A brick, and the writes to it that had completed at some moment.
pub type Written = (Rc<Brick>, u64);

/// The bricks of a volume.
pub struct Bricks {
    shard: Shard,
    io: IoSets,
    geometry: Geometry,
    table: RefCell<BTreeMap<u16, Rc<Brick>>>,
    /// Failures after which acknowledged writes may not be durable.
    flush_failures: Cell<u64>,
    note_lost: NoteLost,
    /// Changes when a brick comes, goes or fails.
    pub version: Version,
    /// Told of each such failure at the moment of it.
    on_lost_writes: RefCell<Option<Rc<dyn Fn()>>>,
    /// Told of each brick that may have lost acknowledged writes, whether others have copies of them or not.
    on_lost_copies: RefCell<Option<TellLost>>,
}

impl Bricks {
    /// Those of a mount.
    pub fn new(
        shard: &Shard,
        geometry: Geometry,
        bricks: BTreeMap<u16, Rc<Brick>>,
        note_lost: NoteLost,
    ) -> Bricks {
        Bricks {
            shard: shard.clone(),
            io: IoSets::new(shard),
            geometry,
            table: RefCell::new(bricks),
            flush_failures: Cell::new(0),
            note_lost,
            version: Version::default(),
            on_lost_writes: RefCell::new(None),
            on_lost_copies: RefCell::new(None),
        }
    }

    /// From now on `told` is called whenever writes that were acknowledged may be lost.
    pub fn tell_lost_writes(&self, told: Rc<dyn Fn()>) {
        *self.on_lost_writes.borrow_mut() = Some(told);
    }

    /// From now on `told` is called with each brick that may have lost writes which it had acknowledged.
    pub fn tell_lost_copies(&self, told: TellLost) {
        *self.on_lost_copies.borrow_mut() = Some(told);
    }

    /// All, by number.
    pub fn all(&self) -> Vec<Rc<Brick>> {
        self.table.borrow().values().cloned().collect()
    }

    /// The number of them.
    pub fn count(&self) -> usize {
        self.table.borrow().len()
    }

    /// One brick.
    pub fn get(&self, id: u16) -> Option<Rc<Brick>> {
        self.table.borrow().get(&id).cloned()
    }

    /// True when some brick is as `is` says.
    pub fn any(&self, is: impl Fn(&Brick) -> bool) -> bool {
        self.table.borrow().values().any(|brick| is(brick))
    }

    /// True when that brick exists and is as `is` says.
    pub fn is(&self, id: u16, is: impl Fn(&Brick) -> bool) -> bool {
        self.table.borrow().get(&id).is_some_and(|brick| is(brick))
    }

    /// True when that brick exists, is there and has not failed.
    pub fn is_there(&self, id: u16) -> bool {
        self.is(id, Brick::is_there)
    }

    pub(super) fn insert(&self, brick: Rc<Brick>) {
        self.version.changes();
        self.table.borrow_mut().insert(brick.id, brick);
    }

    pub(super) fn remove(&self, id: u16) {
        self.version.changes();
        self.table.borrow_mut().remove(&id);
    }

    /// Waits until nothing is on its way to a brick that has failed, but what belongs to changes of files. False: that takes
    /// longer than somebody waits for.
    pub(crate) async fn is_quiet(&self, brick: &Brick) -> bool {
        for _ in 0..QUIET_LOOKS {
            if brick.is_quiet() {
                return true;
            }
            self.shard.sleep(QUIET_EVERY).await;
        }
        brick.is_quiet()
    }

    /// A brick that had failed is there again. The caller has seen to it that no change of files is under way.
    pub(crate) fn put_back(&self, failed: &Brick, device: Rc<dyn Device>, data_offset: u64) {
        self.insert(Rc::new(failed.returned(&self.shard, device, data_offset)));
    }

    /// True if any brick is a rotating disk.
    pub fn has_heads(&self) -> bool {
        self.any(|brick| brick.device().is_some_and(|device| device.info().rotational))
    }

    /// Blocks in use and blocks in all, over the bricks that hold data.
    pub fn usage(&self) -> (u64, u64) {
        let table = self.table.borrow();
        let counted = table.values().filter(|brick| {
            matches!(brick.state(), BrickState::Data | BrickState::Proxy) && brick.is_there()
        });
        counted.fold((0, 0), |(used, all), brick| {
            (used + brick.space.used(), all + brick.space.blocks())
        })
    }

    /// Free blocks that files with so many copies can take: not those of a brick that has more room than all others together, where
    /// each copy is to be on another one.
    pub fn room_for(&self, copies: u8) -> u64 {
        let mut free: Vec<u64> = {
            let table = self.table.borrow();
            let counted = table.values().filter(|brick| brick.takes_data());
            counted.map(|brick| brick.space.blocks() - brick.space.used()).collect()
        };
        free.sort_unstable();
        room_apart(&free, copies.into())
    }

    /// For requests to several bricks that are awaited together.
    pub fn start(&self) -> IoSet {
        self.io.start()
    }

    /// The last write to `brick` is nowhere else.
    pub fn note_sole(&self, brick: &Brick) {
        brick.wrote_sole();
    }

    /// Submits a write to a brick and waits.
    ///
    /// # Errors
    /// [`Errno::Io`].
    pub async fn write(&self, brick: &Brick, request: Request) -> Result<(), Errno> {
        let result = self.submit_one(brick, request).await?;
        self.has_written(brick, result)
    }

    /// The same of what another brick has, too.
    ///
    /// # Errors
    /// [`Errno::Io`].
    pub async fn write_copy(&self, brick: &Brick, request: Request) -> Result<(), Errno> {
        let result = self.submit_one(brick, request).await?;
        self.has_written_copy(brick, result)
    }

    async fn submit_one(
        &self,
        brick: &Brick,
        request: Request,
    ) -> Result<Result<(), IoError>, Errno> {
        let Some(device) = brick.device() else { return Err(Errno::Io) };
        brick.note(&request);
        brick.begin_write();
        let result = self.io.one(&*device, request).await.result;
        brick.end_write();
        Ok(result)
    }

    /// Reads `memory.len()` bytes from byte `offset` of a brick's device, and waits.
    ///
    /// # Errors
    /// [`Errno::Io`].
    pub async fn read(&self, brick: &Brick, offset: u64, memory: BufMut) -> Result<BufMut, Errno> {
        let device = brick.device().ok_or(Errno::Io)?;
        let request = Request::read(offset, memory);
        brick.note(&request);
        let outcome = self.io.one(&*device, request).await;
        self.has_read(brick, outcome.result)?;
        let Op::Read(mut bufs) = outcome.op else { return Err(Errno::Io) };
        bufs.pop().ok_or(Errno::Io)
    }

    /// A write to `brick` has come back.
    ///
    /// # Errors
    /// [`Errno::Io`] when it failed.
    pub fn has_written(&self, brick: &Brick, result: Result<(), IoError>) -> Result<(), Errno> {
        self.has_written_copy(brick, result)?;
        brick.wrote_sole();
        Ok(())
    }

    /// A write to `brick` has come back of what another brick has, too, or is to have.
    ///
    /// # Errors
    /// [`Errno::Io`] when it failed.
    pub fn has_written_copy(
        &self,
        brick: &Brick,
        result: Result<(), IoError>,
    ) -> Result<(), Errno> {
        match result {
            Ok(()) => {
                brick.wrote();
                Ok(())
            }
            Err(error) => {
                self.note_failure(brick, error, error.means_gone());
                Err(Errno::Io)
            }
        }
    }

    /// A read of `brick` has come back. What one gives that was detached meanwhile may be what it held before the writes
    /// that it has lost.
    ///
    /// # Errors
    /// [`Errno::Io`] when it failed, or the brick was detached.
    pub fn has_read(&self, brick: &Brick, result: Result<(), IoError>) -> Result<(), Errno> {
        if let Err(error) = result {
            self.note_failure(brick, error, error.means_gone());
            return Err(Errno::Io);
        }
        if brick.is_there() { Ok(()) } else { Err(Errno::Io) }
    }

    /// Copies what is written of an extent to the blocks from `start` on of `to`. `is_copy`: another brick has it, too.
    ///
    /// # Errors
    /// [`Errno::Io`] when either brick failed.
    pub async fn copy(
        &self,
        extent: Extent,
        to: &Brick,
        start: u64,
        is_copy: bool,
    ) -> Result<(), Errno> {
        // Space that was reserved and not written may be on a brick that is gone: nothing of it is lost.
        if extent.written == 0 {
            return Ok(());
        }
        let from = self.get(extent.brick).ok_or(Errno::Io)?;
        let source = from.device().ok_or(Errno::Io)?;
        let target = to.device().ok_or(Errno::Io)?;
        let end = u64::from(extent.blocks) * BLOCK;
        let mut reads = self.io.start();
        let mut starts = Vec::new();
        for (run, is_written) in self.geometry.runs(extent, 0, end) {
            if is_written {
                let buf = self.shard.pool().get((run.end - run.start) as usize);
                let request = Request::read(from.byte_of(extent.start) + run.start, buf);
                from.note(&request);
                reads.submit(starts.len() as u32, &*source, request);
                starts.push(run.start);
            }
        }
        let mut writes = self.io.start();
        for (tag, outcome) in reads.finish().await {
            if let Err(errno) = self.has_read(&from, outcome.result) {
                // The writes that are under way end by themselves; nobody names what they write.
                let _ = writes.finish().await;
                return Err(errno);
            }
            if let Op::Read(bufs) = outcome.op {
                let bufs = bufs.into_iter().map(|buf| buf.freeze()).collect();
                let offset = to.byte_of(start) + starts[tag as usize];
                let request = Request { offset, op: Op::Write { bufs, fua: false } };
                to.note(&request);
                writes.submit(tag, &*target, request);
            }
        }
        for (_, outcome) in writes.finish().await {
            self.has_written_copy(to, outcome.result)?;
        }
        if !is_copy {
            self.note_sole(to);
        }
        Ok(())
    }

    /// The number of failures so far after which acknowledged writes may not be durable.
    pub fn flush_failures(&self) -> u64 {
        self.flush_failures.get()
    }

    /// The bricks that have been written to since they were flushed, with the writes that had completed.
    pub fn unflushed(&self) -> Vec<Written> {
        let table = self.table.borrow();
        table.values().filter_map(|brick| Some((Rc::clone(brick), brick.unflushed()?))).collect()
    }

    /// Flushes those bricks of `written` on which that many writes are not durable yet.
    pub async fn flush(&self, written: &[Written]) {
        let mut flushes = self.io.start();
        let mut waiting = Vec::new();
        for (brick, needed) in written {
            let unflushed = brick.unflushed().filter(|_| !brick.has_flushed(*needed));
            let (Some(device), Some(written)) = (brick.device(), unflushed) else { continue };
            if !device.info().volatile_cache {
                brick.flushed(written);
                continue;
            }
            flushes.submit(waiting.len() as u32, &*device, Request::flush());
            waiting.push((brick, written));
        }
        // One by one: what a brick gives whose flush has failed may be old already.
        while let Some((tag, outcome)) = flushes.next().await {
            let (brick, written) = &waiting[tag as usize];
            match outcome.result {
                // After one that failed, a flush that succeeds says nothing.
                Ok(()) if brick.is_there() => brick.flushed(*written),
                Ok(()) => {}
                // Nothing that the brick acknowledged since its last flush can be trusted: detach it before the next
                // commit names it.
                Err(error) => {
                    // One that is gone has nothing that it gives.
                    if !error.means_gone() {
                        brick.note_failed_flush();
                    }
                    self.note_failure(brick, error, true);
                }
            }
        }
    }

    /// The next commit may name data that a brick had not made durable when it failed: should the brick be back at the
    /// next mount, it must not be used as if it had all of it. Requests to the store made here wait for the commit.
    ///
    /// # Errors
    /// When that could not be noted: then nothing may be committed.
    pub async fn note_failed(&self) -> Result<(), StoreError> {
        for brick in self.all().iter().filter(|brick| brick.failed_unnoted()) {
            (self.note_lost)(brick.id).await?;
            brick.failure_noted();
        }
        Ok(())
    }

    fn note_failure(&self, brick: &Brick, error: IoError, gone: bool) {
        let name = brick.name();
        if gone {
            self.version.changes();
        }
        // The data that it had taken is not durable, and no flush will make it so.
        let loses = gone && brick.is_there() && brick.unflushed().is_some();
        if loses && brick.has_sole() {
            self.flush_failures.set(self.flush_failures.get() + 1);
            let told = self.on_lost_writes.borrow().clone();
            if let Some(told) = told {
                told();
            }
        }
        if loses {
            for other in self.all().iter().filter(|other| other.id != brick.id) {
                other.is_sole_now();
            }
            let told = self.on_lost_copies.borrow().clone();
            if let Some(told) = told {
                told(brick.id);
            }
        }
        brick.failed(error, gone);
        if gone {
            tracing::error!(
                brick = %name,
                "{error}: the brick is detached; what lies on it cannot be read until it is taken back (braid volume take-back, or the next mount)"
            );
        } else {
            tracing::warn!(brick = %name, "{error}");
        }
    }
}

/// The blocks that copies on different bricks can take, of bricks with so many free ones, ascending.
fn room_apart(free: &[u64], copies: usize) -> u64 {
    let copies = copies.clamp(1, free.len().max(1));
    // Each of the emptiest bricks can have one copy of all; what the others have left is for the other copies.
    let of = |emptiest: usize| {
        let rest = free.get(..free.len().saturating_sub(emptiest)).unwrap_or_default();
        rest.iter().sum::<u64>() / (copies - emptiest) as u64
    };
    (0..copies).map(of).min().unwrap_or(0) * copies as u64
}

#[cfg(test)]
mod tests {
    use super::room_apart;

    #[test]
    fn copies_have_the_room_that_is_on_different_bricks() {
        assert_eq!(room_apart(&[], 2), 0);
        assert_eq!(room_apart(&[5, 7], 1), 12);
        assert_eq!(room_apart(&[6, 6], 2), 12);
        assert_eq!(room_apart(&[0, 1000], 2), 0);
        assert_eq!(room_apart(&[100, 1000], 2), 200);
        assert_eq!(room_apart(&[100, 300, 1000], 2), 800);
        assert_eq!(room_apart(&[10, 10, 10], 2), 30);
        assert_eq!(room_apart(&[5, 10, 100, 100], 3), 45);
        assert_eq!(room_apart(&[50], 3), 50, "one brick alone has one copy");
    }
}
