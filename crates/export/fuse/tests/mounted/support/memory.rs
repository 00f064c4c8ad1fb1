//! A file system in memory: what the tests of this crate mount. Small, and strict where it can tell that its caller
//! is wrong: an unbalanced `forget` or `close` panics.

use braid_filesystem::*;
use braid_shard::{Buf, Shard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Content is kept in pieces of this many bytes; one that was never written is a hole.
const PIECE: u64 = 128 << 10;

#[derive(Default)]
struct Node {
    attr: Option<Attr>,
    look_ups: u64,
    opens: u64,
    parent: Ino,
    pieces: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<Vec<u8>, (u64, Ino)>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    fn attr(&self) -> Attr {
        self.attr.expect("every node has attributes")
    }

    fn change(&mut self, change: impl FnOnce(&mut Attr)) {
        let attr = self.attr.as_mut().expect("every node has attributes");
        change(attr);
        attr.blocks = self.pieces.len() as u64 * (PIECE / 512);
    }
}

/// See the module's documentation.
pub struct Memory {
    shard: Shard,
    nodes: RefCell<BTreeMap<Ino, Node>>,
    next: Cell<u64>,
    /// Bytes that all pieces may have.
    pub room: Cell<u64>,
    pub nearly_full: Cell<bool>,
    /// The time for which written data is held and must not change, in nanoseconds, as by a slow device.
    pub holds: Cell<u64>,
    /// Calls of `fsync` so far: of data only, or of all.
    pub fsyncs: RefCell<Vec<bool>>,
    /// Calls of `sync` so far.
    pub syncs: Rc<Cell<u64>>,
}

impl Memory {
    pub fn new(shard: &Shard, room: u64) -> Rc<Memory> {
        let memory = Memory {
            shard: shard.clone(),
            nodes: RefCell::default(),
            next: Cell::new(ROOT),
            room: Cell::new(room),
            nearly_full: Cell::new(false),
            holds: Cell::new(0),
            fsyncs: RefCell::default(),
            syncs: Rc::default(),
        };
        let root = NewNode { kind: Kind::Directory, perm: 0o755, umask: 0, rdev: 0, target: &[] };
        memory.add(Caller::default(), ROOT, &root);
        Rc::new(memory)
    }

    /// Nodes that exist, and those of them that somebody holds.
    pub fn counts(&self) -> (usize, usize) {
        let nodes = self.nodes.borrow();
        (nodes.len(), nodes.values().filter(|node| node.look_ups + node.opens > 0).count())
    }

    /// Permission bits of a file in the root directory.
    pub fn mode_of(&self, name: &[u8]) -> u16 {
        let ino = self.child(ROOT, name).expect("it is there");
        self.with(ino, |node| Ok(node.attr().perm)).expect("it is there")
    }

    fn now(&self) -> Time {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("the clock is right");
        Time { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
    }

    fn add(&self, caller: Caller, parent: Ino, new: &NewNode<'_>) -> Ino {
        let ino = self.next.replace(self.next.get() + 1);
        let now = self.now();
        let attr = Attr {
            ino,
            size: new.target.len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: new.kind,
            perm: new.masked(),
            nlink: if new.kind == Kind::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev: new.rdev,
            blksize: 4096,
        };
        let target = new.target.to_vec();
        let node = Node { attr: Some(attr), parent, target, ..Node::default() };
        self.nodes.borrow_mut().insert(ino, node);
        ino
    }

    fn with<T>(
        &self,
        ino: Ino,
        call: impl FnOnce(&mut Node) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        call(self.nodes.borrow_mut().get_mut(&ino).ok_or(Errno::Stale)?)
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<Ino, Errno> {
        self.with(parent, |node| match name {
            b"." => Ok(parent),
            b".." => Ok(node.parent),
            _ if node.attr().kind != Kind::Directory => Err(Errno::NotDirectory),
            _ => node.names.get(name).map(|(_, ino)| *ino).ok_or(Errno::NotFound),
        })
    }

    fn check(&self, name: &[u8]) -> Result<(), Errno> {
        if name.len() > NAME_MAX { Err(Errno::NameTooLong) } else { Ok(()) }
    }

    fn entry(&self, ino: Ino) -> Result<Entry, Errno> {
        self.with(ino, |node| {
            node.look_ups += 1;
            Ok(Entry { attr: node.attr(), generation: 0 })
        })
    }

    fn name(&self, parent: Ino, name: &[u8], ino: Ino) {
        let cookie = self.next.replace(self.next.get() + 1);
        let now = self.now();
        let named = self.with(parent, |node| {
            node.names.insert(name.to_vec(), (cookie, ino));
            node.change(|attr| (attr.mtime, attr.ctime) = (now, now));
            Ok(())
        });
        named.expect("the parent is there");
    }

    fn unname(&self, parent: Ino, name: &[u8]) -> Result<Ino, Errno> {
        let now = self.now();
        self.with(parent, |node| {
            node.change(|attr| (attr.mtime, attr.ctime) = (now, now));
            node.names.remove(name).map(|(_, ino)| ino).ok_or(Errno::NotFound)
        })
    }

    /// A node that has neither names nor holders goes.
    fn let_go(&self, ino: Ino) {
        let mut nodes = self.nodes.borrow_mut();
        let Some(node) = nodes.get(&ino) else { return };
        if node.attr().nlink == 0 && node.look_ups == 0 && node.opens == 0 {
            let freed = node.pieces.len() as u64 * PIECE;
            self.room.set(self.room.get() + freed);
            nodes.remove(&ino);
        }
    }

    fn drop_link(&self, ino: Ino, links: u32) {
        let now = self.now();
        let dropped = self.with(ino, |node| {
            node.change(|attr| {
                attr.nlink = attr.nlink.saturating_sub(links);
                attr.ctime = now;
            });
            Ok(())
        });
        dropped.expect("it has a name");
        self.let_go(ino);
    }

    fn piece<'n>(&self, node: &'n mut Node, number: u64) -> Result<&'n mut Vec<u8>, Errno> {
        use std::collections::btree_map::Entry;
        match node.pieces.entry(number) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => {
                let left = self.room.get().checked_sub(PIECE).ok_or(Errno::NoSpace)?;
                self.room.set(left);
                Ok(place.insert(vec![0; PIECE as usize]))
            }
        }
    }

    fn zero(&self, node: &mut Node, offset: u64, end: u64) {
        let mut at = offset;
        while at < end {
            let (number, from) = (at / PIECE, at % PIECE);
            let len = (PIECE - from).min(end - at);
            if len == PIECE && node.pieces.remove(&number).is_some() {
                self.room.set(self.room.get() + PIECE);
            } else if let Some(piece) = node.pieces.get_mut(&number) {
                piece[from as usize..(from + len) as usize].fill(0);
            }
            at += len;
        }
    }

    fn cut(&self, node: &mut Node, size: u64) {
        let old = node.attr().size;
        self.zero(node, size, old.next_multiple_of(PIECE));
        let now = self.now();
        node.change(|attr| (attr.size, attr.mtime, attr.ctime) = (size, now, now));
    }

    fn moved_dir(&self, from: Ino, to: Ino, ino: Ino) -> Result<(), Errno> {
        let kind = self.with(ino, |node| Ok(node.attr().kind))?;
        if kind != Kind::Directory || from == to {
            return Ok(());
        }
        self.with(ino, |node| {
            node.parent = to;
            Ok(())
        })?;
        self.with(from, |node| {
            node.change(|attr| attr.nlink -= 1);
            Ok(())
        })?;
        self.with(to, |node| {
            node.change(|attr| attr.nlink += 1);
            Ok(())
        })
    }
}

