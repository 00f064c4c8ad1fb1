//! A mirror of one or two regions: writes go to both, reads come from the first that succeeds.
//!
//! A half that fails while the other does not is dropped: it is not used any more, and its owner is notified. The
//! caller knows which of two halves is current after a stop, and passes that one first.
//!
//! Invariant: when a write or a sync has succeeded, all halves that are still held have it.

use crate::region::{Region, Underway, Write};
use braid_device::{IoError, IoErrorKind};
use std::sync::Arc;

/// A half that was dropped, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// 0 for the half that was given first, 1 for the second.
    pub half: usize,
    /// Its name in messages.
    pub name: String,
    /// Its error.
    pub why: String,
}

/// See the module's documentation.
pub(crate) struct Mirror {
    halves: [Option<Box<dyn Region>>; 2],
    /// A region that is becoming a half: it is written but not read.
    joining: Option<Box<dyn Region>>,
    /// The error of a region that was becoming a half.
    join_error: Option<IoError>,
    /// Dropped halves that were not reported yet.
    dropped: Vec<Dropped>,
}

impl Mirror {
    /// Of one or two regions; no more than the first two are used. The current one stands first.
    pub(crate) fn new(regions: Vec<Box<dyn Region>>) -> Mirror {
        let mut regions = regions.into_iter();
        Mirror {
            halves: [regions.next(), regions.next()],
            joining: None,
            join_error: None,
            dropped: Vec::new(),
        }
    }

    /// Bytes that every half has; 0 when there is none.
    pub(crate) fn size(&self) -> u64 {
        self.held().map(|half| self.size_of(half)).min().unwrap_or(0)
    }

    /// Bytes of one half; 0 when it is not held.
    pub(crate) fn size_of(&self, half: usize) -> u64 {
        self.halves.get(half).and_then(Option::as_ref).map_or(0, |region| region.size())
    }

    /// The numbers of the halves that are held, the one that is read first.
    pub(crate) fn held(&self) -> impl Iterator<Item = usize> + use<> {
        let held = [self.halves[0].is_some(), self.halves[1].is_some()];
        (0..2).filter(move |half| held[*half])
    }

    /// The name of a half in messages.
    pub(crate) fn name(&self, half: usize) -> &str {
        self.halves.get(half).and_then(Option::as_ref).map_or("no region", |region| region.name())
    }

