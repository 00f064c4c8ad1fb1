//! What the logs of an array that was not stopped cleanly ask for, and doing it, before the array is served.
//!
//! ```text
//!  areas ─► newest unit of each ─► per entry: XOR of the data that was being written and of the partial parity
//!        ─► parity of those rows ─► flush of all members ─► (by control) superblocks that say "clean", empty areas
//! ```
//!
//! Until the superblocks say so it is done again from the start, to the same end: the logs stay as they are.
//!
//! A range of rows that cannot be done as a whole is done block by block, so that one bad block takes no others with it. A row of which a data block that was being written cannot be read is left alone, as by md: that block, and no other,
//! may come back wrong. A row whose parity is not taken is given back: what that member has there is not to be believed.

use crate::metadata::holder::Holder;
use crate::metadata::ppl::area::Area;
use crate::metadata::superblock::{read, write};
use crate::state::extent::pieces;
use braid_device::{IoError, IoErrorKind, IoSets, Request};
use braid_format::SECTOR;
use braid_format::ppl::{self, Mismatch, Recovered, Replay};
use braid_layout::{Parity, Slot};
use braid_shard::plant::planted;
use braid_shard::{BufMut, Shard};
use std::ops::Range;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The logs of an array, as read.
pub(crate) struct Logs {
    sources: Vec<Holder>,
    /// By source.
    areas: Vec<Result<BufMut, String>>,
}

/// What the logs say.
pub(crate) struct Judged<'a> {
    recovered: Vec<Recovered<'a>>,
    /// Redundancy holds everywhere once the logs are replayed.
    pub(crate) clean: bool,
    /// A sentence on each log or entry that cannot be replayed.
    pub(crate) complaints: Vec<String>,
}

/// The reason why a replay stopped.
pub(crate) struct Stopped {
    /// The action that failed.
    pub(crate) doing: &'static str,
    /// The member.
    pub(crate) name: String,
    pub(crate) error: IoError,
}

/// Component bytes of a slot whose parity was not taken.
pub(crate) type Refused = (Slot, Range<u64>);

enum Rows {
    Made,
    /// A member does not give what their parity is made of.
    LeftAlone,
    /// The member of their parity does not take it.
    Refused(IoError),
}

impl Judged<'_> {
    /// No log says anything.
    pub(crate) fn nothing() -> Self {
        Judged { recovered: Vec::new(), clean: false, complaints: Vec::new() }
    }
}

impl Logs {
    /// Reads the areas of all members that hold a slot.
    pub(crate) async fn read(shard: &Shard, sources: Vec<Holder>) -> Logs {
        let mut areas = Vec::with_capacity(sources.len());
        for source in &sources {
            areas.push(match Area::of(&source.superblock) {
                None => Err("it has no room for one".to_string()),
                Some(area) => read(shard, &source.device, area.at, area.len() as usize)
                    .await
                    .map_err(|error| format!("it could not be read: {error}")),
            });
        }
        Logs { sources, areas }
    }

