//! One simulated member: its images and its faults.
//!
//! # Fault model
//!
//! A member has a *live* image, which reads see, and, when it has a volatile cache, a *durable* one.
//!
//! - **Order.** Requests take random times, so they complete in any order. A write takes effect at one
//!   instant between submission and completion; a read sees either the instant of its submission or
//!   that of its completion. A device may also complete inside `submit`.
//! - **Cache.** A write without FUA that has completed is only live. A flush makes durable what had
//!   completed before the flush was submitted, nothing later; FUA makes the one write durable. The cache
//!   writes back some of what it holds whenever it likes.
//! - **Crash.** Each write that is not durable (cached, or submitted and not completed) is kept whole, lost
//!   whole, or torn: of each logical block the device decides anew whether it got through. A later
//!   write can survive while an earlier one is lost, but an older version of a block never replaces a newer
//!   one that is durable. A logical block itself is never torn, as disks promise. Where the members of an array
//!   have blocks of different sizes, all tear at the largest, which is the array's: nothing could keep its
//!   promise otherwise.
//! - **Read errors.** Logical blocks can be unreadable ([`IoErrorKind::Medium`]) until they are written again: of the data
//!   area at any time, of the metadata when an array is about to start.
//! - **Write errors.** A write fails with `Medium`; any of its blocks may have got through.
//! - **Defects.** Logical blocks of the data area that take no write, ever: they keep what they held, and give
//!   it, or cannot be read. The other blocks of such a write may have got through.
//! - **Gone.** From some instant on every request fails with [`IoErrorKind::Gone`]; writes under way may
//!   have got through in part. After a crash the member may be there again, with what it held.
//! - **Flush errors.** A flush fails with `Medium`, once or each time. What it was to make durable is there nevertheless,
//!   or is lost: a brick of a volume loses any of it at once, and also when it is gone; a member of an array has what was
//!   durable before, and gives that either when the power fails, like a page cache that calls its pages clean, or to each
//!   read from then on, like a page cache that drops them.
//! - **Slow, hanging.** A request takes milliseconds, or comes back seconds late, as if nothing had been; or the member
//!   answers none any more, and those that it has got are answered when it comes back, long after it was given up.
//! - **Lying.** The member acknowledges flushes and FUA and does nothing: outside of every promise of what is held. The
//!   simulator must see the loss and say that it was the member; a block that is wrong in a row of which no liar has lost
//!   anything is a fault all the same. Everything else is promised all the same: requests end,
//!   memory is bounded, nothing panics, each unit has one owner.
//! - **Bit rot.** Bytes change without an error. Outside of the promise for reads; a check must count it.
//!
//! Superblocks are written to the same images under the same rules.

use crate::rng::Rng;
use braid_device::{Bufs, DeviceInfo, IoError, IoErrorKind};
use braid_shard::Nanos;
use image::Image;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes at which the state of an image is kept.
pub const SECTOR: u64 = 512;
/// Writes that a cache holds at most.
const CACHE_MAX: usize = 256;

/// What kind of member it is.
#[derive(Clone, Debug)]
pub struct MemberKind {
    /// Its place among the members.
    pub index: usize,
    /// The array that it belongs to: there are several in a stack.
    pub array: usize,
    /// What it says of itself.
    pub info: DeviceInfo,
    /// What a torn write is torn into, in bytes: the array's logical block.
    pub tear: u64,
    /// It acknowledges flushes and FUA and does nothing.
    pub lies: bool,
    /// The images start with these bytes instead of zeroes.
    pub garbage: Option<u64>,
}

struct Cached {
    seq: u32,
    fua: bool,
    offset: u64,
    data: Vec<u8>,
}

/// Which sectors hold what the array means them to hold.
struct Fresh {
    live: Vec<bool>,
    durable: Vec<bool>,
}

