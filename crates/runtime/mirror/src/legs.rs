//! Up to three regions with the same content: writes go to all, reads come from the first that succeeds.
//!
//! A leg that fails while another does not is detached: it is not used any more, and its owner is notified before the
//! request during which that happened completes. The owner knows which legs are current after a stop, and passes
//! only those, the one that is to be believed first.
//!
//! Invariant: when a write or a sync has succeeded, all legs that are still held have it.

use crate::region::Region;
use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Request};
use braid_shard::{Buf, BufMut, Shard};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

/// The most writes to a leg that are in flight at a time.
const TOGETHER_MAX: usize = 64;

/// The most legs of a mirror.
pub const LEGS_MAX: usize = 3;

/// The number under which the region that joins is written.
const JOINING: usize = LEGS_MAX;

/// A leg that was detached, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// Its number: 0 for the leg that was given first, 1 for the second, and so on.
    pub leg: usize,
    /// Its name in messages.
    pub name: String,
    /// Its error.
    pub why: String,
}

/// Is called for legs that are detached.
type Reporter = Rc<dyn Fn(&Detached)>;

/// All legs, and the region that joins.
type Targets = [Option<Rc<Region>>; LEGS_MAX + 1];

/// The result of each that was there.
type Results = [Option<Result<(), IoError>>; LEGS_MAX + 1];

/// Bytes to write: their offset in the region, and whole blocks.
pub(crate) type Piece = (u64, Buf);

/// See the module's documentation.
pub(crate) struct Legs {
    sets: IoSets,
    shard: Shard,
    held: RefCell<[Option<Rc<Region>>; LEGS_MAX]>,
    /// A region that is becoming a leg: it is written but not read.
    joining: RefCell<Option<Rc<Region>>>,
    /// The error of a region that was becoming a leg.
    join_error: Cell<Option<IoError>>,
    reporter: RefCell<Option<Reporter>>,
    /// Detached legs while there was no reporter.
    unreported: RefCell<Vec<Detached>>,
}

impl Legs {
    /// Of one to [`LEGS_MAX`] regions; no more are used. The one to be believed stands first.
    pub(crate) fn new(shard: &Shard, regions: Vec<Region>) -> Legs {
        let mut regions = regions.into_iter().map(Rc::new);
        Legs {
            sets: IoSets::new(shard),
            shard: shard.clone(),
            held: RefCell::new(std::array::from_fn(|_| regions.next())),
            joining: RefCell::default(),
            join_error: Cell::new(None),
            reporter: RefCell::default(),
            unreported: RefCell::default(),
        }
    }

    /// Bytes that every leg has; 0 when there is none.
    pub(crate) fn size(&self) -> u64 {
        self.held().map(|leg| self.size_of(leg)).min().unwrap_or(0)
    }

    /// Bytes of one leg; 0 when it is not held.
    pub(crate) fn size_of(&self, leg: usize) -> u64 {
        self.region(leg).map_or(0, |region| region.size())
    }

    /// The numbers of the legs that are held, the one that is read first.
    pub(crate) fn held(&self) -> impl Iterator<Item = usize> + use<> {
        let held = self.held.borrow().each_ref().map(Option::is_some);
        (0..LEGS_MAX).filter(move |leg| held[*leg])
    }

    /// True when the leg is held.
    pub(crate) fn holds(&self, leg: usize) -> bool {
        self.region(leg).is_some()
    }

    /// The name of a leg in messages.
    pub(crate) fn name(&self, leg: usize) -> String {
        self.region(leg).map_or("no region".to_string(), |region| region.name().to_string())
    }

    /// True when `is` holds for the device of a leg; asked of each until then.
    pub(crate) fn any(&self, is: impl Fn(&dyn Device) -> bool) -> bool {
        let held = self.held.borrow().clone();
        held.iter().flatten().any(|region| is(region.device()))
    }

    fn region(&self, leg: usize) -> Option<Rc<Region>> {
        self.held.borrow().get(leg)?.clone()
    }

    /// Calls `reporter` for each leg that is detached from now on, and for those that were before.
    pub(crate) fn on_detached(&self, reporter: Reporter) {
        for detached in self.take_detached() {
            reporter(&detached);
        }
        *self.reporter.borrow_mut() = Some(reporter);
    }

    /// The legs that were detached since the last call, without a reporter.
    pub(crate) fn take_detached(&self) -> Vec<Detached> {
        self.unreported.take()
    }

