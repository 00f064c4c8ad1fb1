//! A file system in memory, as plain as can be: what the model and the client are held against in tests. It commits
//! now and then and at fsync, and a crash leaves the last commit, with bytes written in place since then. It can be
//! told to have a flaw, which must then be found.

use super::client::Clock;
use super::file::SECTOR;
use crate::rng::Rng;
use braid_filesystem::{
    Allocate, Attr, Caller, DirEntry, Entry, Errno, FileSystem, Ino, Kind, NAME_MAX, NewNode,
    Opening, RENAME_EXCHANGE, RENAME_NOREPLACE, ROOT, RenameFlags, Seek, SetAttr, SetTime, Space,
    Time, Writing, XATTR_NAME_MAX, XATTR_VALUE_MAX, XattrMode,
};
use braid_shard::{Buf, Shard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// An fsync does nothing.
    ForgetsFsync,
    /// A commit may come between the two halves of a rename.
    HalfRename,
    /// Space of files that are gone is used again before that is committed.
    EarlyReuse,
    /// A file that is cut and made longer again shows old bytes.
    StaleTail,
    /// Reading a directory misses an entry after one was removed.
    SkipsEntry,
    /// Two writes into one block lose one of them.
    LostUpdate,
    /// Times do not change with a write.
    OldTimes,
}

#[derive(Clone)]
struct MemNode {
    attr: Attr,
    parent: Ino,
    /// Cookie, file.
    names: BTreeMap<Vec<u8>, (u64, Ino)>,
    next_cookie: u64,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    sectors: BTreeMap<u64, [u8; SECTOR as usize]>,
}

type State = BTreeMap<Ino, MemNode>;

/// See the module's documentation.
pub struct MemoryFs {
    state: RefCell<State>,
    committed: RefCell<State>,
    held: RefCell<BTreeMap<Ino, u64>>,
    next: Cell<Ino>,
    shard: Shard,
    clock: Clock,
    rng: Rng,
    flaw: Flaw,
    /// Sectors that there may be.
    room: u64,
}

type Done<T> = Result<T, Errno>;

impl MemoryFs {
    pub fn new(shard: &Shard, clock: Clock, rng: Rng, flaw: Flaw, room: u64) -> MemoryFs {
        let state = State::from([(ROOT, fresh(ROOT, ROOT, Kind::Directory, clock()))]);
        MemoryFs::from_state(shard, clock, rng, flaw, room, state)
    }

    fn from_state(
        shard: &Shard,
        clock: Clock,
        rng: Rng,
        flaw: Flaw,
        room: u64,
        mut state: State,
    ) -> MemoryFs {
        let next = state.keys().max().map_or(ROOT, |ino| *ino) + 1000;
        state.retain(|_, node| node.attr.nlink > 0);
        MemoryFs {
            committed: RefCell::new(state.clone()),
            state: RefCell::new(state),
            held: RefCell::default(),
            next: Cell::new(next),
            shard: shard.clone(),
            clock,
            rng,
            flaw,
            room,
        }
    }

    /// What a crash at this moment leaves.
    pub fn after_crash(&self, shard: &Shard, clock: Clock, rng: Rng) -> MemoryFs {
        let (mut left, live) = (self.committed.borrow().clone(), self.state.borrow());
        let foreign = live.values().flat_map(|node| node.sectors.values()).next().copied();
        for (ino, node) in &mut left {
            let now = live.get(ino);
            if let (None, Flaw::EarlyReuse, Some(bytes)) = (now, self.flaw, foreign) {
                node.sectors.values_mut().for_each(|sector| *sector = bytes);
            }
            let Some(now) = now else { continue };
            let sectors = node.attr.size.div_ceil(SECTOR);
            for (sector, bytes) in now.sectors.range(..sectors) {
                if rng.percent(50) {
                    node.sectors.insert(*sector, *bytes);
                }
            }
            cut(node, node.attr.size);
        }
        MemoryFs::from_state(shard, clock, rng, self.flaw, self.room, left)
    }