struct State {
    live: Image,
    /// `None`: what is live is durable.
    durable: Option<Image>,
    cache: VecDeque<Cached>,
    /// By sector: the write whose bytes are durable.
    durable_seq: Vec<u32>,
    seq: u32,
    bad: BTreeSet<u64>,
    /// Logical blocks that take no write.
    defects: BTreeSet<u64>,
    gone: bool,
    /// It never comes back.
    left: bool,
    /// The write that fails, counted from now.
    fail_write_in: Option<u32>,
    /// So many flushes fail from the next one on.
    fail_flushes: u32,
    /// For a liar: the last write that a flush has said to be durable.
    promised: u32,
    /// What a failed flush has lost and reads still see, until power fails.
    lost: Vec<Range<u64>>,
    fresh: Option<Fresh>,
}

/// See the module's documentation.
pub struct Member {
    /// What it is.
    pub kind: MemberKind,
    /// The slot that it holds by the last superblock that was sent to it.
    pub slot: Cell<Option<usize>>,
    /// By that superblock, all of it is valid.
    pub in_sync: Cell<bool>,
    /// The array cannot use it any more: it is gone, gave a write error, or was failed by command.
    pub out: Cell<bool>,
    /// The array has given it up: a superblock on its way says so.
    pub dropped: Cell<bool>,
    /// By that superblock, it has a bad-block log that can be written.
    pub has_log: Cell<bool>,
    /// It has refused a write, and has a log: blocks may be recorded as bad, and count as lost.
    pub scarred: Cell<bool>,
    /// Some of its blocks could not be read or written at some time: a bad-block log may still list them.
    pub was_bad: Cell<bool>,
    /// A write of it has failed that was ordered to: an array may have listed its bytes as bad.
    pub has_failed_a_write: Cell<bool>,
    /// Some of its metadata was damaged on purpose at some time.
    pub damaged: Cell<bool>,
    /// Its index in the role table.
    pub dev_number: Cell<Option<u32>>,
    /// Its component in bytes, empty until the array is created.
    pub data: RefCell<Range<u64>>,
    /// A flush that fails leaves any part of what it was for.
    pub forgets: Cell<bool>,
    /// A flush that fails makes nothing durable, and nor does a later one what it was for.
    pub drops_pages: Cell<bool>,
    /// In this life of the array it has lost something that it had acknowledged.
    pub forgot: Cell<bool>,
    /// Reads give what was there before the writes that a failed flush has lost, as soon as time has passed.
    pub shows_loss: Cell<bool>,
    /// When a flush failed whose loss no read has seen yet.
    pub lost_at: Cell<Option<Nanos>>,
    /// Bytes of the device that were said to be durable and are not what they were: it lies.
    pub lied: RefCell<Vec<Range<u64>>>,
    /// It answers no request.
    pub hung: Cell<bool>,
    /// Requests take so many times as long.
    pub slowness: Cell<u64>,
    state: RefCell<State>,
}

impl Member {
    /// A member at rest.
    pub fn new(kind: MemberKind) -> Member {
        let size = kind.info.size as usize;
        let garbage = kind.garbage.map(|seed| Rng::new(seed, kind.index as u64));
        let volatile = kind.info.volatile_cache;
        let image = || Image::new(size, garbage.as_ref());
        let state = State {
            durable: volatile.then(image),
            live: image(),
            cache: VecDeque::new(),
            durable_seq: if volatile { vec![0; size / SECTOR as usize] } else { Vec::new() },
            seq: 0,
            bad: BTreeSet::new(),
            defects: BTreeSet::new(),
            gone: false,
            left: false,
            fail_write_in: None,
            fail_flushes: 0,
            promised: 0,
            lost: Vec::new(),
            fresh: None,
        };
        Member {
            kind,
            slot: Cell::new(None),
            in_sync: Cell::new(false),
            out: Cell::new(false),
            dropped: Cell::new(false),
            has_log: Cell::new(false),
            scarred: Cell::new(false),
            was_bad: Cell::new(false),
            has_failed_a_write: Cell::new(false),
            damaged: Cell::new(false),
            dev_number: Cell::new(None),
            data: RefCell::new(0..0),
            forgets: Cell::new(false),
            drops_pages: Cell::new(false),
            shows_loss: Cell::new(false),
            lost_at: Cell::new(None),
            lied: RefCell::default(),
            forgot: Cell::new(false),
            hung: Cell::new(false),
            slowness: Cell::new(1),
            state: RefCell::new(state),
        }
    }

