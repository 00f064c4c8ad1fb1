//! The record that is kept of an array's writes: control decides on it, and every engine makes its policy of it.

use crate::consistency::Policy;
use crate::consistency::journal::{Journal, JournalShape};
use crate::consistency::ppl::Log;
use crate::engine::home::{Home, News};
use crate::metadata::bitmap::{BitmapNr, Shape};
use braid_shard::Shard;

/// The policy of an array with redundancy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recorded {
    /// "Active" in the superblocks.
    Resync,
    /// This bitmap.
    Bitmap(BitmapNr, Shape),
    /// A partial parity log whose smallest area has room for so many bytes of it at once.
    Ppl(u64),
    /// A write journal.
    Journal(JournalShape),
}

impl Recorded {
    /// The part of it that `shard` has.
    pub(super) fn policy(self, shard: &Shard, home: &Home) -> Policy {
        match self {
            Recorded::Resync => Policy::of(shard, None),
            Recorded::Bitmap(nr, shape) => Policy::of(shard, Some((nr, shape))),
            Recorded::Ppl(partial_max) => {
                let (home, own) = (home.clone(), shard.id());
                let ended = move |slot, nr| home.tell(News::LogEnded { slot, shard: own, nr });
                Policy::Ppl(Log::new(shard, partial_max, Box::new(ended)))
            }
            Recorded::Journal(shape) => {
                let (home, own) = (home.clone(), shard.id());
                let ended = move |nr| home.tell(News::JournalEnded { shard: own, nr });
                Policy::Journal(Journal::new(shard, shape, Box::new(ended)))
            }
        }
    }
}
