//! A mirror as the storage of redb: bytes with a length of their own.
//!
//! redb keeps its header, which it rewrites in place, in its first block and nothing else there: that is the mirror's root.
//! The blocks behind it are those of the mirror as a device.
//!
//! Writes of the database wait in memory until it syncs, or until there are many, and then go to the mirror in one
//! batch. The storage may be longer than the mirror for a while ([`Storage::overflows`]), so that the database can roll
//! back a transaction for which there is no room. It could not do that after an error.
//!
//! redb requires storage that threads may share, but this one has one owner: the thread of the store. So it
//! stays with that thread, and redb gets a number by which the thread finds it. Any other thread gets an error.
//!
//! Invariant: the database reads back exactly the bytes that it wrote last, or gets an error, except while it is opened, when
//! it verifies what it reads itself.

use crate::ahead::Ahead;
use crate::handle::{Handle, Write};
use crate::store::StoreError;
use braid_device::IoError;
use braid_mirror::{BLOCK, ROOT, is_damage};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Receiver;

/// The most written blocks that wait in memory.
const WAITING_MAX: usize = 2048;

/// The most blocks of one write.
const RUN_MAX: usize = 256;

/// The side that tells right blocks from wrong ones when it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checking {
    /// The mirror: a block that is not is an error.
    Mirror,
    /// The database, which after a power failure reads blocks of an unfinished commit.
    Database,
    /// The database, and the mirror adopts the blocks that it has verified.
    Repair,
}

/// See the module's documentation.
pub(crate) struct Storage {
    mirror: Handle,
    /// Blocks of the mirror, the root included.
    blocks: u64,
    waiting: BTreeMap<u64, Box<[u8]>>,
    ahead: Ahead,
    /// The length as the database sees it, in bytes.
    len: u64,
    checking: Checking,
    /// It must not grow beyond the mirror, not even for a while.
    pub(crate) strict: bool,
    /// Growth was refused while `strict` was set.
    pub(crate) refused: bool,
    /// There may be writes that were not flushed.
    unsynced: bool,
    /// Writes wait for a message from this channel.
    pub(crate) gate: Option<Receiver<()>>,
    /// The first error, as an error of the store.
    pub(crate) error: Option<StoreError>,
    /// Blocks that the database has written so far.
    pub(crate) written: u64,
    /// The database read everything when it was opened last.
    pub(crate) was_repaired: bool,
}

fn failed(doing: &str, error: &IoError) -> StoreError {
    StoreError::Failed(format!("{doing} the metadata region: {error}"))
}

impl Storage {
    /// Of a mirror that was just made: it is empty. Of another one it is as long as that is.
    ///
    /// # Errors
    /// When the mirror is gone.
    pub(crate) fn new(mirror: Handle, is_new: bool) -> Result<Storage, StoreError> {
        let size = mirror.size().map_err(|error| failed("opening", &error))?;
        let blocks = 1 + size / BLOCK as u64;
        Ok(Storage {
            mirror,
            blocks,
            waiting: BTreeMap::new(),
            ahead: Ahead::default(),
            len: if is_new { 0 } else { blocks * BLOCK as u64 },
            checking: Checking::Mirror,
            strict: false,
            refused: false,
            unsynced: true,
            gate: None,
            error: None,
            written: 0,
            was_repaired: false,
        })
    }

    /// The capacity in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    /// The length that the database sees, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// True while the database counts on more than there is.
    pub(crate) fn overflows(&self) -> bool {
        self.len > self.capacity()
    }

    /// True when the database must verify everything, since the mirror cannot.
    ///
    /// # Errors
    /// When the mirror is gone.
    pub(crate) fn must_verify(&self) -> Result<bool, StoreError> {
        self.mirror.must_verify().map_err(|error| failed("opening", &error))
    }

    /// From now on the database verifies what is read.
    ///
    /// # Errors
    /// When the mirror is gone.
    pub(crate) fn leave_checking_to_database(&mut self) -> Result<(), StoreError> {
        self.checking = Checking::Database;
        self.was_repaired = false;
        self.mirror.begin_verification().map_err(|error| failed("opening", &error))
    }

    /// The database was not closed in order, and verifies all that it will rely on before it writes anything.
    fn note_repair(&mut self) {
        if self.checking == Checking::Database {
            self.checking = Checking::Repair;
            self.was_repaired = true;
        }
    }