    /// How messages name it.
    pub fn name(&self) -> &str {
        &self.kind.info.name
    }

    /// It answers every request with "gone" (true), or is there again.
    pub fn set_gone(&self, gone: bool) {
        self.state.borrow_mut().gone = gone;
    }

    /// It answers every request with "gone".
    pub fn is_gone(&self) -> bool {
        self.state.borrow().gone
    }

    /// It is gone, and never comes back.
    pub fn leave(&self) {
        let mut state = self.state.borrow_mut();
        (state.gone, state.left) = (true, true);
    }

    /// It never comes back.
    pub fn has_left(&self) -> bool {
        self.state.borrow().left
    }

    /// It is gone, and has any part of what it has acknowledged, should it come back.
    pub fn die(&self, rng: &Rng) {
        self.lose_cache(rng);
        self.state.borrow_mut().gone = true;
    }

    /// The next flush fails.
    pub fn fail_flush(&self) {
        self.fail_flushes(1);
    }

    /// A flush has failed, and what it was for is still read and not durable.
    pub fn has_lost(&self) -> bool {
        !self.state.borrow().lost.is_empty()
    }

    /// So many flushes fail from the next one on.
    pub fn fail_flushes(&self, count: u32) {
        self.state.borrow_mut().fail_flushes = count;
    }

    /// The write after `writes` more fails.
    pub fn fail_write_in(&self, writes: Option<u32>) {
        self.state.borrow_mut().fail_write_in = writes;
    }

    /// It answers again, and writes and flushes that were to fail succeed.
    pub fn cancel_failures(&self) {
        let mut state = self.state.borrow_mut();
        state.fail_write_in = None;
        state.fail_flushes = 0;
        self.hung.set(false);
    }

    /// Every block can be read again.
    pub fn heal(&self) {
        let mut state = self.state.borrow_mut();
        state.bad.clear();
        state.defects.clear();
        drop(state);
        self.cancel_failures();
    }

    /// What it holds counts again, but for what the array will write to it: it comes back as the member
    /// that it was. What it lacks then is seen in what is read, no more by itself.
    pub fn trust(&self) {
        self.state.borrow_mut().fresh = None;
    }

    /// Nothing on it is what the array means it to hold: it is a new spare, or it missed a write.
    pub fn mark_stale(&self) {
        let mut state = self.state.borrow_mut();
        let sectors = (state.live.len() / SECTOR) as usize;
        state.fresh = Some(Fresh { live: vec![false; sectors], durable: vec![false; sectors] });
        self.scarred.set(!state.defects.is_empty());
    }

    /// These bytes are part of its component from now on. Nobody has written there yet, so it lacks nothing.
    pub fn has_more(&self, bytes: Range<u64>) {
        let sectors = (bytes.start / SECTOR) as usize..(bytes.end / SECTOR) as usize;
        if let Some(fresh) = &mut self.state.borrow_mut().fresh {
            fresh.live[sectors.clone()].fill(true);
            fresh.durable[sectors].fill(true);
        }
    }

    /// The number of the last write, for a flush to remember.
    pub fn writes_so_far(&self) -> u32 {
        self.state.borrow().seq
    }

