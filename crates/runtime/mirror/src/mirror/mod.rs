//! A mirror: the layout of its regions, its requests, and what its owner does with its legs.
//!
//! ```text
//! block 0            header: magic, version, number of blocks, sum
//! blocks 1 ..= t     the table of checksums
//! then n blocks      the root, and the blocks of the device
//! ```
//!
//! If the mirror has grown, further tables and blocks follow ([`Layout`]). The first of the n blocks is the root: its checksum
//! is in its first sector, together with its bytes, so a power failure cannot separate the two. The sums of the others are in
//! the table, in memory and, after a flush, on the regions.
//!
//! A write goes to all legs and waits for all. Writes that overlap follow each other, else the legs could differ
//! afterwards. Reads wait for nobody. One that finds a block that does not agree with its sum reads it again when
//! no write to it is under way, and only then asks the other legs and mends. Flushes follow each other, so that an older
//! state of the table never replaces a newer one.
//!
//! Everything happens on the shard of the regions, so it stacks like any other device; a user on another thread sends messages
//! there. A thread of the mirror's own would cost every request a message each way.
//!
//! Invariant: a read gives the bytes that were written last, or fails, except while its user verifies.

mod ahead;
mod growth;
pub(crate) mod join;
pub(crate) mod open;
mod verify;

use crate::error::DAMAGE;
use crate::header;
use crate::layout::{Layout, PARTS_MAX};
use crate::legs::{Detached, Legs, Piece};
use crate::region::BLOCK;
use crate::sums::{SECTOR, Sums, UNKNOWN, is_sealed, seal};
use braid_device::{
    BufMuts, Bufs, Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, Request,
};
use braid_shard::range_locks::{RangeLocks, WHOLE};
use braid_shard::sync::Budget;
use braid_shard::{Buf, BufMut, Shard};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

/// Bytes of the root.
pub const ROOT: usize = SECTOR - 4;

/// The number that the checksum of the root covers; no block has it.
const ROOT_NUMBER: u64 = u64::MAX - 1;

/// Bytes that are written at a time where zeroes are asked for.
const ZEROES: u64 = 1 << 20;

/// See the module's documentation.
pub struct Mirror {
    shard: Shard,
    legs: Legs,
    state: RefCell<State>,
    /// Of blocks: whoever writes some of them, or mends or copies them.
    locks: Rc<RangeLocks>,
    /// One flush at a time.
    turn: Rc<Budget>,
    flushes: Flushes,
    /// Its description after each growth.
    infos: [OnceCell<DeviceInfo>; PARTS_MAX],
    me: Weak<Mirror>,
}

/// Numbers of flushes, in the order in which they begin.
#[derive(Default)]
struct Flushes {
    /// The last that began.
    begun: Cell<u64>,
    /// The last that succeeded.
    done: Cell<u64>,
}

struct State {
    /// The positions of blocks.
    layout: Layout,
    /// The layout after a growth that is prepared and not in use yet.
    grown: Option<Layout>,
    sums: Sums,
    /// Blocks of the table that differ from those on the regions.
    dirty: BTreeSet<u64>,
    /// The state in the header, now or when it is written next.
    whole: header::State,
    /// There may be writes that were not flushed.
    unsynced: bool,
    /// The user verifies what it reads.
    verifying: bool,
    /// Blocks that were read meanwhile, and whose checksum was missing or different.
    doubtful: BTreeSet<u64>,
    /// The checksum of one of them was different.
    disagreed: bool,
    /// Sums were lost, or do not belong to the blocks.
    must_verify: bool,
    /// It was made by this opening.
    is_new: bool,
    /// No region may join any more.
    refuses_joins: bool,
    mended: u64,
}

