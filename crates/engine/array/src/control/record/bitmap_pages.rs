//! The bitmap's pages as they are written to the members: some of them, the header with each update of the superblocks,
//! and the whole.

use crate::control::record::Record;
use crate::control::record::running_bitmap::Bitmap;
use crate::metadata::bitmap::keeper::PAGE;
use crate::state::view::MemberNr;
use braid_device::{Device, IoError, Request};
use braid_format::SECTOR;
use braid_shard::{Buf, Shard};
use std::rc::Rc;

/// Some page for a device with blocks of `block` bytes.
pub(crate) fn page_buf(shard: &Shard, bytes: &[u8], block: u32) -> Buf {
    let len = bytes.len().next_multiple_of(block.max(SECTOR as u32) as usize);
    let mut buf = shard.pool().zeroed(len);
    // `len` is at least the length of `bytes`.
    if let Some(head) = buf.get_mut(..bytes.len()) {
        head.copy_from_slice(bytes);
    }
    buf.freeze()
}

impl Record {
    /// The bitmap as it is now.
    pub(crate) fn bitmap(&self) -> Option<Rc<Bitmap>> {
        self.current_bitmap.get()
    }

    /// The array may be written, and what is recorded of it still changes.
    pub(crate) fn may_record(&self) -> bool {
        !self.read_only && !self.end.is_over() && !self.roster.borrow().broken
    }

    /// Writes pages, durably, to every member that holds a slot. The caller holds the pen. Gives the
    /// members that did not take them.
    pub(crate) async fn write_pages(
        &self,
        bitmap: &Bitmap,
        pages: &[usize],
    ) -> Vec<(MemberNr, IoError)> {
        let mut set = self.engine.sets.start();
        {
            let (roster, keeper) = (self.roster.borrow(), bitmap.keeper.borrow());
            let holders = roster.members.iter().filter(|member| member.holds_data());
            let contents: Vec<Vec<u8>> = pages.iter().map(|page| keeper.page(*page)).collect();
            for member in holders {
                let Some(at) = bitmap.place(&member.superblock) else { continue };
                let block = member.device.info().logical_block;
                for (page, bytes) in pages.iter().zip(&contents) {
                    let buf = page_buf(&self.shard, bytes, block);
                    let request = Request::write(at + (page * PAGE) as u64, buf, true);
                    set.submit(member.nr, &*member.device, request);
                }
            }
        }
        let mut failures: Vec<(MemberNr, IoError)> = Vec::new();
        for (nr, outcome) in set.finish().await {
            if let Err(error) = outcome.result
                && failures.iter().all(|(known, _)| *known != nr)
            {
                failures.push((nr, error));
            }
        }
        failures
    }

    /// Writes the header for an update of the superblocks, whose event count the roster has already.
    pub(crate) async fn write_bitmap_header(&self) -> Vec<(MemberNr, IoError)> {
        let Some(bitmap) = self.bitmap() else { return Vec::new() };
        let _pen = bitmap.pen.take(1).await;
        let events = self.roster.borrow().shared.events;
        bitmap.keeper.borrow_mut().superblock.events = events;
        self.write_pages(&bitmap, &[0]).await
    }

    /// Writes the whole bitmap to all members that hold a slot, the header last: until then it counts
    /// as what it was.
    pub(crate) async fn write_whole_bitmap(&self, bitmap: &Bitmap) -> Vec<(MemberNr, IoError)> {
        let _pen = bitmap.pen.take(1).await;
        let pages: Vec<usize> = (1..bitmap.keeper.borrow().pages()).collect();
        let mut failures = self.write_pages(bitmap, &pages).await;
        failures.extend(self.write_pages(bitmap, &[0]).await);
        failures
    }
}