    /// The halves that were dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    /// Drops a half, unless it is the last.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when nothing would be left.
    pub(crate) fn drop_half(&mut self, half: usize, why: &str) -> Result<(), IoError> {
        if !self.held().any(|other| other != half) {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        if let Some(region) = self.halves.get_mut(half).and_then(Option::take) {
            let name = region.name().to_string();
            tracing::warn!(region = %name, why, "a copy of the metadata is not used any more");
            self.dropped.push(Dropped { half, name, why: why.to_string() });
        }
        Ok(())
    }

    /// Replaces a half by `region`, which must have the same content.
    pub(crate) fn replace(&mut self, half: usize, region: Box<dyn Region>) {
        if let Some(held) = self.halves.get_mut(half).and_then(Option::as_mut) {
            *held = region;
        }
    }

    /// Starts writing to `region` as well, so that it can become a half.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when there are two halves or another joins.
    pub(crate) fn join(&mut self, region: Box<dyn Region>) -> Result<(), IoError> {
        if self.joining.is_some() || self.held().count() == 2 {
            return Err(IoError::new(IoErrorKind::Refused));
        }
        self.join_error = None;
        self.joining = Some(region);
        Ok(())
    }

    /// Writes to the region that joins.
    ///
    /// # Errors
    /// Its own, also one that it gave before.
    pub(crate) fn write_joining(&mut self, writes: &Arc<Vec<Write>>) -> Result<(), IoError> {
        self.on_joining(|region| region.write(writes).wait());
        self.joined()
    }

    /// Makes the joining region a half and returns its number. It must have the same content as the others.
    ///
    /// # Errors
    /// Its own, also one that it gave before.
    pub(crate) fn finish_joining(&mut self) -> Result<usize, IoError> {
        self.on_joining(|region| region.sync().wait());
        self.joined()?;
        let free = self.halves.iter().position(Option::is_none);
        let half = free.ok_or(IoError::new(IoErrorKind::Refused))?;
        self.halves[half] = self.joining.take();
        Ok(half)
    }

    /// Drops the joining region.
    pub(crate) fn stop_joining(&mut self) {
        self.joining = None;
    }

    fn joined(&self) -> Result<(), IoError> {
        match (&self.joining, self.join_error) {
            (Some(_), _) => Ok(()),
            (None, error) => Err(error.unwrap_or(IoError::new(IoErrorKind::Gone))),
        }
    }

    fn on_joining(&mut self, act: impl FnOnce(&mut Box<dyn Region>) -> Result<(), IoError>) {
        if let Some(region) = &mut self.joining
            && let Err(error) = act(region)
        {
            self.joining = None;
            self.join_error = Some(error);
        }
    }

    /// Reads from one half, regardless of the other.
    ///
    /// # Errors
    /// The half's; [`IoErrorKind::Gone`] when it is not held.
    pub(crate) fn read_half(
        &mut self,
        half: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), IoError> {
        match self.halves.get_mut(half).and_then(Option::as_mut) {
            Some(region) => region.read_at(offset, buf),
            None => Err(IoError::new(IoErrorKind::Gone)),
        }
    }

    /// Reads from the first half that succeeds and returns its number. Those before it are dropped.
    ///
    /// # Errors
    /// The last half's.
    pub(crate) fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, IoError> {
        let mut failed: Vec<(usize, IoError)> = Vec::new();
        for half in self.held() {
            match self.read_half(half, offset, buf) {
                Ok(()) => {
                    for (other, error) in failed {
                        self.drop_half(other, &format!("reading failed: {error}"))?;
                    }
                    return Ok(half);
                }
                Err(error) => failed.push((half, error)),
            }
        }
        Err(failed.pop().map_or(IoError::new(IoErrorKind::Gone), |(_, error)| error))
    }

    /// Writes to all halves. Those that fail are dropped, unless all do.
    ///
    /// # Errors
    /// When no half succeeded.
    pub(crate) fn write(&mut self, writes: &Arc<Vec<Write>>) -> Result<(), IoError> {
        self.on_joining(|region| region.write(writes).wait());
        self.on_all("writing", |region| region.write(writes))
    }

    /// Writes to one half only.
    ///
    /// # Errors
    /// The half's; [`IoErrorKind::Gone`] when it is not held.
    pub(crate) fn write_half(
        &mut self,
        half: usize,
        writes: &Arc<Vec<Write>>,
    ) -> Result<(), IoError> {
        match self.halves.get_mut(half).and_then(Option::as_mut) {
            Some(region) => region.write(writes).wait(),
            None => Err(IoError::new(IoErrorKind::Gone)),
        }
    }

    /// Makes all earlier writes durable on all halves. Those that fail are dropped, unless all do.
    ///
    /// # Errors
    /// When no half succeeded.
    pub(crate) fn sync(&mut self) -> Result<(), IoError> {
        self.on_joining(|region| region.sync().wait());
        self.on_all("flushing", |region| region.sync())
    }

    /// Writes and syncs: makes `writes` and all earlier writes durable on all halves. Those that fail are dropped, unless all do.
    /// One half may have all of it durable before another has taken any.
    ///
    /// # Errors
    /// When no half succeeded.
    pub(crate) fn write_durably(&mut self, writes: &Arc<Vec<Write>>) -> Result<(), IoError> {
        self.on_joining(|region| region.write_durably(writes).wait());
        self.on_all("writing", |region| region.write_durably(writes))
    }

    fn on_all(
        &mut self,
        doing: &str,
        mut act: impl FnMut(&mut Box<dyn Region>) -> Underway,
    ) -> Result<(), IoError> {
        let mut failed: Vec<(usize, IoError)> = Vec::new();
        let mut succeeded = 0;
        // Both are started before waiting for the first.
        let underway = self.halves.each_mut().map(|half| half.as_mut().map(&mut act));
        for (half, underway) in underway.into_iter().enumerate() {
            match underway.map(Underway::wait) {
                Some(Ok(())) => succeeded += 1,
                Some(Err(error)) => failed.push((half, error)),
                None => {}
            }
        }
        if succeeded == 0 {
            return Err(failed.pop().map_or(IoError::new(IoErrorKind::Gone), |(_, error)| error));
        }
        for (half, error) in failed {
            self.drop_half(half, &format!("{doing} failed: {error}"))?;
        }
        Ok(())
    }
}