impl Mirror {
    fn over(shard: &Shard, legs: Legs, layout: Layout) -> Rc<Mirror> {
        let state = State {
            sums: Sums::new(layout.blocks()),
            layout,
            grown: None,
            dirty: BTreeSet::new(),
            whole: header::State::Whole,
            unsynced: false,
            verifying: false,
            doubtful: BTreeSet::new(),
            disagreed: false,
            must_verify: false,
            is_new: false,
            refuses_joins: false,
            mended: 0,
        };
        let mirror = Rc::new_cyclic(|me| Mirror {
            shard: shard.clone(),
            legs,
            state: RefCell::new(state),
            locks: RangeLocks::new(shard),
            turn: Budget::new(shard, 1),
            flushes: Flushes::default(),
            infos: Default::default(),
            me: Weak::clone(me),
        });
        mirror.describe();
        mirror
    }

    /// Makes the description for the layout that is in use from now on.
    fn describe(&self) {
        let state = self.state.borrow();
        let names: Vec<String> = self.legs.held().map(|leg| self.legs.name(leg)).collect();
        let info = DeviceInfo {
            logical_block: BLOCK as u32,
            discards: false,
            writes_zeroes: false,
            // Sums are in memory until a flush.
            volatile_cache: true,
            rotational: self.legs.any(|device| device.info().rotational),
            direct: !self.legs.any(|device| !device.info().direct),
            ..DeviceInfo::plain(
                format!("mirror of {}", names.join(" and ")),
                state.layout.blocks().saturating_sub(1) * BLOCK as u64,
            )
        };
        if let Some(place) = self.infos.get(state.layout.ends().len() - 1) {
            place.get_or_init(|| info);
        }
    }

    /// Bytes of a region that holds as much.
    pub fn region_size(&self) -> u64 {
        self.state.borrow().layout.size()
    }

    /// True when it was made by this opening, and holds nothing.
    pub fn is_new(&self) -> bool {
        self.state.borrow().is_new
    }

    /// Blocks that a leg had lost and that were mended from another, since it was opened.
    pub fn mended(&self) -> u64 {
        self.state.borrow().mended
    }

    /// The numbers of the legs that are held, the one that is read first: 0 for the first region that was given, 1 for the
    /// second and so on, or the one that joined in its place.
    pub fn held(&self) -> impl Iterator<Item = usize> + use<> {
        self.legs.held()
    }

    /// Calls `reporter` for each leg that is detached, before the request during which that happened completes, so that
    /// the owner can record the loss for the next start before it relies on the answer. Legs that were detached
    /// earlier, while the mirror was opened, are reported immediately.
    pub fn on_detached(&self, reporter: impl Fn(&Detached) + 'static) {
        self.legs.on_detached(Rc::new(reporter));
    }

    /// The legs that were detached since the last call, where [`on_detached`](Mirror::on_detached) was not called.
    pub fn take_detached(&self) -> Vec<Detached> {
        self.legs.take_detached()
    }

    /// Detaches a leg, by its number; its region is not used any more.
    ///
    /// # Errors
    /// [`IoErrorKind::Refused`] when nothing would be left.
    pub fn detach(&self, leg: usize, why: &str) -> Result<(), IoError> {
        self.legs.detach(leg, why)
    }

    /// The same, and waits until nothing that was asked before is written to the leg any more.
    ///
    /// # Errors
    /// As [`detach`](Mirror::detach).
    pub async fn release(&self, leg: usize, why: &str) -> Result<(), IoError> {
        self.legs.detach(leg, why)?;
        let _held = self.locks.exclusive(WHOLE).await;
        let _turn = self.turn.take(1).await;
        Ok(())
    }

    /// Gives up a region that [joins](Mirror::join): it becomes no leg, and none does from now on.
    pub fn stop_joins(&self) {
        self.state.borrow_mut().refuses_joins = true;
        self.legs.stop_joining();
    }

    /// The root, [`ROOT`] bytes.
    ///
    /// # Errors
    /// As a read of the device; and where there never was one, as of a damaged block.
    pub async fn root(&self) -> Result<Vec<u8>, IoError> {
        let mut buf = self.legs.buffer(BLOCK);
        self.read_blocks(0, &mut buf).await?;
        buf.truncate(ROOT);
        Ok(buf.to_vec())
    }