    /// The bytes of the live image.
    pub fn image(&self, range: Range<u64>) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        if range.end > state.live.len() { Vec::new() } else { state.live.get(range).to_vec() }
    }

    /// It is another device: nothing of what it held is there any more.
    pub fn replace(&self, rng: &Rng) {
        self.heal();
        self.set_gone(false);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(durable) = &mut state.durable {
            durable.renew(rng);
        }
        state.live.renew(rng);
        rng.skip(state.live.len() / 8);
        state.cache.clear();
        state.lost.clear();
        state.durable_seq.fill(state.seq);
        state.fresh = None;
        for flag in [&self.in_sync, &self.out, &self.dropped, &self.has_log, &self.scarred] {
            flag.set(false);
        }
        self.slot.set(None);
        self.dev_number.set(None);
        *self.data.borrow_mut() = 0..0;
    }

    /// Forgets what it holds in its cache: what is durable is what there is.
    pub fn lose_power(&self, rng: &Rng) {
        self.lose_cache(rng);
    }

    /// Component bytes that were said to be durable and are not what they were, in whole sectors; `None` when bytes of
    /// its metadata are among them.
    pub fn lied_in_data(&self) -> Option<Vec<Range<u64>>> {
        let data = self.data.borrow();
        let within = |lied: &Range<u64>| {
            let whole = data.start <= lied.start && lied.end <= data.end;
            whole.then(|| lied.start - data.start..lied.end - data.start)
        };
        self.lied.borrow().iter().map(within).collect()
    }

    /// All that it holds now, to be put back later.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        let all = 0..state.live.len();
        state.live.get(all).to_vec()
    }

    /// It holds what it held at an earlier time, as when a snapshot is restored below the array.
    pub fn restore(&self, snapshot: &[u8]) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        for image in state.images() {
            image.get_mut(0..snapshot.len() as u64).copy_from_slice(snapshot);
        }
        state.cache.clear();
        state.lost.clear();
        state.durable_seq.fill(state.seq);
        state.fresh = None;
    }

    /// It is gone for good, with all that it held.
    pub fn scrap(&self) {
        let mut state = self.state.borrow_mut();
        (state.gone, state.left) = (true, true);
        (state.live, state.durable) = (Image::new(0, None), None);
        (state.durable_seq, state.fresh) = (Vec::new(), None);
        state.cache.clear();
    }

    /// All that it has in its cache becomes durable, as a cache may do at any time.
    pub fn settle(&self) {
        self.state.borrow_mut().write_back(u32::MAX);
    }

    /// Changes bytes without an error, on both images.
    pub fn rot(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        for image in state.images() {
            image.get_mut(offset..offset + bytes.len() as u64).copy_from_slice(bytes);
        }
    }

    /// Reads into `out`.
    ///
    /// # Errors
    /// Gone, or a block that cannot be read.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        out.copy_from_slice(self.readable(
            &mut self.state.borrow_mut(),
            offset,
            out.len() as u64,
        )?);
        Ok(())
    }

    /// [`Member::read`] of `len` bytes.
    ///
    /// # Errors
    /// As there.
    pub fn read_new(&self, offset: u64, len: u64) -> Result<Vec<u8>, IoError> {
        self.readable(&mut self.state.borrow_mut(), offset, len).map(<[u8]>::to_vec)
    }

    fn readable<'a>(
        &self,
        state: &'a mut State,
        offset: u64,
        len: u64,
    ) -> Result<&'a [u8], IoError> {
        if state.gone {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        let (end, tear) = (offset + len, self.kind.tear);
        if state.bad.range(offset / tear..end.div_ceil(tear)).next().is_some() {
            return Err(IoError::new(IoErrorKind::Medium));
        }
        Ok(state.live.get(offset..end))
    }

    /// Writes, now; torn when the write fails.
    ///
    /// # Errors
    /// Gone, or a write error that was ordered.
    pub fn write(&self, rng: &Rng, offset: u64, data: &[u8], fua: bool) -> Result<(), IoError> {
        let mut state = self.state.borrow_mut();
        if state.gone {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        if let Some(left) = state.fail_write_in {
            state.fail_write_in = left.checked_sub(1);
            if left == 0 {
                self.has_failed_a_write.set(true);
                let durable = self.pieces(rng, 50, offset, data);
                for (at, piece) in durable {
                    state.apply(at, piece, true, self.kind.tear);
                }
                return Err(IoError::new(IoErrorKind::Medium));
            }
        }
        let tear = self.kind.tear;
        let blocks = offset / tear..(offset + data.len() as u64).div_ceil(tear);
        if state.defects.range(blocks).next().is_some() {
            for (at, piece) in self.blocks(offset, data) {
                if !state.defects.contains(&(at / tear)) && rng.percent(50) {
                    state.apply(at, piece, true, tear);
                }
            }
            return Err(IoError::new(IoErrorKind::Medium));
        }
        state.apply(offset, data, fua && !self.kind.lies, tear);
        if fua
            && self.kind.lies
            && let Some(last) = state.cache.back_mut()
        {
            last.fua = true;
        }
        Ok(())
    }

    /// Makes durable what had been written up to write `seq`.
    ///
    /// # Errors
    /// Gone, or a failure that was ordered.
    pub fn flush(&self, seq: u32) -> Result<(), IoError> {
        let mut state = self.state.borrow_mut();
        if state.gone {
            return Err(IoError::new(IoErrorKind::Gone));
        }
        if state.fail_flushes > 0 {
            state.fail_flushes -= 1;
            if self.drops_pages.get() {
                let cached = std::mem::take(&mut state.cache);
                let end = |write: &Cached| write.offset + write.data.len() as u64;
                let promised = cached.iter().filter(|write| self.lied_about(&state, write));
                self.lied.borrow_mut().extend(promised.map(|write| write.offset..end(write)));
                state.lost.extend(cached.iter().map(|write| write.offset..end(write)));
            } else if self.forgets.get() {
                drop(state);
                self.lose_cache(&Rng::new(seq.into(), self.kind.index as u64));
            } else {
                state.write_back(u32::MAX);
            }
            return Err(IoError::new(IoErrorKind::Medium));
        }
        if self.kind.lies {
            state.promised = state.promised.max(seq);
        } else {
            state.write_back(seq);
        }
        Ok(())
    }

    /// It has said that this write of its cache is durable.
    fn lied_about(&self, state: &State, write: &Cached) -> bool {
        self.kind.lies && (write.fua || write.seq <= state.promised)
    }

    /// Any part of what is in its cache becomes durable, and the rest was never there.
    fn lose_cache(&self, rng: &Rng) {
        let keep = *rng.pick(&[0, 50, 100]);
        self.lost_at.set(None);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let cached = std::mem::take(&mut state.cache);
        let end = |write: &Cached| write.offset + write.data.len() as u64;
        let mut ranges = std::mem::take(&mut state.lost);
        ranges.extend(cached.iter().map(|write| write.offset..end(write)));
        self.forgot.set(self.forgot.get() || !ranges.is_empty());
        let mut promised = Vec::new();
        for write in &cached {
            if self.lied_about(state, write) {
                promised.push((write.offset, state.live.get(write.offset..end(write)).to_vec()));
            }
        }
        for write in &cached {
            for (at, piece) in self.pieces(rng, keep, write.offset, &write.data) {
                state.store_durable(write.seq, at, piece);
            }
        }
        state.take_back(&ranges);
        let mut lied = self.lied.borrow_mut();
        for (offset, before) in &promised {
            for (at, bytes) in self.blocks(*offset, before) {
                let block = at..at + bytes.len() as u64;
                if state.live.get(block.clone()) != bytes {
                    lied.push(block);
                } else if let Some(fresh) = &mut state.fresh {
                    // The same was there before it was written.
                    let sectors = (block.start / SECTOR) as usize..(block.end / SECTOR) as usize;
                    fresh.live[sectors.clone()].fill(true);
                    fresh.durable[sectors].fill(true);
                }
            }
        }
    }

    /// Power fails while `under_way` is being written.
    pub fn power_cut(&self, rng: &Rng, mut under_way: Vec<(u64, Vec<u8>)>) {
        rng.shuffle(&mut under_way);
        self.lose_cache(rng);
        let mut state = self.state.borrow_mut();
        let keep = *rng.pick(&[0, 50, 50, 100]);
        for (offset, data) in &under_way {
            for (at, piece) in self.pieces(rng, keep, *offset, data) {
                if state.defects.is_empty() {
                    state.apply(at, piece, true, self.kind.tear);
                    continue;
                }
                for (at, block) in self.blocks(at, piece) {
                    if !state.defects.contains(&(at / self.kind.tear)) {
                        state.apply(at, block, true, self.kind.tear);
                    }
                }
            }
        }
        drop(state);
        self.cancel_failures();
    }

    /// The parts of a write that get through: all, none, or some of its logical blocks.
    fn pieces<'a>(
        &self,
        rng: &Rng,
        keep: u64,
        offset: u64,
        data: &'a [u8],
    ) -> Vec<(u64, &'a [u8])> {
        let torn = rng.percent(30);
        if !torn {
            return if rng.percent(keep) { vec![(offset, data)] } else { Vec::new() };
        }
        self.blocks(offset, data).filter(|_| rng.percent(50)).collect()
    }

    /// The logical blocks of a write.
    fn blocks<'a>(&self, offset: u64, data: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
        let (tear, mut at) = (self.kind.tear, 0);
        std::iter::from_fn(move || {
            let start = at;
            if start >= data.len() as u64 {
                return None;
            }
            at = (((offset + start) / tear + 1) * tear - offset).min(data.len() as u64);
            Some((offset + start, &data[start as usize..at as usize]))
        })
    }
}

