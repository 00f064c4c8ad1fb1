//! Another region becomes a leg of a mirror that is in use.

use super::Mirror;
use crate::error::{MirrorError, failed};
use crate::legs::LEGS_MAX;
use crate::region::{BLOCK, Region};
use braid_device::IoError;
use braid_shard::range_locks::WHOLE;
use std::rc::Rc;

/// Blocks that are copied at once.
const WINDOW: u64 = 256;

/// A region that is becoming a leg. When this is dropped before the end, it does not.
pub struct Joining {
    mirror: Rc<Mirror>,
    /// The block to go on with.
    next: u64,
    has_joined: bool,
}

impl Mirror {
    /// Writes to `region` as well from now on, so that it becomes a leg when everything has been
    /// [copied](Joining::step) to it. Its content is lost.
    ///
    /// # Errors
    /// When there are [`LEGS_MAX`] legs already, another joins, it is too small, or [none may](Mirror::stop_joins).
    pub fn join(self: &Rc<Self>, region: Region) -> Result<Joining, MirrorError> {
        if self.state.borrow().refuses_joins {
            return Err(MirrorError::Failed("the mirror is being stopped".to_string()));
        }
        let needed = self.state.borrow().layout.size();
        let (name, size) = (region.name().to_string(), region.size());
        if size < needed {
            return Err(MirrorError::Failed(format!(
                "the region on {name} has {size} bytes, and a copy takes {needed}"
            )));
        }
        self.legs.join(region).map_err(|_| {
            MirrorError::Failed(format!(
                "there are {LEGS_MAX} copies already, or another is being made"
            ))
        })?;
        Ok(Joining { mirror: Rc::clone(self), next: 0, has_joined: false })
    }

    /// Copies the window of blocks from `first` on. Gives the block to go on with, or `None` when the region has become a
    /// leg.
    async fn copy_window(&self, first: u64) -> Result<Option<u64>, MirrorError> {
        let told = |error: IoError| failed("writing another copy of", &error);
        let blocks = self.state.borrow().layout.blocks();
        if first >= blocks {
            // The table is that of all blocks.
            let _held = self.locks.exclusive(WHOLE).await;
            let _turn = self.turn.take(1).await;
            let tables = self.state.borrow().layout.tables();
            let mut pieces: Vec<_> = (0..tables).map(|number| self.table_piece(number)).collect();
            pieces.push(self.header_piece());
            self.legs.write_joining(&pieces).await.map_err(told)?;
            self.legs.finish_joining().await.map_err(told)?;
            return Ok(None);
        }
        let count = self.state.borrow().layout.in_a_row(first, WINDOW.min(blocks - first));
        let _held = self.locks.exclusive(first..first + count).await;
        if self.any_known(first, count) {
            let mut bytes = self.legs.buffer(count as usize * BLOCK);
            let offset = self.place(first);
            // As it is: of writes that a power cut ended, blocks may be left that agree with nothing.
            let read = self.legs.read(offset, &mut bytes).await;
            read.map_err(|error| failed("reading", &error))?;
            self.legs.write_joining(&[(offset, bytes.freeze())]).await.map_err(told)?;
        }
        Ok(Some(first + count))
    }
}

impl Joining {
    /// Copies some more. True while there is more to copy; with false the region has become a leg, as durable as the others.
    ///
    /// # Errors
    /// When the region that joins fails, or what is to be copied cannot be read. Either way it joins no more.
    pub async fn step(&mut self) -> Result<bool, MirrorError> {
        match self.mirror.copy_window(self.next).await? {
            Some(next) => self.next = next,
            None => self.has_joined = true,
        }
        Ok(!self.has_joined)
    }

    /// Copies everything; requests to the mirror are served meanwhile.
    ///
    /// # Errors
    /// As [`step`](Joining::step).
    pub async fn run(mut self) -> Result<(), MirrorError> {
        while self.step().await? {
            // Devices may complete at submit, and then nothing else would run.
            self.mirror.shard.next_turn().await;
        }
        Ok(())
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        if !self.has_joined {
            self.mirror.legs.stop_joining();
        }
    }
}