    /// A clean stop.
    pub fn commit(&self) {
        *self.committed.borrow_mut() = self.state.borrow().clone();
    }

    async fn before(&self) {
        if self.rng.percent(60) {
            self.shard.sleep(self.rng.range(1..50_000)).await;
        }
    }

    async fn after(&self) {
        if self.rng.percent(3) {
            self.commit();
        }
        self.before().await;
    }

    fn with<T>(&self, ino: Ino, work: impl FnOnce(&mut MemNode, Time) -> Done<T>) -> Done<T> {
        let mut state = self.state.borrow_mut();
        work(state.get_mut(&ino).ok_or(Errno::Stale)?, (self.clock)())
    }

    fn entry(&self, ino: Ino) -> Done<Entry> {
        let attr = self.with(ino, |node, _| Ok(node.attr))?;
        *self.held.borrow_mut().entry(ino).or_default() += 1;
        Ok(Entry { attr, generation: 0 })
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Done<Ino> {
        if name.len() > NAME_MAX {
            return Err(Errno::NameTooLong);
        }
        self.with(parent, |node, _| {
            if node.attr.kind != Kind::Directory {
                return Err(Errno::NotDirectory);
            }
            node.names.get(name).map(|(_, ino)| *ino).ok_or(Errno::NotFound)
        })
    }

    /// The name may be given in the directory.
    fn free(&self, parent: Ino, name: &[u8]) -> Done<()> {
        match self.find(parent, name) {
            Ok(_) => Err(Errno::Exists),
            Err(Errno::NotFound) => self.with(parent, |node, _| match node.attr.nlink {
                0 => Err(Errno::NotFound),
                _ => Ok(()),
            }),
            Err(errno) => Err(errno),
        }
    }

    fn enter(&self, parent: Ino, name: &[u8], ino: Ino) -> Done<()> {
        let is_dir = self.with(ino, |node, _| {
            node.parent = parent;
            Ok(node.attr.kind == Kind::Directory)
        })?;
        self.with(parent, |node, now| {
            node.next_cookie += 1;
            node.names.insert(name.to_vec(), (node.next_cookie, ino));
            node.attr.nlink += u32::from(is_dir);
            (node.attr.mtime, node.attr.ctime) = (now, now);
            Ok(())
        })
    }

    fn leave(&self, parent: Ino, name: &[u8]) -> Done<Ino> {
        let ino = self.find(parent, name)?;
        let is_dir = self.with(ino, |node, _| Ok(node.attr.kind == Kind::Directory))?;
        self.with(parent, |node, now| {
            node.names.remove(name);
            node.attr.nlink -= u32::from(is_dir);
            (node.attr.mtime, node.attr.ctime) = (now, now);
            Ok(ino)
        })
    }

    fn lose(&self, ino: Ino) -> Done<()> {
        self.with(ino, |node, now| {
            let less = if node.attr.kind == Kind::Directory { 2 } else { 1 };
            node.attr.nlink -= less;
            node.attr.ctime = now;
            Ok(())
        })?;
        self.reap(ino);
        Ok(())
    }

    fn reap(&self, ino: Ino) {
        let held = self.held.borrow().contains_key(&ino);
        let mut state = self.state.borrow_mut();
        if !held && state.get(&ino).is_some_and(|node| node.attr.nlink == 0) {
            state.remove(&ino);
        }
    }

    fn release(&self, ino: Ino, count: u64) {
        let mut held = self.held.borrow_mut();
        let left = held.get(&ino).copied().unwrap_or(0).checked_sub(count);
        match left.expect("more references given back than were taken") {
            0 => held.remove(&ino),
            left => held.insert(ino, left),
        };
        drop(held);
        self.reap(ino);
    }

    fn fits(&self, more: u64) -> Done<()> {
        let used: usize = self.state.borrow().values().map(|node| node.sectors.len()).sum();
        if used as u64 + more > self.room { Err(Errno::NoSpace) } else { Ok(()) }
    }

    fn must_be_empty(&self, ino: Ino) -> Done<()> {
        self.with(ino, |node, _| if node.names.is_empty() { Ok(()) } else { Err(Errno::NotEmpty) })
    }

    fn is_above(&self, ino: Ino, mut below: Ino) -> bool {
        loop {
            match (below == ino, below) {
                (true, _) => return true,
                (_, ROOT) => return false,
                _ => below = self.with(below, |node, _| Ok(node.parent)).unwrap_or(ROOT),
            }
        }
    }
}

fn fresh(ino: Ino, parent: Ino, kind: Kind, now: Time) -> MemNode {
    let attr = Attr {
        ino,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm: 0o755,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    };
    let (names, xattrs) = (BTreeMap::new(), BTreeMap::new());
    let (target, sectors) = (Vec::new(), BTreeMap::new());
    MemNode { attr, parent, names, next_cookie: 0, target, xattrs, sectors }
}

/// Nothing is left behind byte `size`.
fn cut(node: &mut MemNode, size: u64) {
    node.sectors.retain(|sector, _| *sector < size.div_ceil(SECTOR));
    if let Some(last) = node.sectors.get_mut(&(size / SECTOR)) {
        last[(size % SECTOR) as usize..].fill(0);
    }
}

fn put(node: &mut MemNode, offset: u64, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let place = offset + at as u64;
        let skip = (place % SECTOR) as usize;
        let take = (SECTOR as usize - skip).min(bytes.len() - at);
        let sector = node.sectors.entry(place / SECTOR).or_insert([0; SECTOR as usize]);
        sector[skip..skip + take].copy_from_slice(&bytes[at..at + take]);
        at += take;
    }
}