    /// What they ask for. `size`: sectors of each component that the array uses.
    pub(crate) fn judge(&self, parity: &Parity, set_uuid: &[u8; 16], size: u64) -> Judged<'_> {
        let shape = ppl::Shape {
            // Superblocks keep both in 32 bits.
            chunk_sectors: (parity.chunk_size() / SECTOR_BYTES) as u32,
            raid_disks: parity.slots() as u32,
            size,
        };
        let mut judged = Judged { recovered: Vec::new(), clean: true, complaints: Vec::new() };
        for (source, area) in self.sources.iter().zip(&self.areas) {
            let log = match area {
                Ok(area) => {
                    let holder = |stripe| parity.p_slot(stripe) as u32;
                    ppl::recover(area, set_uuid, &shape, source.slot as u32, holder)
                }
                Err(why) => {
                    judged.clean = false;
                    let complaint = format!("the partial parity log of {}: {why}", source.name);
                    judged.complaints.push(complaint);
                    Recovered::default()
                }
            };
            for mismatch in &log.mismatches {
                judged.complaints.push(format!("{}: {mismatch}", source.name));
                // The rows of a damaged entry are known, and seen to one by one.
                judged.clean &= matches!(mismatch, Mismatch::Checksum { .. });
            }
            judged.recovered.push(log);
        }
        judged.clean &= judged.recovered.iter().any(|log| log.generation > 0);
        judged
    }

    /// Carries out what the logs ask for and makes all members durable. Gives the places whose parity was not taken and that
    /// are not recorded as bad yet.
    ///
    /// # Errors
    /// A member that is gone, or cannot be flushed.
    pub(crate) async fn replay(
        &self,
        shard: &Shard,
        parity: &Parity,
        judged: &Judged<'_>,
    ) -> Result<Vec<Refused>, Stopped> {
        let (mut rows, mut left, mut refused) = (0, 0, Vec::new());
        for log in &judged.recovered {
            let skipped = usize::from(planted("replay-skips-one"));
            for replay in log.replays.iter().skip(skipped).chain(&log.in_doubt) {
                let mut due = self.pieces(parity, replay);
                while let Some(bytes) = due.pop() {
                    match self.replay_rows(shard, parity, replay, &bytes).await? {
                        Rows::Made => rows += 1,
                        _ if bytes.end - bytes.start > self.block() => {
                            due.extend(pieces(&bytes, self.block()));
                        }
                        Rows::LeftAlone => left += 1,
                        Rows::Refused(error) => {
                            left += 1;
                            refused.extend(self.refused(replay, bytes, &error));
                        }
                    }
                }
            }
        }
        tracing::info!("partial parity log: parity of {rows} ranges made anew, {left} left alone");
        let sets = IoSets::new(shard);
        for source in &self.sources {
            match sets.one(&*source.device, Request::flush()).await.result {
                Err(error) if error.kind != IoErrorKind::Unsupported => {
                    let (doing, name) = ("flushing", source.name.clone());
                    return Err(Stopped { doing, name, error });
                }
                _ => {}
            }
        }
        Ok(refused)
    }

    /// Bytes that every member reads and writes alone.
    fn block(&self) -> u64 {
        let block = self.sources.iter().map(|source| source.device.info().logical_block).max();
        block.unwrap_or(512).max(512).into()
    }

    fn refused(&self, replay: &Replay<'_>, rows: Range<u64>, error: &IoError) -> Option<Refused> {
        let slot = replay.parity_slot as Slot;
        let holder = self.holder(slot).filter(|holder| !holder.is_bad(&rows))?;
        tracing::warn!(
            "partial parity log: {} does not take its parity at component byte {}: {error}",
            holder.name,
            rows.start
        );
        Some((slot, rows))
    }

    fn holder(&self, slot: Slot) -> Option<&Holder> {
        self.sources.iter().find(|source| source.slot == slot)
    }

    fn data_slots(parity: &Parity, replay: &Replay<'_>) -> impl Iterator<Item = Slot> {
        let map = parity.map_stripe(replay.stripe);
        replay.data.clone().map(move |k| map.data_slot(k as usize))
    }

    /// The rows of a replay, in component bytes: all at once, or block by block where a member has some of them only.
    fn pieces(&self, parity: &Parity, replay: &Replay<'_>) -> Vec<Range<u64>> {
        let rows = replay.rows.start * SECTOR_BYTES..replay.rows.end * SECTOR_BYTES;
        let whole = Self::data_slots(parity, replay)
            .all(|slot| self.holder(slot).is_some_and(|source| source.holds(&rows)));
        pieces(&rows, if whole { u64::MAX } else { self.block() })
    }

    /// Makes the parity of these component bytes anew.
    async fn replay_rows(
        &self,
        shard: &Shard,
        parity: &Parity,
        replay: &Replay<'_>,
        bytes: &Range<u64>,
    ) -> Result<Rows, Stopped> {
        let Some(holder) = self.holder(replay.parity_slot as Slot) else {
            return Ok(Rows::LeftAlone);
        };
        // At most a chunk.
        let len = (bytes.end - bytes.start) as usize;
        let mut new = match replay.partial_parity {
            Some(partial) => {
                let at = (bytes.start - replay.rows.start * SECTOR_BYTES) as usize;
                let Some(partial) = partial.get(at..at + len) else { return Ok(Rows::LeftAlone) };
                shard.pool().copy_of(partial)
            }
            None => shard.pool().zeroed(len),
        };
        for slot in Self::data_slots(parity, replay) {
            let Some(source) = self.holder(slot).filter(|source| source.holds(bytes)) else {
                return Ok(Rows::LeftAlone);
            };
            match source.read(shard, bytes).await {
                Ok(data) => braid_parity::xor_into(&mut new, &[&data]),
                Err(error) if error.kind == IoErrorKind::Medium => {
                    tracing::warn!(
                        "partial parity log: {} could not be read: {error}",
                        source.name
                    );
                    return Ok(Rows::LeftAlone);
                }
                Err(error) => {
                    let (doing, name) = ("reading data of", source.name.clone());
                    return Err(Stopped { doing, name, error });
                }
            }
        }
        match write(shard, &holder.device, holder.data() + bytes.start, new.freeze()).await {
            Ok(()) => Ok(Rows::Made),
            Err(error) if error.kind == IoErrorKind::Medium => Ok(Rows::Refused(error)),
            Err(error) => {
                let (doing, name) = ("writing parity of", holder.name.clone());
                Err(Stopped { doing, name, error })
            }
        }
    }
}
