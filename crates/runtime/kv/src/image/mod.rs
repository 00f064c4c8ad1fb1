//! A metadata region as storage of an embedded database: bytes with a length of their own, each block with a checksum.
//!
//! ```text
//! block 0            header: magic, version, number of blocks, sum
//! blocks 1 ..= t     the table of checksums
//! then n blocks      the database's bytes
//! ```
//!
//! If the image has grown, further tables and blocks follow ([`Layout`]).
//!
//! Writes of the database wait in memory until it syncs, or until there are many, and then go to the region in one
//! batch. Each block that is read is compared with its checksum; a block that one half has lost is read from the
//! other half and repaired. The database rewrites its first block in place, so the checksum of that block is in its first
//! sector, together with all data that the database keeps there: a power failure cannot separate the two.
//!
//! The image may be longer than its blocks for a while ([`Image::overflows`]), so that the database can roll back a
//! transaction for which there is no room. It could not do that after an error.
//!
//! Invariant: the database reads back exactly the bytes that it wrote last, or gets an error, except while
//! [`Checking::Database`] holds, when the database itself verifies the data that it reads.

mod copies;
mod error;
mod growth;
mod header;
mod layout;

use crate::mirror::Mirror;
use crate::region::{BLOCK, Write};
use crate::store::StoreError;
use crate::sums::{SECTOR, Sums, UNKNOWN, is_sealed, seal};
use braid_device::IoError;
use error::failed;
use header::State;
use layout::{Layout, blocks_in};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The least size of a region, in bytes: the size of an empty database, with some room.
pub const REGION_MIN: u64 = 4 << 20;

/// The number that the checksum of the database's first block covers; no other block has it.
const FIRST_NUMBER: u64 = u64::MAX - 1;

/// The most written blocks that wait in memory.
const WAITING_MAX: usize = 2048;

/// The most blocks of one write.
const RUN_MAX: usize = 256;

/// The checksums that verify the data read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checking {
    /// Those of the image: a block that does not match is an error.
    Sums,
    /// Those of the database, which after a power failure reads blocks of an unfinished commit.
    Database,
    /// Those of the database, and blocks that it has verified get new checksums in the image.
    Repair,
}

/// See the module's documentation.
pub(crate) struct Image {
    mirror: Mirror,
    /// The positions of its blocks.
    layout: Layout,
    /// The layout after a growth that is prepared and not in use yet.
    grown: Option<Layout>,
    sums: Sums,
    /// Blocks of the table that differ from those on the region.
    dirty: BTreeSet<u64>,
    waiting: BTreeMap<u64, Box<[u8]>>,
    /// The length as the database sees it, in bytes.
    len: u64,
    checking: Checking,
    /// The image must not grow beyond its blocks, not even for a while.
    pub(crate) strict: bool,
    /// Growth was refused while `strict` was set.
    pub(crate) refused: bool,
    /// Blocks that were read while the database was verifying, and whose checksum was missing or different.
    doubtful: BTreeSet<u64>,
    /// The checksum of one of them was different.
    disagreed: bool,
    /// Sectors of the table were lost, or the table does not belong to the blocks, so some checksums are unknown.
    pub(crate) sums_lost: bool,
    /// The state in the header, now or when it is written next.
    state: State,
    /// There are writes that were not synced.
    unsynced: bool,
    /// Writes wait for a message from this channel.
    pub(crate) gate: Option<Receiver<()>>,
    /// The first error, as an error of the store.
    pub(crate) error: Option<StoreError>,
    /// Blocks that the database has written so far.
    pub(crate) written: u64,
    /// Blocks that one half had lost and that were repaired from the other.
    pub(crate) mended: u64,
}

impl Image {
    /// Formats new regions: their previous content is lost. The image is empty.
    ///
    /// # Errors
    /// When a region is smaller than [`REGION_MIN`] or cannot be written.
    pub(crate) fn format(mirror: Mirror) -> Result<Image, StoreError> {
        let size = mirror.size();
        if size < REGION_MIN {
            let name = mirror.held().next().map_or("no region", |half| mirror.name(half));
            let needed = REGION_MIN >> 20;
            return Err(StoreError::Failed(format!(
                "the metadata region on {name} has {size} bytes; give it {needed} MiB or more"
            )));
        }
        let mut image = Image::empty(mirror, Layout::new(blocks_in(size)));
        // The header is erased first and written last, so that an interrupted creation leaves no store.
        image.put(vec![Write { offset: 0, data: vec![0; BLOCK] }])?;
        image.flush_region()?;
        let table: Vec<u64> = (0..image.layout.tables()).collect();
        for numbers in table.chunks(RUN_MAX) {
            let writes = numbers.iter().map(|number| image.table_write(*number)).collect();
            image.put(writes)?;
        }
        image.put(vec![Write { offset: image.place(0), data: vec![0; BLOCK] }])?;
        image.flush_region()?;
        image.put(vec![image.header()])?;
        image.flush_region()?;
        Ok(image)
    }