impl FileSystem for MemoryFs {
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Done<Entry> {
        self.before().await;
        let ino = match name {
            b"." => self.with(parent, |node, _| match node.attr.kind {
                Kind::Directory if node.attr.nlink == 0 => Err(Errno::NotFound),
                Kind::Directory => Ok(parent),
                _ => Err(Errno::NotDirectory),
            })?,
            b".." => self.with(parent, |node, _| match node.attr.kind {
                Kind::Directory if node.attr.nlink == 0 => Err(Errno::NotFound),
                Kind::Directory => Ok(node.parent),
                _ => Err(Errno::NotDirectory),
            })?,
            _ => self.find(parent, name)?,
        };
        self.entry(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.release(ino, count);
    }

    async fn attr(&self, ino: Ino) -> Done<Attr> {
        self.before().await;
        self.with(ino, |node, _| Ok(node.attr))
    }

    async fn set_attr(&self, _: Caller, ino: Ino, set: SetAttr) -> Done<Attr> {
        self.before().await;
        let attr = self.with(ino, |node, now| {
            let time = |time| match time {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            if let Some(size) = set.size {
                if node.attr.kind != Kind::File {
                    return Err(Errno::Invalid);
                }
                if self.flaw != Flaw::StaleTail {
                    cut(node, size);
                }
                (node.attr.size, node.attr.mtime) = (size, now);
            }
            node.attr.perm = set.perm.unwrap_or(node.attr.perm);
            node.attr.uid = set.uid.unwrap_or(node.attr.uid);
            node.attr.gid = set.gid.unwrap_or(node.attr.gid);
            node.attr.atime = set.atime.map_or(node.attr.atime, time);
            node.attr.mtime = set.mtime.map_or(node.attr.mtime, time);
            node.attr.ctime = set.ctime.unwrap_or(now);
            Ok(node.attr)
        });
        self.after().await;
        attr
    }

    async fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new: NewNode<'_>,
    ) -> Done<Entry> {
        self.before().await;
        self.free(parent, name)?;
        let ino = self.next.replace(self.next.get() + 1);
        let mut node = fresh(ino, parent, new.kind, (self.clock)());
        (node.attr.perm, node.attr.rdev) = (new.masked(), new.rdev);
        (node.attr.uid, node.attr.gid) = (caller.uid, caller.gid);
        (node.attr.size, node.target) = (new.target.len() as u64, new.target.to_vec());
        self.state.borrow_mut().insert(ino, node);
        self.enter(parent, name, ino)?;
        let entry = self.entry(ino);
        self.after().await;
        entry
    }

    async fn read_link(&self, ino: Ino) -> Done<Vec<u8>> {
        self.before().await;
        self.with(ino, |node, _| match node.attr.kind {
            Kind::Symlink => Ok(node.target.clone()),
            _ => Err(Errno::Invalid),
        })
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Done<Entry> {
        self.before().await;
        self.free(parent, name)?;
        self.with(ino, |node, now| match (node.attr.kind, node.attr.nlink) {
            (Kind::Directory, _) => Err(Errno::NotPermitted),
            (_, 0) => Err(Errno::NotFound),
            _ => {
                node.attr.nlink += 1;
                node.attr.ctime = now;
                Ok(())
            }
        })?;
        self.enter(parent, name, ino)?;
        let entry = self.entry(ino);
        self.after().await;
        entry
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.before().await;
        let ino = self.find(parent, name)?;
        if self.with(ino, |node, _| Ok(node.attr.kind == Kind::Directory))? {
            return Err(Errno::IsDirectory);
        }
        self.leave(parent, name)?;
        self.lose(ino)?;
        self.after().await;
        Ok(())
    }

    async fn remove_dir(&self, parent: Ino, name: &[u8]) -> Done<()> {
        self.before().await;
        let ino = self.find(parent, name)?;
        if self.with(ino, |node, _| Ok(node.attr.kind != Kind::Directory))? {
            return Err(Errno::NotDirectory);
        }
        self.must_be_empty(ino)?;
        self.leave(parent, name)?;
        self.lose(ino)?;
        self.after().await;
        Ok(())
    }

    async fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Done<()> {
        self.before().await;
        let (exchange, keep) =
            (flags.0 & RENAME_EXCHANGE.0 != 0, flags.0 & RENAME_NOREPLACE.0 != 0);
        if exchange && keep {
            return Err(Errno::Invalid);
        }
        let source = self.find(parent, name)?;
        let target = match self.find(new_parent, new_name) {
            Err(Errno::NotFound) if !exchange => None,
            found => Some(found?),
        };
        self.with(new_parent, |node, _| match node.attr.nlink {
            0 => Err(Errno::NotFound),
            _ => Ok(()),
        })?;
        let kind = |ino| self.with(ino, |node, _| Ok(node.attr.kind == Kind::Directory));
        if keep && target.is_some() {
            return Err(Errno::Exists);
        }
        if kind(source)? && self.is_above(source, new_parent) {
            return Err(Errno::Invalid);
        }
        if let Some(target) = target {
            if kind(target)? && self.is_above(target, parent) {
                return Err(if exchange { Errno::Invalid } else { Errno::NotEmpty });
            }
            if target == source {
                return Ok(());
            }
            if !exchange {
                match (kind(source)?, kind(target)?) {
                    (true, false) => return Err(Errno::NotDirectory),
                    (false, true) => return Err(Errno::IsDirectory),
                    _ => self.must_be_empty(target)?,
                }
            }
        }
        self.leave(parent, name)?;
        if self.flaw == Flaw::HalfRename && self.rng.percent(20) {
            self.commit();
        }
        if let Some(target) = target {
            self.leave(new_parent, new_name)?;
            match exchange {
                true => self.enter(parent, name, target)?,
                false => self.lose(target)?,
            }
        }
        self.enter(new_parent, new_name, source)?;
        self.after().await;
        Ok(())
    }

    async fn open(&self, ino: Ino, how: Opening) -> Done<()> {
        self.before().await;
        self.with(ino, |node, now| {
            if how.truncate {
                cut(node, 0);
                (node.attr.size, node.attr.mtime, node.attr.ctime) = (0, now, now);
            }
            Ok(())
        })?;
        *self.held.borrow_mut().entry(ino).or_default() += 1;
        self.after().await;
        Ok(())
    }

    fn close(&self, ino: Ino) {
        self.release(ino, 1);
    }

    fn is_nearly_full(&self, _ino: Ino) -> bool {
        false
    }

    async fn read(&self, ino: Ino, offset: u64, len: usize) -> Done<Buf> {
        self.before().await;
        let bytes = self.with(ino, |node, _| {
            let len = node.attr.size.saturating_sub(offset).min(len as u64);
            let mut bytes = vec![0; len as usize];
            for (sector, held) in node.sectors.range(offset / SECTOR..) {
                if sector * SECTOR >= offset + len {
                    break;
                }
                for (at, byte) in held.iter().enumerate() {
                    let place = sector * SECTOR + at as u64;
                    if (offset..offset + len).contains(&place) {
                        bytes[(place - offset) as usize] = *byte;
                    }
                }
            }
            Ok(bytes)
        })?;
        self.before().await;
        Ok(self.shard.pool().copy_of(&bytes).freeze())
    }

    async fn write(&self, ino: Ino, offset: u64, data: Buf, _: Writing) -> Done<()> {
        self.before().await;
        // What fails half-way has written whole sectors.
        let half = (offset + data.len() as u64 / 2) / SECTOR * SECTOR;
        let half = half.saturating_sub(offset) as usize;
        self.fits(data.len() as u64 / SECTOR + 2)?;
        let before = self.with(ino, |node, _| {
            put(node, offset, &data[..half]);
            Ok((self.flaw == Flaw::LostUpdate).then(|| node.sectors.clone()))
        })?;
        self.before().await;
        let room = self.fits(data.len() as u64 / SECTOR + 2);
        let sets_times = self.flaw != Flaw::OldTimes;
        self.with(ino, |node, now| {
            if let Some(before) = before {
                node.sectors = before;
            }
            if room.is_ok() {
                put(node, offset + half as u64, &data[half..]);
                node.attr.size = node.attr.size.max(offset + data.len() as u64);
            } else {
                node.attr.size = node.attr.size.max(offset + half as u64);
            }
            if sets_times {
                (node.attr.mtime, node.attr.ctime) = (now, now);
            }
            room
        })?;
        self.after().await;
        Ok(())
    }

    async fn fsync(&self, _: Ino, _: bool) -> Done<()> {
        self.before().await;
        if self.flaw != Flaw::ForgetsFsync {
            self.commit();
        }
        self.before().await;
        Ok(())
    }

    async fn sync(&self) -> Done<()> {
        self.fsync(ROOT, false).await
    }

    async fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Done<()> {
        self.before().await;
        self.with(ino, |node, now| {
            if len == 0 || node.attr.kind != Kind::File {
                return Err(Errno::Invalid);
            }
            if !matches!(how, Allocate::Reserve { .. }) {
                let end = (offset + len).min(node.attr.size.next_multiple_of(SECTOR));
                for (sector, bytes) in node.sectors.range_mut(offset / SECTOR..) {
                    for (at, byte) in bytes.iter_mut().enumerate() {
                        if (offset..end).contains(&(sector * SECTOR + at as u64)) {
                            *byte = 0;
                        }
                    }
                }
            }
            if let Allocate::Reserve { keep_size: false }
            | Allocate::ZeroRange { keep_size: false } = how
            {
                node.attr.size = node.attr.size.max(offset + len);
            }
            (node.attr.mtime, node.attr.ctime) = (now, now);
            Ok(())
        })?;
        self.after().await;
        Ok(())
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Done<u64> {
        self.before().await;
        self.with(ino, |node, _| {
            if offset >= node.attr.size {
                return Err(Errno::Nxio);
            }
            let data = |at: u64| node.sectors.contains_key(&(at / SECTOR));
            match what {
                Seek::Data if data(offset) => Ok(offset),
                Seek::Data => {
                    let next = node.sectors.range(offset / SECTOR..).next();
                    let next = next.map(|(sector, _)| sector * SECTOR);
                    next.filter(|at| *at < node.attr.size).ok_or(Errno::Nxio)
                }
                Seek::Hole => {
                    let mut at = offset;
                    while at < node.attr.size && data(at) {
                        at = (at / SECTOR + 1) * SECTOR;
                    }
                    Ok(at.min(node.attr.size))
                }
            }
        })
    }

    async fn read_dir(&self, ino: Ino, cookie: u64, max: usize) -> Done<Vec<DirEntry>> {
        self.before().await;
        let listed = self.with(ino, |node, _| {
            if node.attr.kind != Kind::Directory {
                return Err(Errno::NotDirectory);
            }
            let mut all: Vec<_> =
                node.names.iter().map(|(name, (cookie, ino))| (*cookie, *ino, name)).collect();
            all.sort_unstable();
            let skip = usize::from(self.flaw == Flaw::SkipsEntry && self.rng.percent(5));
            let rest = all.into_iter().filter(|(at, _, _)| *at > cookie).skip(skip);
            Ok(rest.take(max).map(|(at, ino, name)| (at, ino, name.clone())).collect::<Vec<_>>())
        })?;
        let entries = listed.into_iter().map(|(cookie, ino, name)| {
            let kind = self.with(ino, |node, _| Ok(node.attr.kind))?;
            Ok(DirEntry { ino, kind, cookie, name })
        });
        entries.collect()
    }

    async fn read_dir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Done<Vec<(DirEntry, Option<Entry>)>> {
        let entries = self.read_dir(ino, cookie, max).await?;
        Ok(entries.into_iter().map(|entry| (entry.clone(), self.entry(entry.ino).ok())).collect())
    }

    async fn parent(&self, ino: Ino) -> Done<Ino> {
        self.before().await;
        self.with(ino, |node, _| Ok(node.parent))
    }

    async fn space(&self, _ino: Ino) -> Done<Space> {
        let (blocks, free) = (self.room, 0);
        let (files, files_free, available) = (1 << 20, 1 << 20, free);
        Ok(Space { block: 512, blocks, free, available, files, files_free, name_max: 255 })
    }

    async fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Done<()> {
        self.before().await;
        self.with(ino, |node, now| {
            let there = node.xattrs.contains_key(name);
            match mode {
                _ if name.len() > XATTR_NAME_MAX => return Err(Errno::Range),
                _ if value.len() > XATTR_VALUE_MAX => return Err(Errno::TooLarge),
                XattrMode::Create if there => return Err(Errno::Exists),
                XattrMode::Replace if !there => return Err(Errno::NoData),
                _ => {}
            }
            node.xattrs.insert(name.to_vec(), value.to_vec());
            node.attr.ctime = now;
            Ok(())
        })?;
        self.after().await;
        Ok(())
    }

    async fn xattr(&self, ino: Ino, name: &[u8]) -> Done<Vec<u8>> {
        self.before().await;
        self.with(ino, |node, _| node.xattrs.get(name).cloned().ok_or(Errno::NoData))
    }

    async fn xattrs(&self, ino: Ino) -> Done<Vec<Vec<u8>>> {
        self.before().await;
        self.with(ino, |node, _| Ok(node.xattrs.keys().cloned().collect()))
    }

    async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Done<()> {
        self.before().await;
        self.with(ino, |node, now| {
            node.xattrs.remove(name).ok_or(Errno::NoData)?;
            node.attr.ctime = now;
            Ok(())
        })?;
        self.after().await;
        Ok(())
    }
}
