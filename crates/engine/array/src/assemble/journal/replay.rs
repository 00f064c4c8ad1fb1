//! What the log of a journal asks for, carried out, and the log begun anew behind it.

use crate::assemble::journal::log::Log;
use crate::assemble::journal::rows::{Row, whole};
use crate::error::AssembleError;
use crate::metadata::holder::Holder;
use crate::metadata::journal::Begun;
use crate::metadata::superblock::{superblock_bytes, write};
use braid_device::{Device, IoError, IoErrorKind, IoSets, Request};
use braid_format::SECTOR;
use braid_format::journal::{BLOCK, BLOCK_SECTORS, Meta, Payload, SEQ_GAP, Seed, StripeWrite};
use braid_format::superblock::Superblock;
use braid_layout::Parity;
use braid_shard::plant::planted;
use braid_shard::{Buf, Shard};
use std::ops::Range;
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// Rows whose blocks are in memory at a time.
const AT_ONCE: usize = 64;

/// The reason why a replay stopped: what failed, on which device, and how.
type Stopped = (&'static str, String, IoError);

/// Carries out what the log of the array `title` asks for and begins it anew. `device` is the journal device, and
/// `superblock` its superblock, whose tail is brought up to date, on the device too. `any` is the number that a journal
/// begins with which has no log.
///
/// # Errors
/// A device that does not give or take what it should. All is as it was then, as far as a replay from the start can tell.
pub(crate) async fn replay(
    shard: &Shard,
    title: &str,
    parity: &Parity,
    log: &Log,
    holders: &[Holder],
    journal: (&Rc<dyn Device>, &mut Superblock),
    any: u64,
) -> Result<Begun, AssembleError> {
    let own = Replay { shard, parity, log, holders, sets: IoSets::new(shard) };
    let (rows, data_only) = (log.complete.len(), log.data_only.len());
    if !log.is_empty() || log.refused + log.cut_short > 0 {
        tracing::info!(
            "array {title}: replaying the journal: {rows} rows with parity, {data_only} with data alone; left out: {} meta \
             blocks that were not written whole, {} entries that name no place of the array",
            log.cut_short,
            log.refused
        );
    }
    let done = own.run(journal, any).await;
    done.map_err(|(doing, name, error)| AssembleError::Replay {
        array: title.to_string(),
        log: "journal",
        doing,
        name,
        error,
    })
}

struct Replay<'a> {
    shard: &'a Shard,
    parity: &'a Parity,
    log: &'a Log,
    holders: &'a [Holder],
    sets: IoSets,
}