    /// Opens regions that hold an image. The image is as long as its blocks. With `compare` the second half is made
    /// equal to the first where they differ; for that each must have all data that was ever synced. A half whose header is
    /// damaged is dropped if that of the other half is not.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when there is no image, or it is of another version; [`StoreError::Failed`] when the region
    /// cannot be read.
    pub(crate) fn open(mut mirror: Mirror, compare: bool) -> Result<Image, StoreError> {
        let (layout, state, unlike) = header::read(&mut mirror)?;
        let mut image = Image::empty(mirror, layout);
        image.len = image.capacity();
        image.state = state;
        if unlike {
            image.undo_growth()?;
        }
        if compare {
            image.load_sums_of_first()?;
            image.compare()?;
        } else {
            image.load_sums()?;
        }
        // Then the database has to say whether there is a state that is all there.
        image.sums_lost |= state == State::Unequal;
        Ok(image)
    }

    fn empty(mirror: Mirror, layout: Layout) -> Image {
        Image {
            mirror,
            sums: Sums::new(layout.blocks()),
            layout,
            grown: None,
            dirty: BTreeSet::new(),
            waiting: BTreeMap::new(),
            len: 0,
            checking: Checking::Sums,
            strict: false,
            refused: false,
            doubtful: BTreeSet::new(),
            disagreed: false,
            sums_lost: false,
            state: State::Whole,
            unsynced: false,
            gate: None,
            error: None,
            written: 0,
            mended: 0,
        }
    }

