//! The sectors of a member that its metadata and its data occupy, so that nothing else is written there.

use super::fields::Superblock;
use super::role::Role;
use super::time::{pack_time, time_micros};
use super::version::Version;
use std::ops::Range;

/// The use of a range of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// The superblock, at its largest.
    Superblock,
    /// The write-intent bitmap, with the room it may grow into.
    Bitmap,
    /// The partial parity log.
    Ppl,
    /// The bad-block log.
    BadBlockLog,
    /// The component.
    Data,
    /// The component of the new geometry, during a reshape that moves it.
    NewData,
    /// The ring of a journal device.
    Journal,
}

/// A range of a member, in sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The use of the range.
    pub what: Use,
    /// Its sectors.
    pub sectors: Range<u64>,
}

/// Sectors of the largest superblock.
const SUPERBLOCK: u64 = 8;
/// Sectors of the 64 KiB that hold all metadata of 0.90.
const V0_UNIT: u64 = 128;

impl Superblock {
    /// All ranges that this member uses for its array, sorted by position. They are computed from the superblock alone, so they
    /// may overlap when it is damaged. A range that would begin before sector 0 is left out.
    ///
    /// Space outside all of them is free; only `create` and `zero` may write there.
    pub fn areas(&self) -> Vec<Area> {
        let mut areas = Vec::new();
        let mut add = |what, start: u64, len: u64| {
            if len != 0 {
                areas.push(Area { what, sectors: start..start.saturating_add(len) });
            }
        };
        add(Use::Superblock, self.super_offset, SUPERBLOCK);
        if let Some(bitmap) = self.bitmap_sector() {
            add(Use::Bitmap, bitmap, self.bitmap_room());
        }
        if let Some((start, len)) = self.ppl_sectors() {
            add(Use::Ppl, start, len);
        }
        if let Some(log) = self.bblog_sector() {
            add(Use::BadBlockLog, log, self.bblog_size.into());
        }
        let journal = self.own_role() == Role::Journal;
        let data = if journal { Use::Journal } else { Use::Data };
        add(data, self.data_offset, self.data_size);
        if let Some(new) = self.new_data_offset().filter(|new| *new != self.data_offset) {
            add(Use::NewData, new, self.data_size);
        }
        areas.sort_by_key(|area| area.sectors.start);
        areas
    }

    /// Sectors that the bitmap can have, up to the next range behind it; 0 without a bitmap, or when it overlaps other
    /// metadata. A bitmap that claims more is damaged.
    pub fn bitmap_room(&self) -> u64 {
        let Some(bitmap) = self.bitmap_sector() else { return 0 };
        let end_of_unit = self.super_offset.saturating_add(V0_UNIT);
        let mut end = match self.version {
            Version::V0_90 => end_of_unit,
            // Behind the data, before the superblock.
            Version::V1_0 if bitmap < self.super_offset => self.super_offset,
            Version::V1_0 => u64::MAX,
            Version::V1_1 | Version::V1_2 => self.data_offset,
        };
        if let Some(new) = self.new_data_offset().filter(|_| self.version.data_follows()) {
            end = end.min(new);
        }
        if let Some(log) = self.bblog_sector().filter(|log| *log >= bitmap) {
            end = end.min(log);
        }
        end.saturating_sub(bitmap)
    }

    /// First sector and sectors of the partial parity log, when there is one.
    pub fn ppl_sectors(&self) -> Option<(u64, u64)> {
        let ppl = self.ppl?;
        Some((self.super_offset.checked_add_signed(ppl.offset.into())?, ppl.size.into()))
    }

    /// The start of the component in the new geometry, during a reshape.
    pub fn new_data_offset(&self) -> Option<u64> {
        self.reshape?;
        self.data_offset.checked_add_signed(self.new_offset.into())
    }

    /// The reshape has ended: the data starts at the new offset, and the data that it moved away from is room for more.
    pub fn take_new_data_offset(&mut self) {
        if let Some(new) = self.new_data_offset() {
            let more = self.data_offset.wrapping_sub(new);
            // Smaller where the data has moved towards the end.
            self.data_size = self.data_size.wrapping_add(more);
            self.data_offset = new;
        }
        self.new_offset = 0;
        self.reshape = None;
    }

    /// True if `position` of the reshape cannot be trusted, since Linux may have run it. A reshape of RAID4,
    /// 5 or 6 that keeps the number of slots and moves the data hardly ever updates `position`
    /// while it goes on, so data on either side of it may be read in the wrong geometry, without an error; one of RAID10 was
    /// seen to leave a `position` behind which Linux itself read wrong data (6.1, offset copies, smaller chunks). Other
    /// reshapes record each step before they overwrite anything.
    ///
    /// Warn, and go on read-write only when the user insists. braid records each step, and says in each superblock of such a
    /// reshape that it wrote it, by the [update time](Superblock::set_update_time).
    pub fn reshape_position_is_doubtful(&self) -> bool {
        self.position_may_be_old() && time_micros(self.utime) == 0
    }

    fn position_may_be_old(&self) -> bool {
        self.reshape.is_some_and(|reshape| reshape.delta_disks == 0)
            && matches!(self.level, 4..=6 | 10)
            && self.new_offset != 0
    }

    /// Sets the time of the update to `now`, seconds since 1970. In a reshape of which Linux would not record the position
    /// it has microseconds, which Linux always leaves at 0 (`md.c`: super_1_sync takes whole seconds): so whoever reads the
    /// superblock knows that nobody but braid has gone on with the reshape since.
    pub fn set_update_time(&mut self, now: u64) {
        self.utime = if self.position_may_be_old() { pack_time(now, 1) } else { now };
    }
}