impl State {
    /// The live image goes back to what is durable, in these ranges.
    fn take_back(&mut self, ranges: &[Range<u64>]) {
        let Some(durable) = &mut self.durable else { return };
        for range in ranges {
            self.live.get_mut(range.clone()).copy_from_slice(durable.get(range.clone()));
            if let Some(fresh) = &mut self.fresh {
                let sectors = (range.start / SECTOR) as usize..(range.end / SECTOR) as usize;
                fresh.live[sectors.clone()].copy_from_slice(&fresh.durable[sectors]);
            }
        }
    }

    /// The live image, and the durable one where the member has two.
    fn images(&mut self) -> impl Iterator<Item = &mut Image> {
        std::iter::once(&mut self.live).chain(&mut self.durable)
    }

    fn apply(&mut self, offset: u64, data: &[u8], fua: bool, tear: u64) {
        let end = offset + data.len() as u64;
        self.live.get_mut(offset..end).copy_from_slice(data);
        if !self.bad.is_empty() {
            for block in offset.div_ceil(tear)..end / tear {
                self.bad.remove(&block);
            }
        }
        if let Some(fresh) = &mut self.fresh {
            fresh.live[(offset / SECTOR) as usize..(end / SECTOR) as usize].fill(true);
        }
        self.seq += 1;
        if fua || self.durable.is_none() {
            return self.store_durable(self.seq, offset, data);
        }
        self.cache.push_back(Cached { seq: self.seq, fua: false, offset, data: data.to_vec() });
        if self.cache.len() > CACHE_MAX
            && let Some(oldest) = self.cache.pop_front()
        {
            self.store_durable(oldest.seq, oldest.offset, &oldest.data);
        }
    }