    /// Writes blocks, each from a byte of the device on, and at most [`ROOT`] bytes as the root where they are given; makes them and
    /// all that was written before durable, with one flush. They reach the regions in any order: after a power failure
    /// each block is old or new, or a mixture, and the root is old or new. Other writes wait meanwhile.
    ///
    /// # Errors
    /// When no leg took it; [`IoErrorKind::Invalid`] beyond the end, or when the root is too long.
    pub async fn commit(
        &self,
        writes: Vec<(u64, Buf)>,
        root: Option<&[u8]>,
    ) -> Result<(), IoError> {
        let info = self.info();
        let mut whole: Vec<(u64, Bufs)> = Vec::with_capacity(writes.len());
        for (offset, buf) in writes {
            let request = Request::write(offset, buf, true);
            request.check(info)?;
            if let Op::Write { bufs, .. } = request.op {
                whole.push((1 + offset / BLOCK as u64, bufs));
            }
        }
        let root = root.map(sealed).transpose()?;
        let _held = self.locks.exclusive(WHOLE).await;
        let _turn = self.turn.take(1).await;
        let mut pieces = Vec::with_capacity(whole.len() + 2);
        for (first, bufs) in whole {
            pieces.append(&mut self.begin_write(first, &bufs));
        }
        pieces.extend(root.map(|block| (self.place(0), self.legs.copy_of(&block))));
        self.sync_with(pieces).await
    }

    /// The first byte of a block in a region.
    pub(crate) fn place(&self, block: u64) -> u64 {
        self.state.borrow().layout.block_at(block)
    }

    /// Notes the sums of blocks from `first` on that are about to be written, and says where they go.
    fn begin_write(&self, first: u64, bufs: &[Buf]) -> Vec<Piece> {
        let state = &mut *self.state.borrow_mut();
        let (mut block, mut pieces) = (first, Vec::new());
        for buf in bufs {
            for (block, bytes) in (block..).zip(buf.chunks_exact(BLOCK)) {
                state.sums.set(block, bytes);
                state.dirty.insert(Sums::place(block));
            }
            let count = (buf.len() / BLOCK) as u64;
            let mut at = 0;
            while at < count {
                let run = state.layout.in_a_row(block + at, count - at);
                let bytes = at as usize * BLOCK..(at + run) as usize * BLOCK;
                pieces.push((state.layout.block_at(block + at), buf.slice(bytes)));
                at += run;
            }
            block += count;
        }
        pieces
    }

    async fn write(&self, offset: u64, bufs: &[Buf], fua: bool) -> Result<(), IoError> {
        let first = 1 + offset / BLOCK as u64;
        let count: usize = bufs.iter().map(|buf| buf.len() / BLOCK).sum();
        let _held = self.locks.exclusive(first..first + count as u64).await;
        let pieces = self.begin_write(first, bufs);
        self.put(&pieces).await?;
        if fua { self.flush().await } else { Ok(()) }
    }

    async fn write_zeroes(&self, offset: u64, len: u64, fua: bool) -> Result<(), IoError> {
        let zeroes = self.shard.pool().zeroed(len.min(ZEROES) as usize).freeze();
        let mut at = 0;
        while at < len {
            let some = (len - at).min(ZEROES);
            self.write(offset + at, &[zeroes.slice(0..some as usize)], false).await?;
            at += some;
        }
        if fua { self.flush().await } else { Ok(()) }
    }

    /// Writes to all legs.
    async fn put(&self, pieces: &[Piece]) -> Result<(), IoError> {
        self.state.borrow_mut().unsynced = true;
        let done = self.legs.write(pieces).await;
        // A flush may have begun meanwhile, which does not cover it.
        self.state.borrow_mut().unsynced = true;
        done
    }

    async fn flush(&self) -> Result<(), IoError> {
        let asked = self.flushes.begun.get();
        let _turn = self.turn.take(1).await;
        // One that began after this was asked for has made it durable.
        if self.flushes.done.get() > asked {
            return Ok(());
        }
        self.sync_with(Vec::new()).await
    }