    /// Detaches a leg, unless it is the last.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when nothing would be left.
    pub(crate) fn detach(&self, leg: usize, why: &str) -> Result<(), IoError> {
        if !self.held().any(|other| other != leg) {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        let region = self.held.borrow_mut().get_mut(leg).and_then(Option::take);
        let Some(region) = region else { return Ok(()) };
        let name = region.name().to_string();
        tracing::warn!(region = %name, why, "a leg of a mirror is not used any more");
        let detached = Detached { leg, name, why: why.to_string() };
        let reporter = self.reporter.borrow().clone();
        match reporter {
            Some(reporter) => reporter(&detached),
            None => self.unreported.borrow_mut().push(detached),
        }
        Ok(())
    }

    /// Replaces a leg by `region`, which must have the same content.
    pub(crate) fn replace(&self, leg: usize, region: Region) {
        if let Some(held) = self.held.borrow_mut().get_mut(leg).and_then(Option::as_mut) {
            *held = Rc::new(region);
        }
    }

    /// Starts writing to `region` as well, so that it can become a leg.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when there are [`LEGS_MAX`] legs or another joins.
    pub(crate) fn join(&self, region: Region) -> Result<(), IoError> {
        if self.joining.borrow().is_some() || self.held().count() == LEGS_MAX {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        self.join_error.set(None);
        *self.joining.borrow_mut() = Some(Rc::new(region));
        Ok(())
    }

    /// Writes to the region that joins.
    ///
    /// # Errors
    /// Its own, also one that it gave before.
    pub(crate) async fn write_joining(&self, pieces: &[Piece]) -> Result<(), IoError> {
        let region = self.joined()?;
        let result = self.write_one(region, pieces, false).await;
        self.note_joining(Some(result));
        self.joined().map(drop)
    }

    /// Makes the joining region a leg. It must have the same content as the others.
    ///
    /// # Errors
    /// Its own, also one that it gave before.
    pub(crate) async fn finish_joining(&self) -> Result<(), IoError> {
        let region = self.joined()?;
        let result = self.write_one(region, &[], true).await;
        self.note_joining(Some(result));
        self.joined()?;
        let mut held = self.held.borrow_mut();
        let free = held.iter_mut().find(|leg| leg.is_none());
        *free.ok_or(IoError::new(IoErrorKind::Refused))? = self.joining.take();
        Ok(())
    }

    /// Drops the joining region.
    pub(crate) fn stop_joining(&self) {
        self.joining.take();
    }

    fn joined(&self) -> Result<Rc<Region>, IoError> {
        let gone = || self.join_error.get().unwrap_or(IoError::new(IoErrorKind::Gone));
        self.joining.borrow().clone().ok_or_else(gone)
    }

    fn note_joining(&self, result: Option<Result<(), IoError>>) {
        if let Some(Err(error)) = result {
            self.joining.take();
            self.join_error.set(Some(error));
        }
    }

    /// A buffer of `len` bytes.
    pub(crate) fn buffer(&self, len: usize) -> BufMut {
        self.shard.pool().get(len)
    }

    /// A copy of `bytes` to be written.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Buf {
        self.shard.pool().copy_of(bytes).freeze()
    }

    /// Fills `buf` from one leg, regardless of the others.
    ///
    /// # Errors
    /// The leg's; [`IoErrorKind::Gone`] when it is not held.
    pub(crate) async fn read_leg(
        &self,
        leg: usize,
        offset: u64,
        buf: &mut BufMut,
    ) -> Result<(), IoError> {
        let gone = IoError::new(IoErrorKind::Gone);
        let region = self.region(leg).ok_or(gone)?;
        let len = buf.len();
        let pieces = region.cut(offset, len)?;
        let mut parts: Vec<Option<BufMut>> = pieces.iter().map(|_| None).collect();
        let mut set = self.sets.start();
        let mut rest = buf.split_off(0);
        for (tag, (start, len)) in (0..).zip(pieces) {
            let after = rest.split_off(len);
            let piece = std::mem::replace(&mut rest, after);
            set.submit(tag, region.device(), Request::read(start, piece));
        }
        let mut result = Ok(());
        for (tag, outcome) in set.finish().await {
            result = result.and(outcome.result);
            if let (Op::Read(mut bufs), Some(part)) = (outcome.op, parts.get_mut(tag as usize)) {
                *part = bufs.pop();
            }
        }
        // A device that has failed may have kept some.
        let whole = parts.into_iter().all(|part| part.is_some_and(|part| buf.rejoin(part).is_ok()));
        if !whole {
            *buf = self.buffer(len);
            return result.and(Err(gone));
        }
        result
    }

    /// Fills `buf` from the first leg that succeeds and returns its number. Those before it are detached.
    ///
    /// # Errors
    /// The last leg's.
    pub(crate) async fn read(&self, offset: u64, buf: &mut BufMut) -> Result<usize, IoError> {
        let mut failed: Vec<(usize, IoError)> = Vec::new();
        for leg in self.held() {
            match self.read_leg(leg, offset, buf).await {
                Ok(()) => {
                    for (other, error) in failed {
                        self.detach(other, &format!("reading failed: {error}"))?;
                    }
                    return Ok(leg);
                }
                Err(error) => failed.push((leg, error)),
            }
        }
        Err(failed.pop().map_or(IoError::new(IoErrorKind::Gone), |(_, error)| error))
    }

    /// Writes to one leg only.
    ///
    /// # Errors
    /// The leg's; [`IoErrorKind::Gone`] when it is not held.
    pub(crate) async fn write_leg(&self, leg: usize, piece: Piece) -> Result<(), IoError> {
        let region = self.region(leg).ok_or(IoError::new(IoErrorKind::Gone))?;
        self.write_one(region, &[piece], false).await
    }

    /// Writes to all legs, in any order. Those that fail are detached, unless all do.
    ///
    /// # Errors
    /// When no leg succeeded.
    pub(crate) async fn write(&self, pieces: &[Piece]) -> Result<(), IoError> {
        self.write_all(pieces, false, "writing").await
    }

    /// Makes all earlier writes durable on all legs. Those that fail are detached, unless all do.
    ///
    /// # Errors
    /// When no leg succeeded.
    pub(crate) async fn sync(&self) -> Result<(), IoError> {
        self.write_all(&[], true, "flushing").await
    }

    /// Writes and syncs: makes `pieces` and all earlier writes durable on all legs. Those that fail are detached, unless all
    /// do. One leg may have all of it durable before another has taken any.
    ///
    /// # Errors
    /// When no leg succeeded.
    pub(crate) async fn write_durably(&self, pieces: &[Piece]) -> Result<(), IoError> {
        self.write_all(pieces, true, "writing").await
    }

    async fn write_all(&self, pieces: &[Piece], sync: bool, doing: &str) -> Result<(), IoError> {
        let targets: Targets = {
            let (held, joining) = (self.held.borrow(), self.joining.borrow());
            std::array::from_fn(|leg| held.get(leg).unwrap_or(&joining).clone())
        };
        let results = self.write_to(targets.clone(), pieces, sync).await;
        let joins = self.joining.borrow().clone();
        if let (Some(target), Some(joining)) = (&targets[JOINING], joins)
            && Rc::ptr_eq(target, &joining)
        {
            self.note_joining(results[JOINING]);
        }
        let mut failed: Vec<(usize, IoError)> = Vec::new();
        let mut succeeded = 0;
        for (leg, result) in results.into_iter().enumerate().take(JOINING) {
            // A leg that was detached meanwhile does not count, whatever it has taken.
            let is_held = match (&targets[leg], self.region(leg)) {
                (Some(target), Some(held)) => Rc::ptr_eq(target, &held),
                _ => false,
            };
            match result {
                Some(Ok(())) if is_held => succeeded += 1,
                Some(Err(error)) => failed.push((leg, error)),
                _ => {}
            }
        }
        if succeeded == 0 {
            return Err(failed.pop().map_or(IoError::new(IoErrorKind::Gone), |(_, error)| error));
        }
        for (leg, error) in failed {
            self.detach(leg, &format!("{doing} failed: {error}"))?;
        }
        Ok(())
    }

    /// Writes to each target, and then syncs it where it has taken all; none waits for another. Gives the result of each.
    async fn write_to(&self, targets: Targets, pieces: &[Piece], sync: bool) -> Results {
        let under_way = |target: Option<Rc<Region>>| {
            target.map(|region| Box::pin(self.write_one(region, pieces, sync)))
        };
        let mut under_way = targets.map(under_way);
        let mut results: Results = [None; LEGS_MAX + 1];
        poll_fn(|context| {
            let mut is_ready = true;
            for (write, result) in under_way.iter_mut().zip(&mut results) {
                let Some(future) = write else { continue };
                match future.as_mut().poll(context) {
                    Poll::Ready(ended) => {
                        *result = Some(ended);
                        *write = None;
                    }
                    Poll::Pending => is_ready = false,
                }
            }
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        results
    }

    async fn write_one(
        &self,
        region: Rc<Region>,
        pieces: &[Piece],
        sync: bool,
    ) -> Result<(), IoError> {
        for together in pieces.chunks(TOGETHER_MAX) {
            let mut set = self.sets.start();
            let mut result = Ok(());
            for (offset, data) in together {
                let cut = match region.cut(*offset, data.len()) {
                    Ok(cut) => cut,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                };
                let mut at = 0;
                for (start, len) in cut {
                    let part = data.slice(at..at + len);
                    set.submit_write(0, region.device(), start, part, false);
                    at += len;
                }
            }
            for (_, outcome) in set.finish().await {
                result = result.and(outcome.result);
            }
            result?;
        }
        if !sync {
            return Ok(());
        }
        self.sets.one(region.device(), Request::flush()).await.result
    }
}