    /// From now on the mirror decides. After a repair, what the database read is what it wrote: where the mirror says
    /// otherwise, a power cut has lost its sums. Else gives false when something did not agree.
    ///
    /// # Errors
    /// From the mirror.
    pub(crate) fn check_by_mirror(&mut self) -> Result<bool, StoreError> {
        let checking = std::mem::replace(&mut self.checking, Checking::Mirror);
        if checking == Checking::Repair {
            self.adopt()?;
        }
        self.mirror.end_verification().map_err(|error| failed("opening", &error))
    }

    fn adopt(&mut self) -> Result<(), StoreError> {
        self.mirror.adopt().map_err(|error| failed("writing", &error))
    }

    /// The database has verified what is there.
    ///
    /// # Errors
    /// From the mirror.
    pub(crate) fn note_verified(&mut self) -> Result<(), StoreError> {
        self.mirror.note_verified().map_err(|error| failed("writing", &error))
    }

    /// Uses what the mirror has grown by. False: nothing.
    ///
    /// # Errors
    /// When the mirror is gone.
    pub(crate) fn take_growth(&mut self) -> Result<bool, StoreError> {
        let has_grown = self.mirror.take_growth().map_err(|error| failed("growing", &error))?;
        let size = self.mirror.size().map_err(|error| failed("growing", &error))?;
        self.blocks = 1 + size / BLOCK as u64;
        Ok(has_grown)
    }

    /// Forgets what was not synced, and is as long as the mirror again: for a database that is opened once more.
    pub(crate) fn reset(&mut self) {
        self.len = self.capacity();
        self.strict = false;
        self.refused = false;
        self.waiting.clear();
    }

    fn pass_gate(&mut self) -> Result<(), StoreError> {
        let passed = self.gate.take().is_none_or(|gate| gate.recv().is_ok());
        let given_up = || StoreError::Failed("a commit was given up on its way".to_string());
        passed.then_some(()).ok_or_else(given_up)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
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
            let (block, from) = (first + at, at as usize * BLOCK);
            if let Some(bytes) = self.waiting.get(&block) {
                out[from..from + BLOCK].copy_from_slice(bytes);
                at += 1;
                continue;
            }
            let told = |error: IoError| match is_damage(&error) {
                true => {
                    let byte = block * BLOCK as u64;
                    StoreError::Damaged(format!(
                        "what is read from byte {byte} of the database on is not what was written there"
                    ))
                }
                false => failed("reading", &error),
            };
            if block == 0 {
                let root = self.mirror.root().map_err(told)?;
                out[from..from + root.len()].copy_from_slice(&root);
                at += 1;
                continue;
            }
            let next = self.waiting.range(block..first + count).next();
            let end = next.map_or(count, |(block, _)| block - first);
            let run = &mut out[from..end as usize * BLOCK];
            self.read_run(block, run).map_err(told)?;
            at = end;
        }
        Ok(())
    }

    /// Reads blocks of the mirror, none of which waits.
    fn read_run(&mut self, first: u64, out: &mut [u8]) -> Result<(), IoError> {
        let mirror = &self.mirror;
        let begin = |first, count: u64| mirror.read_ahead(place(first), count as usize * BLOCK);
        if self.ahead.get(first, out, &begin) {
            return Ok(());
        }
        mirror.read(place(first), out)?;
        self.ahead.note_read(first, (out.len() / BLOCK) as u64, &begin);
        Ok(())
    }

    /// Takes `data` for `offset`; on the mirror it is after the next sync.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
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
                let mut bytes = vec![0; BLOCK].into_boxed_slice();
                // The first block holds the database's header and nothing else, and that is written as a whole.
                if piece.len() < BLOCK && block > 0 {
                    self.read_blocks(block, &mut bytes)?;
                }
                bytes
            }
        };
        if block == 0 && skip + piece.len() > ROOT {
            return Err(StoreError::Failed("the database's header outgrew its sector".to_string()));
        }
        bytes[skip..skip + piece.len()].copy_from_slice(piece);
        self.waiting.insert(block, bytes);
        Ok(())
    }

    /// Writes what waits to the mirror, except for the root, which goes there with the next sync.
    fn put_waiting(&mut self) -> Result<(), StoreError> {
        let root = self.waiting.remove(&0);
        let writes = self.take_waiting()?;
        if let Some(root) = root {
            self.waiting.insert(0, root);
        }
        if writes.is_empty() {
            return Ok(());
        }
        self.pass_gate()?;
        self.unsynced = true;
        self.mirror.write(writes).map_err(|error| failed("writing", &error))
    }

    /// The blocks behind the root that wait to be written, in runs of neighbours.
    fn take_waiting(&mut self) -> Result<Vec<Write>, StoreError> {
        if self.checking == Checking::Repair {
            self.adopt()?;
        }
        self.ahead.forget();
        let mut writes: Vec<Write> = Vec::new();
        // Bytes beyond the last block belong to a transaction that will be rolled back.
        let beyond = self.waiting.split_off(&self.blocks);
        for (block, bytes) in std::mem::replace(&mut self.waiting, beyond) {
            let offset = place(block);
            match writes.last_mut() {
                Some((start, data))
                    if data.len() < RUN_MAX * BLOCK && *start + data.len() as u64 == offset =>
                {
                    data.extend_from_slice(&bytes);
                }
                _ => writes.push((offset, bytes.into_vec())),
            }
        }
        Ok(writes)
    }

    /// Makes all that was written durable.
    fn sync(&mut self) -> Result<(), StoreError> {
        let root = self.waiting.remove(&0).map(|bytes| bytes[..ROOT].to_vec());
        let writes = self.take_waiting()?;
        if !writes.is_empty() || root.is_some() {
            self.pass_gate()?;
            self.mirror.commit(writes, root).map_err(|error| failed("writing", &error))?;
        } else if self.unsynced {
            self.mirror.flush().map_err(|error| failed("flushing", &error))?;
        }
        self.unsynced = false;
        Ok(())
    }

    /// Makes it `len` bytes long. New bytes are whatever was there: a database writes a page before it reads it.
    fn set_len(&mut self, len: u64) -> Result<(), StoreError> {
        if len > self.capacity() && self.strict {
            self.refused = true;
            return Err(StoreError::NoSpace);
        }
        self.waiting.split_off(&len.div_ceil(BLOCK as u64));
        self.len = len;
        Ok(())
    }
}