    /// Writes `pieces` and what has changed of the table, and flushes. Whoever calls it has the turn.
    async fn sync_with(&self, mut pieces: Vec<Piece>) -> Result<(), IoError> {
        let number = self.flushes.begun.get() + 1;
        self.flushes.begun.set(number);
        let dirty = self.take_table(&mut pieces);
        let unsynced = std::mem::replace(&mut self.state.borrow_mut().unsynced, false);
        if !pieces.is_empty() || unsynced {
            let done = self.legs.write_durably(&pieces).await;
            if let Err(error) = done {
                let mut state = self.state.borrow_mut();
                state.dirty.extend(dirty);
                state.unsynced = true;
                return Err(error);
            }
        }
        self.flushes.done.set(number);
        Ok(())
    }

    /// Adds the changed blocks of the table to `pieces`, and gives their numbers: they count as written.
    fn take_table(&self, pieces: &mut Vec<Piece>) -> BTreeSet<u64> {
        let dirty = std::mem::take(&mut self.state.borrow_mut().dirty);
        pieces.extend(dirty.iter().map(|number| self.table_piece(*number)));
        dirty
    }

    /// Block `number` of the table.
    fn table_piece(&self, number: u64) -> Piece {
        let state = self.state.borrow();
        let bytes = state.sums.table_block(number);
        (state.layout.table_at(number), self.legs.copy_of(&bytes))
    }

    /// The header of the layout that is in use.
    fn header_piece(&self) -> Piece {
        let state = self.state.borrow();
        (0, self.legs.copy_of(&header::bytes_of(&state.layout, state.whole)))
    }

    fn agrees(&self, block: u64, bytes: &[u8]) -> bool {
        match block {
            0 => bytes.get(..SECTOR).is_some_and(|sector| is_sealed(ROOT_NUMBER, sector)),
            _ => self.state.borrow().sums.agrees(block, bytes),
        }
    }

    async fn read(&self, offset: u64, bufs: &mut BufMuts) -> Result<(), IoError> {
        let mut block = 1 + offset / BLOCK as u64;
        for buf in bufs {
            let count = (buf.len() / BLOCK) as u64;
            self.read_blocks(block, buf).await?;
            block += count;
        }
        Ok(())
    }

    /// Fills `buf` with whole blocks from `first` on.
    async fn read_blocks(&self, first: u64, buf: &mut BufMut) -> Result<(), IoError> {
        let count = (buf.len() / BLOCK) as u64;
        let mut rest = buf.split_off(0);
        let (mut at, mut result) = (0, Ok(()));
        while at < count {
            let run = self.state.borrow().layout.in_a_row(first + at, count - at);
            let after = rest.split_off(run as usize * BLOCK);
            let mut part = std::mem::replace(&mut rest, after);
            result = result.and(self.read_run(first + at, &mut part).await);
            if buf.rejoin(part).is_err() {
                result = result.and(Err(IoError::new(IoErrorKind::Gone)));
            }
            at += run;
        }
        result
    }

    /// The same of blocks that lie in a row.
    async fn read_run(&self, first: u64, buf: &mut BufMut) -> Result<(), IoError> {
        self.legs.read(self.place(first), buf).await?;
        for (block, at) in (first..).zip((0..buf.len()).step_by(BLOCK)) {
            if !self.agrees(block, &buf[at..at + BLOCK]) {
                let right = self.mend(block).await?;
                buf[at..at + BLOCK].copy_from_slice(&right);
                continue;
            }
            let state = &mut *self.state.borrow_mut();
            if state.verifying && block > 0 && state.sums.get(block) == UNKNOWN {
                state.doubtful.insert(block);
            }
        }
        Ok(())
    }