impl Replay<'_> {
    async fn run(
        &self,
        (device, superblock): (&Rc<dyn Device>, &mut Superblock),
        any: u64,
    ) -> Result<Begun, Stopped> {
        let log = self.log;
        self.write_rows(&log.complete).await?;
        let mut next = match log.seq {
            Some(seq) => Begun { position: log.end, seq: seq.wrapping_add(SEQ_GAP) },
            None => Begun { position: 0, seq: any },
        };
        if !log.data_only.is_empty() {
            let begins = next.position;
            match self.log_anew(next).await? {
                Some((rows, behind)) => {
                    self.move_tail(device, superblock, begins).await?;
                    self.write_rows(&rows).await?;
                    next = behind;
                }
                None => self.write_directly().await?,
            }
        }
        let empty = Meta::empty(next.seq, next.position);
        self.to_ring(next.position, &[self.meta(&empty)?]).await?;
        if !planted("journal-tail-kept") {
            self.move_tail(device, superblock, next.position).await?;
        }
        Ok(next)
    }

    fn row_bytes(write: &StripeWrite) -> Range<u64> {
        let at = write.row * SECTOR_BYTES;
        at..at + BLOCK as u64
    }

    /// Writes rows that have their parity to the members, durably.
    async fn write_rows(&self, rows: &[StripeWrite]) -> Result<(), Stopped> {
        let skipped = usize::from(planted("journal-replay-skips-one"));
        for rows in rows.get(skipped..).unwrap_or_default().chunks(AT_ONCE) {
            let mut places = Vec::new();
            let mut targets = Vec::new();
            for row in rows {
                let bytes = Self::row_bytes(row);
                let map = self.parity.map_stripe(bytes.start / self.parity.chunk_size());
                for (sector, place) in &row.data {
                    let k = self.parity.locate(sector * SECTOR_BYTES).1;
                    targets.push((map.data_slot(k), bytes.start));
                    places.push(*place);
                }
                let parity = [(Some(map.p_slot()), row.p), (map.q_slot(), row.q)];
                for (slot, place) in parity {
                    if let (Some(slot), Some(place)) = (slot, place) {
                        targets.push((slot, bytes.start));
                        places.push(place);
                    }
                }
            }
            let blocks = self.logged(&places).await?;
            self.to_members(targets.into_iter().zip(blocks)).await?;
        }
        self.flush().await
    }

    /// Writes blocks to the members that hold these slots; those without one are left out.
    async fn to_members(
        &self,
        blocks: impl Iterator<Item = ((usize, u64), Buf)>,
    ) -> Result<(), Stopped> {
        let mut set = self.sets.start();
        for ((slot, at), block) in blocks {
            for (tag, holder) in (0..).zip(self.holders).filter(|(_, holder)| holder.slot == slot) {
                set.submit(
                    tag,
                    &*holder.device,
                    Request::write(holder.data() + at, block.slice(0..BLOCK), false),
                );
            }
        }
        for (tag, outcome) in set.finish().await {
            if let (Err(error), Some(holder)) = (outcome.result, self.holders.get(tag as usize)) {
                return Err(("writing to", holder.name.clone(), error));
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), Stopped> {
        for holder in self.holders {
            match self.sets.one(&*holder.device, Request::flush()).await.result {
                Err(error) if error.kind != IoErrorKind::Unsupported => {
                    return Err(("flushing", holder.name.clone(), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn logged(&self, places: &[u64]) -> Result<Vec<Buf>, Stopped> {
        let ring = &self.log.ring;
        let read = ring.read_each(self.shard, places).await;
        read.map_err(|error| ("reading the journal", ring.name.clone(), error))
    }

    async fn to_ring(&self, position: u64, blocks: &[Buf]) -> Result<(), Stopped> {
        let ring = &self.log.ring;
        let mut all = self.shard.pool().get(blocks.len() * BLOCK);
        for (place, block) in all.chunks_exact_mut(BLOCK).zip(blocks) {
            place.copy_from_slice(block);
        }
        let written = ring.write(self.shard, position, all.freeze()).await;
        written.map_err(|error| ("writing the journal", ring.name.clone(), error))
    }

    fn meta(&self, meta: &Meta) -> Result<Buf, Stopped> {
        let bytes = meta.to_bytes(Seed::of(&self.log.set_uuid));
        let bytes = bytes.ok_or_else(|| {
            let error = IoError::new(IoErrorKind::Invalid);
            ("writing the journal", self.log.ring.name.clone(), error)
        })?;
        Ok(self.shard.pool().copy_of(&bytes).freeze())
    }

    /// A row of which data alone was logged, with all that belongs to it.
    async fn whole(&self, write: &StripeWrite) -> Result<Row, Stopped> {
        let places: Vec<u64> = write.data.iter().map(|(_, place)| *place).collect();
        let blocks = self.logged(&places).await?;
        let new = write.data.iter().map(|(sector, _)| *sector).zip(blocks).collect();
        let bytes = Self::row_bytes(write);
        match whole(self.shard, self.parity, self.holders, &bytes, new).await {
            Ok(Some(row)) => Ok(row),
            Ok(None) => {
                let which = format!("all members, component byte {}", bytes.start);
                Err((
                    "recovering a row of which the journal has some data from",
                    which,
                    IoError::new(IoErrorKind::Lost),
                ))
            }
            Err((name, error)) => Err(("reading", name, error)),
        }
    }

    /// Logs rows of which data alone was logged with their parity, from `at` on; gives them as they stand there, and where the
    /// log goes on. `None`: the ring has no room.
    async fn log_anew(&self, at: Begun) -> Result<Option<(Vec<StripeWrite>, Begun)>, Stopped> {
        let (log, parities) = (self.log, self.parity.parity_count() as u64);
        let rows = || log.data_only.iter().map(|row| 1 + row.data.len() as u64 + parities);
        // One block is for the empty meta block behind it.
        if rows().sum::<u64>() + 1 > log.free {
            return Ok(None);
        }
        let (mut next, mut anew) = (at, Vec::new());
        let seed = Seed::of(&log.set_uuid);
        for write in &log.data_only {
            let row = self.whole(write).await?;
            let mut payloads: Vec<Payload> = Vec::new();
            let mut blocks = Vec::new();
            let mut moved = StripeWrite { row: write.row, ..StripeWrite::default() };
            for (sector, _, block) in row.data {
                payloads.push(Payload::Data { location: sector, checksum: seed.checksum(&block) });
                moved.data.push((sector, log.ring.after(next.position, 1 + blocks.len() as u64)));
                blocks.push(block);
            }
            let q = row.q.as_ref().map(|q| seed.checksum(q));
            payloads.push(Payload::Parity { location: write.row, p: seed.checksum(&row.p), q });
            let place = |count: usize| log.ring.after(next.position, 1 + count as u64);
            moved.p = Some(place(blocks.len()));
            blocks.push(row.p);
            if let Some(q) = row.q {
                moved.q = Some(place(blocks.len()));
                blocks.push(q);
            }
            let meta = Meta { seq: next.seq, position: next.position, payloads };
            blocks.insert(0, self.meta(&meta)?);
            self.to_ring(next.position, &blocks).await?;
            let position = log.ring.after(next.position, blocks.len() as u64);
            next = Begun { position, seq: next.seq.wrapping_add(1) };
            anew.push(moved);
        }
        Ok(Some((anew, next)))
    }

    /// Writes those rows to the members as they are: what a crash cuts short is done again, to the same end, if none needs
    /// old parity.
    async fn write_directly(&self) -> Result<(), Stopped> {
        for write in &self.log.data_only {
            let row = self.whole(write).await?;
            if row.from_parity {
                let error = IoError::new(IoErrorKind::NoSpace);
                return Err((
                    "logging a row without some of its members anew on",
                    self.log.ring.name.clone(),
                    error,
                ));
            }
            let at = Self::row_bytes(write).start;
            let map = self.parity.map_stripe(at / self.parity.chunk_size());
            let data = row.data.into_iter().map(|(_, slot, block)| ((slot, at), block));
            let q = map.q_slot().zip(row.q).map(|(slot, block)| ((slot, at), block));
            self.to_members(data.chain([((map.p_slot(), at), row.p)]).chain(q)).await?;
        }
        self.flush().await
    }

    /// Has the replay of a later assembly begin at `tail`.
    async fn move_tail(
        &self,
        device: &Rc<dyn Device>,
        superblock: &mut Superblock,
        tail: u64,
    ) -> Result<(), Stopped> {
        debug_assert!(tail.is_multiple_of(BLOCK_SECTORS));
        superblock.journal_tail = tail;
        let bytes = superblock_bytes(self.shard, superblock, device.info().logical_block);
        let at = superblock.super_offset.saturating_mul(SECTOR_BYTES);
        let written = write(self.shard, device, at, bytes).await;
        written.map_err(|error| ("writing the superblock of", self.log.ring.name.clone(), error))
    }
}