/// The first byte of a block on the mirror as a device, which does not have the root.
fn place(block: u64) -> u64 {
    block.saturating_sub(1) * BLOCK as u64
}

thread_local! {
    /// The storages of the stores of this thread. There is one, except in tests.
    static STORAGES: RefCell<Vec<Option<Storage>>> = const { RefCell::new(Vec::new()) };
}

/// The number of a storage of this thread. Dropping it drops the storage.
#[derive(Debug)]
pub(crate) struct Kept {
    number: usize,
}

impl Kept {
    /// Keeps `storage` for this thread.
    pub(crate) fn keep(storage: Storage) -> Kept {
        STORAGES.with_borrow_mut(|storages| {
            let free = storages.iter().position(Option::is_none);
            let number = free.unwrap_or(storages.len());
            match storages.get_mut(number) {
                Some(slot) => *slot = Some(storage),
                None => storages.push(Some(storage)),
            }
            Kept { number }
        })
    }

    /// Works with the storage.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Storage) -> T) -> Result<T, StoreError> {
        with(self.number, work)
    }

    /// The storage, to be given to redb.
    pub(crate) fn backend(&self) -> Backend {
        Backend { number: self.number }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Taken out first, so that the list is not borrowed while the storage is dropped.
        let storage = STORAGES
            .try_with(|storages| {
                storages
                    .try_borrow_mut()
                    .ok()
                    .and_then(|mut storages| storages.get_mut(self.number)?.take())
            })
            .ok();
        drop(storage);
    }
}

fn with<T>(number: usize, work: impl FnOnce(&mut Storage) -> T) -> Result<T, StoreError> {
    let done = STORAGES.try_with(|storages| {
        let mut storages = storages.try_borrow_mut().ok()?;
        Some(work(storages.get_mut(number)?.as_mut()?))
    });
    done.ok().flatten().ok_or_else(|| {
        StoreError::Failed("the metadata region is not open on this thread".to_string())
    })
}

/// A [`Storage`], as redb uses it.
#[derive(Debug)]
pub(crate) struct Backend {
    number: usize,
}

impl Backend {
    /// Called when redb begins a repair, before it has written anything.
    pub(crate) fn note_repair(&self) {
        // If the storage is gone, the next request fails.
        let _ = with(self.number, Storage::note_repair);
    }

    /// Does `work`. An error is converted for redb, and the storage keeps the first one as an error of the store.
    fn ask<T>(&self, work: impl FnOnce(&mut Storage) -> Result<T, StoreError>) -> io::Result<T> {
        let done = with(self.number, |storage| {
            let done = work(storage);
            if let Err(error) = &done
                && storage.error.is_none()
            {
                storage.error = Some(error.clone());
            }
            done
        });
        done.and_then(|done| done).map_err(io::Error::other)
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.ask(|storage| Ok(storage.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.ask(|storage| storage.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask(|storage| storage.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.ask(Storage::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(|storage| storage.write(offset, data))
    }
}