    /// A block that did not agree with its sum, when nobody writes to it any more; where it still does not, as another leg
    /// has it, and mended.
    async fn mend(&self, block: u64) -> Result<BufMut, IoError> {
        let _held = self.locks.exclusive(block..block + 1).await;
        let offset = self.place(block);
        let mut ours = self.legs.buffer(BLOCK);
        let leg = self.legs.read(offset, &mut ours).await?;
        if self.agrees(block, &ours) {
            return Ok(ours);
        }
        let mut damaged = vec![leg];
        for other in self.legs.held().filter(|other| *other != leg) {
            let mut theirs = self.legs.buffer(BLOCK);
            match self.legs.read_leg(other, offset, &mut theirs).await {
                Ok(()) if self.agrees(block, &theirs) => {
                    let right = theirs.freeze();
                    for leg in damaged {
                        self.rewrite(leg, (offset, right.slice(0..BLOCK))).await?;
                        self.state.borrow_mut().mended += 1;
                        let region = self.legs.name(leg);
                        tracing::warn!(
                            region,
                            offset,
                            "a block was damaged; mended from another leg of the mirror"
                        );
                    }
                    return Ok(self.shard.pool().copy_of(&right));
                }
                Ok(()) => damaged.push(other),
                Err(error) => self.detach_failed(other, "reading", error)?,
            }
        }
        let state = &mut *self.state.borrow_mut();
        if state.verifying {
            state.doubtful.insert(block);
            state.disagreed = true;
            return Ok(ours);
        }
        let region = self.legs.name(leg);
        tracing::error!(region, offset, "a block is not what was written, and no leg has it");
        Err(DAMAGE)
    }

    /// Writes to one leg, and detaches it where it does not take that.
    async fn rewrite(&self, leg: usize, piece: Piece) -> Result<(), IoError> {
        self.state.borrow_mut().unsynced = true;
        match self.legs.write_leg(leg, piece).await {
            Ok(()) => Ok(()),
            Err(error) => self.detach_failed(leg, "writing", error),
        }
    }

    /// Detaches a leg; the error is its own where it is the last.
    fn detach_failed(&self, leg: usize, doing: &str, error: IoError) -> Result<(), IoError> {
        self.legs.detach(leg, &format!("{doing} failed: {error}")).map_err(|_| error)
    }

    async fn answer(&self, request: &mut Request) -> Result<(), IoError> {
        request.check(self.info())?;
        let offset = request.offset;
        match &mut request.op {
            Op::Read(bufs) => self.read(offset, bufs).await,
            Op::Write { bufs, fua } => self.write(offset, bufs, *fua).await,
            Op::Flush => self.flush().await,
            // Bytes that are not needed may stay.
            Op::Discard { .. } => Ok(()),
            Op::WriteZeroes { len, fua, .. } => self.write_zeroes(offset, *len, *fua).await,
        }
    }
}

/// The block of a root.
fn sealed(root: &[u8]) -> Result<Vec<u8>, IoError> {
    let mut block = vec![0; BLOCK];
    let place = block.get_mut(..root.len().min(ROOT)).unwrap_or_default();
    if place.len() < root.len() {
        return Err(IoError::new(IoErrorKind::Invalid));
    }
    place.copy_from_slice(root);
    seal(ROOT_NUMBER, &mut block[..SECTOR]);
    Ok(block)
}

impl Device for Mirror {
    fn info(&self) -> &DeviceInfo {
        let parts = self.state.borrow().layout.ends().len();
        // Made when the layout was.
        self.infos.get(parts - 1).and_then(OnceCell::get).unwrap_or_else(|| unreachable!())
    }

    fn submit(&self, mut request: Request, done: Completion) {
        // A mirror that is called is held by its caller.
        let Some(own) = self.me.upgrade() else { return };
        self.shard.spawn(async move {
            let result = own.answer(&mut request).await;
            done.finish(result, request.op);
        });
    }

    fn cut_from(&self, bytes: u64) {
        self.legs.any(|device| {
            device.cut_from(bytes);
            false
        });
    }

    fn layers(&self) -> u32 {
        let most = Cell::new(0);
        self.legs.any(|device| {
            most.set(most.get().max(device.layers()));
            false
        });
        most.get()
    }

    fn may_hang(&self) -> bool {
        self.legs.any(|device| device.may_hang())
    }

    fn hurry(&self) {
        self.legs.any(|device| {
            device.hurry();
            false
        });
    }

    fn waits_for_silent(&self) -> bool {
        self.legs.any(|device| device.waits_for_silent())
    }

    fn waits_for_space(&self) -> bool {
        self.legs.any(|device| device.waits_for_space())
    }
}
