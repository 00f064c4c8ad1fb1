//! A directory passed through: every request becomes the system call of its name on what lies below.
//!
//! A file has a number of ours, since those below are used again, and a name in a directory; directories are held open.
//! So a file that has lost that name is only reached where it is open. Extended attributes, locks and copies between files are
//! left out.

use super::agreed::{KNOWN_FOR, configure, is_direct, open_flags};
use super::lower::{ALIGNMENT, aligned, attr, kind, lower_flags, nothing, stamp};
use anyhow::Context;
use fuser::*;
use rustix::fs::{AtFlags, Dir, FallocateFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno as Refused;
use slab::Slab;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

struct Node {
    /// Its number below.
    lower: u64,
    /// Where it was seen last.
    parent: u64,
    name: CString,
    /// Of a directory.
    open: Option<Arc<OwnedFd>>,
    lookups: u64,
}

/// The files that the kernel knows.
struct Nodes {
    by_ino: HashMap<u64, Node>,
    by_lower: HashMap<u64, u64>,
    last: u64,
}

impl Nodes {
    fn by_lower(&mut self, lower: u64) -> Option<&mut Node> {
        self.by_ino.get_mut(self.by_lower.get(&lower)?)
    }
}

struct Open {
    file: OwnedFd,
    direct: bool,
}

/// See the module's documentation.
pub struct Passthrough {
    nodes: Mutex<Nodes>,
    open: Mutex<Slab<Arc<Open>>>,
    direct_mmap: bool,
}

type Answer<T> = Result<T, Refused>;

fn refused(error: Refused) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Passthrough {
    /// Passes `below` through.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn new(below: &Path) -> anyhow::Result<Passthrough> {
        let open = rustix::fs::open(below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("opening {}", below.display()))?;
        let (parent, name) = (INodeNo::ROOT.0, CString::default());
        let root = Node { lower: 0, parent, name, open: Some(Arc::new(open)), lookups: 1 };
        let by_ino = HashMap::from([(parent, root)]);
        let nodes = Nodes { by_ino, by_lower: HashMap::new(), last: parent };
        Ok(Passthrough { nodes: Mutex::new(nodes), open: Mutex::default(), direct_mmap: false })
    }

    fn directory(&self, ino: INodeNo) -> Answer<Arc<OwnedFd>> {
        let nodes = locked(&self.nodes);
        let node = nodes.by_ino.get(&ino.0).ok_or(Refused::STALE)?;
        node.open.clone().ok_or(Refused::NOTDIR)
    }

    /// A directory and a name in it that lead to the file.
    fn way(&self, ino: INodeNo) -> Answer<(Arc<OwnedFd>, CString)> {
        let nodes = locked(&self.nodes);
        let node = nodes.by_ino.get(&ino.0).ok_or(Refused::STALE)?;
        if let Some(open) = &node.open {
            return Ok((Arc::clone(open), c".".into()));
        }
        let parent = nodes.by_ino.get(&node.parent).and_then(|parent| parent.open.clone());
        Ok((parent.ok_or(Refused::STALE)?, node.name.clone()))
    }

    fn opened(&self, handle: FileHandle) -> Answer<Arc<Open>> {
        locked(&self.open).get(handle.0 as usize).cloned().ok_or(Refused::BADF)
    }

    fn keep(&self, file: OwnedFd, flags: OpenFlags) -> FileHandle {
        let open = Open { file, direct: is_direct(flags) };
        FileHandle(locked(&self.open).insert(Arc::new(open)) as u64)
    }

    /// The file of that name, with one look-up more; `new`: it has just been made, so its number below may have been
    /// another's.
    fn found(
        &self,
        parent: INodeNo,
        directory: &OwnedFd,
        name: &OsStr,
        new: bool,
    ) -> Answer<FileAttr> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let name = CString::new(name.as_bytes()).map_err(|_| Refused::INVAL)?;
        let nodes = &mut *locked(&self.nodes);
        if let Some(&ino) = nodes.by_lower.get(&stat.st_ino).filter(|_| !new)
            && let Some(node) = nodes.by_ino.get_mut(&ino)
        {
            node.lookups += 1;
            (node.parent, node.name) = (parent.0, name);
            return Ok(attr(ino, &stat));
        }
        nodes.last += 1;
        let attr = attr(nodes.last, &stat);
        let open = match attr.kind {
            FileType::Directory => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Some(Arc::new(rustix::fs::openat(directory, &name, flags, Mode::empty())?))
            }
            _ => None,
        };
        let node = Node { lower: stat.st_ino, parent: parent.0, name, open, lookups: 1 };
        nodes.by_ino.insert(nodes.last, node);
        nodes.by_lower.insert(stat.st_ino, nodes.last);
        Ok(attr)
    }

    fn answer_entry(&self, entry: Answer<FileAttr>, reply: ReplyEntry) {
        match entry {
            Ok(attr) => reply.entry(&KNOWN_FOR, &attr, Generation(0)),
            Err(error) => reply.error(refused(error)),
        }
    }

    /// A new name, owned by who asked for it.
    fn made(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> Answer<()>,
    ) -> Answer<FileAttr> {
        let directory = self.directory(parent)?;
        make(&directory)?;
        if (request.uid(), request.gid()) != (0, 0) {
            let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&*directory, name, Some(uid), Some(gid), flags)?;
        }
        self.found(parent, &directory, name, true)
    }

    fn stat(&self, ino: INodeNo) -> Answer<FileAttr> {
        let (directory, name) = self.way(ino)?;
        let stat = rustix::fs::statat(&*directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(attr(ino.0, &stat))
    }

    fn open_lower(&self, ino: INodeNo, flags: OFlags) -> Answer<OwnedFd> {
        let (directory, name) = self.way(ino)?;
        rustix::fs::openat(&*directory, &name, flags, Mode::empty())
    }

    /// Calls `add` for each entry from `offset` on, until it says that it is full.
    fn entries(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(&OwnedFd, &rustix::fs::DirEntry) -> bool,
    ) -> Answer<()> {
        let directory = self.directory(ino)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = Dir::new(rustix::fs::openat(&*directory, ".", flags, Mode::empty())?)?;
        if offset != 0 {
            dir.seek(offset.cast_signed())?;
        }
        while let Some(entry) = dir.read() {
            if add(&directory, &entry?) {
                break;
            }
        }
        Ok(())
    }
}