    /// The capacity of the image, in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.layout.blocks() * BLOCK as u64
    }

    /// The length that the database sees, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// True while the database counts on more than there is.
    pub(crate) fn overflows(&self) -> bool {
        self.len > self.capacity()
    }

    /// The regions below.
    pub(crate) fn mirror(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// From now on the database verifies what is read.
    pub(crate) fn leave_checking_to_database(&mut self) {
        self.checking = Checking::Database;
        self.doubtful.clear();
        self.disagreed = false;
    }

    /// The database was not closed in order, and verifies all that it will rely on before it writes anything.
    pub(crate) fn note_repair(&mut self) {
        if self.checking == Checking::Database {
            self.checking = Checking::Repair;
        }
    }

    /// From now on the sums decide. After a repair, what the database read is what it wrote: where the sums say
    /// otherwise, a power cut has lost them. Else gives false when something did not agree.
    ///
    /// # Errors
    /// From the region.
    pub(crate) fn check_sums(&mut self) -> Result<bool, StoreError> {
        let checking = std::mem::replace(&mut self.checking, Checking::Sums);
        if checking == Checking::Repair {
            self.put_doubtful()?;
            return Ok(true);
        }
        self.doubtful.clear();
        Ok(!self.disagreed)
    }

    /// Makes durable, with their sums and on both halves, the blocks that a repair relies on and that may be on one half
    /// only, or not be known to be there. Before the repair's own commit, which leaves no older root to go back to: so
    /// a later start has them, whichever half is then the first.
    fn put_doubtful(&mut self) -> Result<(), StoreError> {
        let doubtful: Vec<u64> = std::mem::take(&mut self.doubtful).into_iter().collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        for some in doubtful.chunks(RUN_MAX) {
            let mut writes = Vec::new();
            for &block in some {
                let (offset, mut data) = (self.place(block), vec![0; BLOCK]);
                self.mirror.read(offset, &mut data).map_err(|error| failed("reading", &error))?;
                self.sums.set(block, &data);
                self.dirty.insert(Sums::place(block));
                writes.push(Write { offset, data });
            }
            self.put(writes)?;
        }
        self.put_table()?;
        self.flush_region()
    }

    /// The database has verified what is there: the header says so, if it did not.
    ///
    /// # Errors
    /// From the region.
    pub(crate) fn note_whole(&mut self) -> Result<(), StoreError> {
        if self.state == State::Whole {
            return Ok(());
        }
        self.put_table()?;
        self.flush_region()?;
        self.state = State::Whole;
        self.put(vec![self.header()])?;
        self.flush_region()
    }

    /// Forgets what was not synced, and is as long as its blocks again: for a database that is opened once more.
    pub(crate) fn reset(&mut self) {
        self.len = self.capacity();
        self.strict = false;
        self.refused = false;
        self.waiting.clear();
    }

    fn place(&self, block: u64) -> u64 {
        self.layout.block_at(block)
    }

    fn header(&self) -> Write {
        header::write(&self.layout, self.state)
    }

    fn table_write(&self, number: u64) -> Write {
        Write { offset: self.layout.table_at(number), data: self.sums.table_block(number) }
    }

    fn put(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.pass_gate()?;
        self.unsynced = true;
        self.mirror.write(&Arc::new(writes)).map_err(|error| failed("writing", &error))
    }

    fn pass_gate(&mut self) -> Result<(), StoreError> {
        let passed = self.gate.take().is_none_or(|gate| gate.recv().is_ok());
        let given_up = || StoreError::Failed("a commit was given up on its way".to_string());
        passed.then_some(()).ok_or_else(given_up)
    }

    fn flush_region(&mut self) -> Result<(), StoreError> {
        self.mirror.sync().map_err(|error| failed("flushing", &error))?;
        self.unsynced = false;
        Ok(())
    }

    fn agrees(&self, block: u64, bytes: &[u8]) -> bool {
        match block {
            0 => bytes.get(..SECTOR).is_some_and(|sector| is_sealed(FIRST_NUMBER, sector)),
            _ => self.sums.agrees(block, bytes),
        }
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// Beyond the end, from the region, and when nothing that agrees with its sum can be had.
    pub(crate) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.len {
            let len = self.len;
            return Err(StoreError::Damaged(format!("byte {end} of {len} was asked for")));
        }
        if out.is_empty() {
            return Ok(());
        }
        let first = offset / BLOCK as u64;
        let blocks = end.div_ceil(BLOCK as u64) - first;
        let mut bytes = vec![0; blocks as usize * BLOCK];
        self.read_blocks(first, &mut bytes)?;
        let skip = (offset % BLOCK as u64) as usize;
        out.copy_from_slice(&bytes[skip..skip + out.len()]);
        Ok(())
    }

    /// Reads whole blocks: those that wait from memory, the others in runs.
    fn read_blocks(&mut self, first: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let count = (out.len() / BLOCK) as u64;
        let mut at = 0;
        while at < count {
            let from = at as usize * BLOCK;
            if let Some(bytes) = self.waiting.get(&(first + at)) {
                out[from..from + BLOCK].copy_from_slice(bytes);
                at += 1;
                continue;
            }
            let next = self.waiting.range(first + at..first + count).next();
            let end = next.map_or(count, |(block, _)| block - first);
            let end = at + self.layout.in_a_row(first + at, end - at);
            let run = &mut out[from..end as usize * BLOCK];
            let half = self
                .mirror
                .read(self.place(first + at), run)
                .map_err(|error| failed("reading", &error))?;
            for (block, bytes) in (first + at..).zip(run.chunks_exact_mut(BLOCK)) {
                if !self.agrees(block, bytes) {
                    self.mend(block, half, bytes)?;
                } else if self.checking != Checking::Sums
                    && block > 0
                    && self.sums.get(block) == UNKNOWN
                {
                    self.doubtful.insert(block);
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Has from the other half what `half` gave wrongly, and mends it there.
    fn mend(&mut self, block: u64, half: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        let offset = self.place(block);
        let others: Vec<usize> = self.mirror.held().filter(|other| *other != half).collect();
        for other in others {
            let mut theirs = vec![0; BLOCK];
            match self.mirror.read_half(other, offset, &mut theirs) {
                Ok(()) if self.agrees(block, &theirs) => {
                    bytes.copy_from_slice(&theirs);
                    self.rewrite(half, offset, theirs)?;
                    self.mended += 1;
                    let region = self.mirror.name(half);
                    tracing::warn!(
                        region,
                        offset,
                        "a block of the metadata was damaged; mended from the other copy"
                    );
                    return Ok(());
                }
                Ok(()) => {}
                Err(error) => self.detach(other, "reading", &error)?,
            }
        }
        match self.checking {
            Checking::Database | Checking::Repair => {
                self.doubtful.insert(block);
                self.disagreed = true;
                Ok(())
            }
            Checking::Sums => Err(StoreError::Damaged(format!(
                "the block at byte {offset} of the region on {} is not what was written there",
                self.mirror.name(half)
            ))),
        }
    }

    fn rewrite(&mut self, half: usize, offset: u64, data: Vec<u8>) -> Result<(), StoreError> {
        self.unsynced = true;
        let writes = Arc::new(vec![Write { offset, data }]);
        match self.mirror.write_half(half, &writes) {
            Ok(()) => Ok(()),
            Err(error) => self.detach(half, "writing", &error),
        }
    }

    fn detach(&mut self, half: usize, doing: &str, error: &IoError) -> Result<(), StoreError> {
        let why = format!("{doing} failed: {error}");
        self.mirror.drop_half(half, &why).map_err(|_| failed(doing, error))
    }

    /// Takes `data` for `offset`; on the region it is after the next sync.
    ///
    /// # Errors
    /// Beyond what there is, and from the region.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let end = offset.saturating_add(data.len() as u64);
        if end > self.len {
            let len = self.len;
            return Err(StoreError::Damaged(format!("byte {end} of {len} was to be written")));
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let block = at / BLOCK as u64;
            let skip = (at % BLOCK as u64) as usize;
            let (piece, more) = rest.split_at(rest.len().min(BLOCK - skip));
            self.write_piece(block, skip, piece)?;
            at += piece.len() as u64;
            rest = more;
        }
        if self.waiting.len() > WAITING_MAX {
            self.put_waiting()?;
        }
        Ok(())
    }

    fn write_piece(&mut self, block: u64, skip: usize, piece: &[u8]) -> Result<(), StoreError> {
        let mut bytes = match self.waiting.remove(&block) {
            Some(bytes) => bytes,
            None => {
                self.written += 1;
                vec![0; BLOCK].into_boxed_slice()
            }
        };
        // The first block holds the database's header and nothing else, and that is written as a whole.
        if piece.len() < BLOCK && block > 0 && self.sums.get(block) != UNKNOWN {
            self.read_blocks(block, &mut bytes)?;
        }
        if block == 0 && skip + piece.len() > SECTOR - 4 {
            return Err(StoreError::Failed("the database's header outgrew its sector".to_string()));
        }
        bytes[skip..skip + piece.len()].copy_from_slice(piece);
        if block == 0 {
            seal(FIRST_NUMBER, &mut bytes[..SECTOR]);
        }
        self.waiting.insert(block, bytes);
        Ok(())
    }

    /// Writes what waits to the region.
    fn put_waiting(&mut self) -> Result<(), StoreError> {
        let writes = self.take_waiting()?;
        if writes.is_empty() { Ok(()) } else { self.put(writes) }
    }

    /// The blocks that wait to be written, in runs of neighbours.
    fn take_waiting(&mut self) -> Result<Vec<Write>, StoreError> {
        if self.checking == Checking::Repair {
            self.put_doubtful()?;
        }
        let mut writes: Vec<Write> = Vec::new();
        // Bytes beyond the last block belong to a transaction that will be rolled back.
        let beyond = self.waiting.split_off(&self.layout.blocks());
        for (block, bytes) in std::mem::replace(&mut self.waiting, beyond) {
            if block > 0 {
                self.sums.set(block, &bytes);
                self.dirty.insert(Sums::place(block));
            }
            let offset = self.place(block);
            match writes.last_mut() {
                Some(last)
                    if last.data.len() < RUN_MAX * BLOCK
                        && last.offset + last.data.len() as u64 == offset =>
                {
                    last.data.extend_from_slice(&bytes);
                }
                _ => writes.push(Write { offset, data: bytes.into_vec() }),
            }
        }
        Ok(writes)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// From the region.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        let mut writes = self.take_waiting()?;
        writes.append(&mut self.take_table());
        if !writes.is_empty() {
            self.pass_gate()?;
            self.unsynced = true;
            let put = self.mirror.write_durably(&Arc::new(writes));
            put.map_err(|error| failed("writing", &error))?;
            self.unsynced = false;
        } else if self.unsynced {
            self.flush_region()?;
        }
        Ok(())
    }

    /// Writes what has changed of the table.
    fn put_table(&mut self) -> Result<(), StoreError> {
        let writes = self.take_table();
        if writes.is_empty() { Ok(()) } else { self.put(writes) }
    }

    /// The changed blocks of the table.
    fn take_table(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|number| self.table_write(number)).collect()
    }

    /// Makes the image `len` bytes long. New bytes are whatever was there: a database writes a page before it reads it.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when that is more than there is and growth is strict.
    pub(crate) fn set_len(&mut self, len: u64) -> Result<(), StoreError> {
        if len > self.capacity() && self.strict {
            self.refused = true;
            return Err(StoreError::NoSpace);
        }
        self.waiting.split_off(&len.div_ceil(BLOCK as u64));
        self.len = len;
        Ok(())
    }
}