    /// Makes bytes of write `seq` durable, where nothing newer is.
    fn store_durable(&mut self, seq: u32, offset: u64, data: &[u8]) {
        let sectors = (offset / SECTOR) as usize..((offset + data.len() as u64) / SECTOR) as usize;
        if let Some(fresh) = &mut self.fresh {
            fresh.durable[sectors.clone()].fill(true);
        }
        let Some(durable) = &mut self.durable else { return };
        for (sector, bytes) in sectors.zip(data.chunks(SECTOR as usize)) {
            if self.durable_seq[sector] < seq {
                self.durable_seq[sector] = seq;
                let at = sector as u64 * SECTOR;
                durable.get_mut(at..at + bytes.len() as u64).copy_from_slice(bytes);
            }
        }
    }

    fn write_back(&mut self, seq: u32) {
        let mut cache = std::mem::take(&mut self.cache);
        while let Some(write) = front_until(&mut cache, seq) {
            self.store_durable(write.seq, write.offset, &write.data);
        }
        self.cache = cache;
    }
}

fn front_until(cache: &mut VecDeque<Cached>, seq: u32) -> Option<Cached> {
    if cache.front()?.seq <= seq { cache.pop_front() } else { None }
}

/// The payload of a write, in one piece.
pub fn joined(bufs: &Bufs) -> Cow<'_, [u8]> {
    if let [one] = bufs.as_slice() {
        return Cow::Borrowed(one);
    }
    let mut data = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
    for buf in bufs {
        data.extend_from_slice(buf);
    }
    Cow::Owned(data)
}

mod damage;
mod image;
mod kept;
#[cfg(test)]
mod tests;