fn answer(result: Answer<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(refused(error)),
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.direct_mmap = configure(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self
            .directory(parent)
            .and_then(|directory| self.found(parent, &directory, name, false))
        {
            // Number 0: the kernel may remember that there is no such name.
            Err(Refused::NOENT) => {
                let none = FileAttr { ino: INodeNo(0), ..nothing() };
                reply.entry(&KNOWN_FOR, &none, Generation(0));
            }
            entry => self.answer_entry(entry, reply),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let nodes = &mut *locked(&self.nodes);
        let Some(node) = nodes.by_ino.get_mut(&ino.0) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups > 0 || ino == INodeNo::ROOT {
            return;
        }
        if nodes.by_lower.get(&node.lower) == Some(&ino.0) {
            nodes.by_lower.remove(&node.lower);
        }
        nodes.by_ino.remove(&ino.0);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.stat(ino) {
            Ok(attr) => reply.attr(&KNOWN_FOR, &attr),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            let (directory, name) = self.way(ino)?;
            if let Some(mode) = mode {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::chmodat(&*directory, &name, mode, AtFlags::empty())?;
            }
            if uid.is_some() || gid.is_some() {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(&*directory, &name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            if let Some(size) = size {
                match handle {
                    Some(handle) => rustix::fs::ftruncate(&self.opened(handle)?.file, size)?,
                    None => {
                        let file = self.open_lower(ino, OFlags::WRONLY | OFlags::CLOEXEC)?;
                        rustix::fs::ftruncate(file, size)?;
                    }
                }
            }
            if atime.is_some() || mtime.is_some() {
                let times = rustix::fs::Timestamps {
                    last_access: stamp(atime),
                    last_modification: stamp(mtime),
                };
                rustix::fs::utimensat(&*directory, &name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            self.stat(ino)
        };
        match set() {
            Ok(attr) => reply.attr(&KNOWN_FOR, &attr),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let way = self.way(ino);
        match way.and_then(|(at, name)| rustix::fs::readlinkat(&*at, &name, Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let made = self.made(request, parent, name, |parent| {
            let perm = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mknodat(parent, name, kind, perm, rdev.into())
        });
        self.answer_entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.made(request, parent, name, |parent| {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777))
        });
        self.answer_entry(made, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made =
            self.made(request, parent, name, |parent| rustix::fs::symlinkat(target, parent, name));
        self.answer_entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.directory(parent);
        let none = AtFlags::empty();
        answer(parent.and_then(|parent| rustix::fs::unlinkat(&*parent, name, none)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = self.directory(parent);
        let directory = AtFlags::REMOVEDIR;
        answer(parent.and_then(|parent| rustix::fs::unlinkat(&*parent, name, directory)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.directory(parent)?, self.directory(new_parent)?);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(&*from, name, &*to, new_name, flags)?;
            for (parent, directory, name) in [(new_parent, to, new_name), (parent, from, name)] {
                // After a plain rename there is nothing at the old name.
                let found = rustix::fs::statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW);
                let (Ok(stat), Ok(name)) = (found, CString::new(name.as_bytes())) else { continue };
                if let Some(node) = locked(&self.nodes).by_lower(stat.st_ino) {
                    (node.parent, node.name) = (parent.0, name);
                }
            }
            Ok(())
        };
        answer(rename(), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let ((at, old), directory) = (self.way(ino)?, self.directory(parent)?);
            rustix::fs::linkat(&*at, &old, &*directory, name, AtFlags::empty())?;
            self.found(parent, &directory, name, false)
        };
        self.answer_entry(link(), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = OpenFlags(flags);
        let mut file = None;
        let made = self.made(request, parent, name, |parent| {
            let exclusive = OFlags::from_bits_retain(flags.0.cast_unsigned()) & OFlags::EXCL;
            let lower = lower_flags(flags) | exclusive | OFlags::CREATE;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            file = Some(rustix::fs::openat(parent, name, lower, mode)?);
            Ok(())
        });
        match (made, file) {
            (Ok(attr), Some(file)) => {
                let handle = self.keep(file, flags);
                let how = open_flags(flags, self.direct_mmap);
                reply.created(&KNOWN_FOR, &attr, Generation(0), handle, how);
            }
            (Err(error), _) => reply.error(refused(error)),
            (Ok(_), None) => reply.error(Errno::EIO),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_lower(ino, lower_flags(flags)) {
            Ok(file) => reply.opened(self.keep(file, flags), open_flags(flags, self.direct_mmap)),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = locked(&self.open).try_remove(handle.0 as usize);
        drop(closed);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        aligned(size as usize, |buffer| {
            let read = |buffer: &mut [u8]| {
                let open = self.opened(handle)?;
                let mut done = 0;
                while done < buffer.len() {
                    let at = offset.saturating_add(done as u64);
                    match rustix::io::pread(&open.file, &mut buffer[done..], at)? {
                        0 => break,
                        more => done += more,
                    }
                    if open.direct && !done.is_multiple_of(ALIGNMENT) {
                        break;
                    }
                }
                Ok(done)
            };
            match read(buffer) {
                Ok(done) => reply.data(&buffer[..done]),
                Err(error) => reply.error(refused(error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let all = |open: &Open, data: &[u8]| {
            let mut done = 0;
            while done < data.len() {
                let at = offset.saturating_add(done as u64);
                done += rustix::io::pwrite(&open.file, &data[done..], at)?;
            }
            Ok(())
        };
        let written = self.opened(handle).and_then(|open| {
            if !open.direct {
                return all(&open, data);
            }
            aligned(data.len(), |buffer| {
                buffer.copy_from_slice(data);
                all(&open, buffer)
            })
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let synced = self.opened(handle).and_then(|open| {
            if data_only {
                rustix::fs::fdatasync(&open.file)
            } else {
                rustix::fs::fsync(&open.file)
            }
        });
        answer(synced, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel then opens directories by itself, and caches them, as with a volume.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.entries(ino, offset, |_, entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = kind(entry.file_type().as_raw_mode());
            reply.add(INodeNo(entry.ino()), entry.offset().cast_unsigned(), kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.entries(ino, offset, |directory, entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let next = entry.offset().cast_unsigned();
            if name == "." || name == ".." {
                let dots = FileAttr { ino: INodeNo(entry.ino()), ..nothing() };
                let none = Duration::ZERO;
                return reply.add(dots.ino, next, name, &none, &dots, Generation(0));
            }
            let Ok(found) = self.found(ino, directory, name, false) else { return false };
            let full = reply.add(found.ino, next, name, &KNOWN_FOR, &found, Generation(0));
            if full {
                self.forget(request, found.ino, 1);
            }
            full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(&*self.directory(ino)?, ".", flags, Mode::empty())?;
            rustix::fs::fsync(dir)
        };
        answer(sync(), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // Of the whole, whatever is asked about.
        match self.directory(INodeNo::ROOT).and_then(|root| rustix::fs::fstatvfs(&*root)) {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                space.f_namemax as u32,
                space.f_frsize as u32,
            ),
            Err(error) => reply.error(refused(error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let open = self.opened(handle);
        answer(open.and_then(|open| rustix::fs::fallocate(&open.file, mode, offset, len)), reply);
    }
}