impl FileSystem for Memory {
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        self.check(name)?;
        self.entry(self.child(parent, name)?)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let forgotten = self.with(ino, |node| {
            node.look_ups = node.look_ups.checked_sub(count).expect("no more than looked up");
            Ok(())
        });
        forgotten.expect("what is looked up is there");
        self.let_go(ino);
    }

    async fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        self.with(ino, |node| Ok(node.attr()))
    }

    async fn set_attr(&self, caller: Caller, ino: Ino, set: SetAttr) -> Result<Attr, Errno> {
        let now = self.now();
        self.with(ino, |node| {
            if let Some(size) = set.size {
                self.cut(node, size);
            }
            let time = |set: SetTime| match set {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            node.change(|attr| {
                if set.size.is_some() && caller.uid != 0 {
                    attr.perm &= 0o1777;
                }
                attr.perm = set.perm.unwrap_or(attr.perm);
                attr.uid = set.uid.unwrap_or(attr.uid);
                attr.gid = set.gid.unwrap_or(attr.gid);
                attr.atime = set.atime.map_or(attr.atime, time);
                attr.mtime = set.mtime.map_or(attr.mtime, time);
                attr.ctime = set.ctime.unwrap_or(now);
            });
            Ok(node.attr())
        })
    }

    async fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new: NewNode<'_>,
    ) -> Result<Entry, Errno> {
        self.check(name)?;
        if self.child(parent, name).is_ok() {
            return Err(Errno::Exists);
        }
        let ino = self.add(caller, parent, &new);
        self.name(parent, name, ino);
        if new.kind == Kind::Directory {
            self.with(parent, |node| {
                node.change(|attr| attr.nlink += 1);
                Ok(())
            })?;
        }
        self.entry(ino)
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.with(ino, |node| Ok(node.target.clone()))
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        self.check(name)?;
        if self.child(parent, name).is_ok() {
            return Err(Errno::Exists);
        }
        self.name(parent, name, ino);
        let now = self.now();
        self.with(ino, |node| {
            node.change(|attr| (attr.nlink, attr.ctime) = (attr.nlink + 1, now));
            Ok(())
        })?;
        self.entry(ino)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let ino = self.unname(parent, name)?;
        self.drop_link(ino, 1);
        Ok(())
    }

    async fn remove_dir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let ino = self.child(parent, name)?;
        self.with(ino, |node| if node.names.is_empty() { Ok(()) } else { Err(Errno::NotEmpty) })?;
        self.unname(parent, name)?;
        self.with(parent, |node| {
            node.change(|attr| attr.nlink -= 1);
            Ok(())
        })?;
        self.drop_link(ino, 2);
        Ok(())
    }

    async fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if ![RenameFlags::default(), RENAME_NOREPLACE, RENAME_EXCHANGE].contains(&flags) {
            return Err(Errno::Invalid);
        }
        self.check(new_name)?;
        let ino = self.child(parent, name)?;
        let there = self.child(new_parent, new_name);
        match (flags, there) {
            (RENAME_NOREPLACE, Ok(_)) => return Err(Errno::Exists),
            (RENAME_EXCHANGE, other) => {
                let other = other?;
                self.name(parent, name, other);
                self.name(new_parent, new_name, ino);
                self.moved_dir(new_parent, parent, other)?;
                return self.moved_dir(parent, new_parent, ino);
            }
            (_, Ok(there)) if there == ino => return Ok(()),
            (_, Ok(there)) => {
                match self.with(there, |node| Ok(node.attr().kind))? {
                    Kind::Directory => self.remove_dir(new_parent, new_name).await?,
                    _ => self.unlink(new_parent, new_name).await?,
                };
            }
            (_, Err(_)) => {}
        }
        self.unname(parent, name)?;
        self.name(new_parent, new_name, ino);
        self.moved_dir(parent, new_parent, ino)
    }

    async fn open(&self, ino: Ino, how: Opening) -> Result<(), Errno> {
        self.with(ino, |node| {
            if how.truncate {
                self.cut(node, 0);
            }
            node.opens += 1;
            Ok(())
        })
    }

    fn close(&self, ino: Ino) {
        let closed = self.with(ino, |node| {
            node.opens = node.opens.checked_sub(1).expect("no more than opened");
            Ok(())
        });
        closed.expect("what is open is there");
        self.let_go(ino);
    }

    fn is_nearly_full(&self, _ino: Ino) -> bool {
        self.nearly_full.get()
    }

    async fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Buf, Errno> {
        self.with(ino, |node| {
            let end = (offset + len as u64).min(node.attr().size).max(offset);
            let mut buf = self.shard.pool().get((end - offset) as usize);
            let mut at = offset;
            while at < end {
                let (number, from) = (at / PIECE, at % PIECE);
                let len = (PIECE - from).min(end - at);
                let into = &mut buf[(at - offset) as usize..][..len as usize];
                match node.pieces.get(&number) {
                    Some(piece) => into.copy_from_slice(&piece[from as usize..][..len as usize]),
                    None => into.fill(0),
                }
                at += len;
            }
            Ok(buf.freeze())
        })
    }

    async fn write(&self, ino: Ino, offset: u64, data: Buf, how: Writing) -> Result<(), Errno> {
        assert_eq!(data.as_ptr() as usize % 4096, 0, "payloads are aligned");
        if self.holds.get() > 0 {
            let (held, expected, shard) = (data.clone(), data.to_vec(), self.shard.clone());
            let nanos = self.holds.get();
            self.shard.spawn(async move {
                shard.sleep(nanos).await;
                assert!(*held == *expected, "it was changed while it was held");
            });
        }
        let now = self.now();
        self.with(ino, |node| {
            let mut rest = &data[..];
            let mut at = offset;
            while !rest.is_empty() {
                let (number, from) = (at / PIECE, (at % PIECE) as usize);
                let (now, later) = rest.split_at(rest.len().min(PIECE as usize - from));
                self.piece(node, number)?[from..][..now.len()].copy_from_slice(now);
                (rest, at) = (later, at + now.len() as u64);
            }
            node.change(|attr| {
                attr.size = attr.size.max(at);
                (attr.mtime, attr.ctime) = (now, now);
                if how.clear_setid {
                    attr.perm &= 0o1777;
                }
            });
            Ok(())
        })
    }

    async fn fsync(&self, ino: Ino, data_only: bool) -> Result<(), Errno> {
        self.fsyncs.borrow_mut().push(data_only);
        self.with(ino, |_| Ok(()))
    }

    async fn sync(&self) -> Result<(), Errno> {
        self.syncs.set(self.syncs.get() + 1);
        Ok(())
    }

    async fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset + len;
        self.with(ino, |node| {
            let grow = |node: &mut Node, keep: bool| {
                node.change(|attr| attr.size = if keep { attr.size } else { attr.size.max(end) });
            };
            match how {
                Allocate::Reserve { keep_size } => {
                    for number in offset / PIECE..end.div_ceil(PIECE) {
                        self.piece(node, number)?;
                    }
                    grow(node, keep_size);
                }
                Allocate::PunchHole => {
                    self.zero(node, offset, end);
                    grow(node, true);
                }
                Allocate::ZeroRange { keep_size } => {
                    self.zero(node, offset, end);
                    grow(node, keep_size);
                }
            }
            Ok(())
        })
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.with(ino, |node| {
            let size = node.attr().size;
            let mut at = offset;
            while at < size {
                if node.pieces.contains_key(&(at / PIECE)) == (what == Seek::Data) {
                    return Ok(at);
                }
                at = (at / PIECE + 1) * PIECE;
            }
            if offset < size && what == Seek::Hole { Ok(size) } else { Err(Errno::Nxio) }
        })
    }

    async fn read_dir(&self, ino: Ino, cookie: u64, max: usize) -> Result<Vec<DirEntry>, Errno> {
        let mut entries: Vec<(u64, Ino, Vec<u8>)> = self.with(ino, |node| {
            let names = node.names.iter().filter(|(_, (own, _))| *own > cookie);
            Ok(names.map(|(name, (own, ino))| (*own, *ino, name.clone())).collect())
        })?;
        entries.sort();
        entries.truncate(max);
        let full = entries.into_iter().map(|(cookie, ino, name)| {
            let kind = self.with(ino, |node| Ok(node.attr().kind))?;
            Ok(DirEntry { ino, kind, cookie, name })
        });
        full.collect()
    }

    async fn read_dir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
        let entries = self.read_dir(ino, cookie, max).await?;
        Ok(entries
            .into_iter()
            .map(|entry| {
                let found = self.entry(entry.ino).ok();
                (entry, found)
            })
            .collect())
    }

    async fn parent(&self, ino: Ino) -> Result<Ino, Errno> {
        self.with(ino, |node| Ok(if ino == ROOT { ROOT } else { node.parent }))
    }

    async fn space(&self, _ino: Ino) -> Result<Space, Errno> {
        let free = self.room.get() / 4096;
        Ok(Space {
            block: 4096,
            blocks: 1 << 30,
            free,
            available: free,
            files: 1 << 32,
            files_free: 1 << 31,
            name_max: NAME_MAX as u32,
        })
    }

    async fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        self.with(ino, |node| {
            match (mode, node.xattrs.contains_key(name)) {
                (XattrMode::Create, true) => return Err(Errno::Exists),
                (XattrMode::Replace, false) => return Err(Errno::NoData),
                _ => node.xattrs.insert(name.to_vec(), value.to_vec()),
            };
            Ok(())
        })
    }

    async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.with(ino, |node| node.xattrs.get(name).cloned().ok_or(Errno::NoData))
    }

    async fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        self.with(ino, |node| Ok(node.xattrs.keys().cloned().collect()))
    }

    async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        self.with(ino, |node| node.xattrs.remove(name).map(|_| ()).ok_or(Errno::NoData))
    }
}
