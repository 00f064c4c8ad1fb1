//! The shard's side of a mount: each request is a task that asks the file system and answers the kernel.

use crate::attributes::{file_attr, file_type, nothing_but};
use crate::errno;
use crate::options::MountOptions;
use crate::payload::{Lender, Payload, Shelves};
use crate::references::References;
use crate::work::{Opening, Work};
use crate::write_out::WriteOut;
use braid_filesystem::{
    Attr, Caller, DirEntry, Entry, Errno, FileSystem, Ino, Kind, NewNode, SetAttr,
};
use braid_shard::sync::{Budget, Notify};
use braid_shard::{Shard, Spawner};
use fuser::{FileHandle, FopenFlags, Generation, INodeNo};
use slab::Slab;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Files have no state of their own at the kernel's end.
const NO_HANDLE: FileHandle = FileHandle(0);
/// Bytes of a directory entry in a reply before its name: fuse_dirent, and with what a look-up gives.
const ENTRY: usize = 24;
const ENTRY_PLUS: usize = ENTRY + 128;
/// Bytes that the kernel asks for at once when it reads a directory: at least a page. fuser does not say how many.
const DIRECTORY: usize = 4096;
/// Positions in a directory that come before those of the file system: of `.` and of `..`.
const DOTS: u64 = 2;

/// One mount on its shard.
pub(crate) struct Server<F> {
    shard: Shard,
    fs: Rc<F>,
    lender: Lender,
    /// Bytes of reads under way.
    reads: Rc<Budget>,
    references: References,
    under_way: Cell<usize>,
    ended: Notify,
    attr_timeout: Duration,
    entry_timeout: Duration,
    direct_mmap: Cell<bool>,
    /// Its own number.
    key: usize,
    write_out: Arc<WriteOut>,
}

/// The mounts of one kind of file system on a shard.
struct Servers<F> {
    all: RefCell<Slab<Rc<Server<F>>>>,
    tasks: OnceCell<Spawner<(Rc<Server<F>>, Work)>>,
}

impl<F> Default for Servers<F> {
    fn default() -> Self {
        Servers { all: RefCell::new(Slab::new()), tasks: OnceCell::new() }
    }
}

/// Makes the server of a new mount and gives its number.
pub(crate) fn install<F: FileSystem + 'static>(
    shard: &Shard,
    fs: Rc<F>,
    write_out: Arc<WriteOut>,
    options: &MountOptions,
) -> usize {
    let servers = shard.local::<Servers<F>>();
    servers.tasks.get_or_init(|| {
        shard.spawner(|(server, work): (Rc<Server<F>>, Work)| async move {
            server.serve(work).await;
            server.under_way.set(server.under_way.get() - 1);
            server.ended.notify_all();
        })
    });
    let memory = options.memory.max(options.max_write as usize);
    let server = Rc::new(Server {
        shard: shard.clone(),
        fs,
        lender: Lender::new(options.max_write as usize, memory / options.threads.max(1)),
        reads: Budget::new(shard, memory as u64),
        references: References::default(),
        under_way: Cell::new(0),
        ended: Notify::new(shard),
        attr_timeout: options.attr_timeout,
        entry_timeout: options.entry_timeout,
        direct_mmap: Cell::new(false),
        key: servers.all.borrow().vacant_key(),
        write_out,
    });
    servers.all.borrow_mut().insert(server)
}

fn server<F: 'static>(servers: &Servers<F>, key: usize) -> Option<Rc<Server<F>>> {
    servers.all.borrow().get(key).cloned()
}

/// Files that bypass the page cache can be mapped.
pub(crate) fn allow_direct_mmap<F: 'static>(shard: &Shard, key: usize) {
    if let Some(server) = server(&shard.local::<Servers<F>>(), key) {
        server.direct_mmap.set(true);
    }
}

/// Buffers for payloads, for a further thread that reads requests; `None`: the mount has ended.
pub(crate) fn lend<F: 'static>(shard: &Shard, key: usize) -> Option<Shelves> {
    Some(server(&shard.local::<Servers<F>>(), key)?.lender.lend(shard))
}

/// A thread that read requests has ended.
pub(crate) fn take_back<F: 'static>(shard: &Shard, key: usize, shelves: Shelves) {
    if let Some(server) = server(&shard.local::<Servers<F>>(), key) {
        server.lender.take_back(shelves);
    }
}

/// Starts one request.
pub(crate) fn start<F: FileSystem + 'static>(shard: &Shard, key: usize, work: Work) {
    let servers = shard.local::<Servers<F>>();
    let (Some(server), Some(tasks)) = (server(&servers, key), servers.tasks.get()) else { return };
    if let Work::Forget { ino, count } = work {
        return server.forget(ino, count);
    }
    server.under_way.set(server.under_way.get() + 1);
    tasks.spawn((server, work));
}

/// Ends a mount whose kernel side is gone: what is under way ends, what the kernel still held is given back, and
/// everything is made durable.
pub(crate) fn end<F: FileSystem + 'static>(
    shard: &Shard,
    key: usize,
    done: impl FnOnce(Result<(), Errno>) + 'static,
) {
    let removed = shard.local::<Servers<F>>().all.borrow_mut().try_remove(key);
    let Some(server) = removed else { return done(Ok(())) };
    shard.spawn(async move {
        server.ended.wait_for(|| (server.under_way.get() == 0).then_some(())).await;
        server.lender.settle(&server.shard);
        server.references.give_back(&*server.fs);
        done(server.fs.sync().await);
    });
}

impl<F: FileSystem + 'static> Server<F> {
    fn forget(&self, ino: Ino, count: u64) {
        self.references.forgotten(ino, count);
        self.fs.forget(ino, count);
    }

    fn looked_up(&self, entry: Entry) -> Entry {
        self.references.looked_up(entry.attr.ino);
        entry
    }

    fn answer_entry(&self, result: Result<Entry, Errno>, reply: fuser::ReplyEntry) {
        match result {
            Ok(entry) => {
                self.looked_up(entry);
                let generation = Generation(entry.generation);
                let (attr, timeouts) =
                    (file_attr(&entry.attr), (&self.attr_timeout, &self.entry_timeout));
                reply.entry_with_ttls(timeouts.0, timeouts.1, &attr, generation);
            }
            Err(error) => reply.error(errno::of(error)),
        }
    }

    fn answer_attr(&self, result: Result<Attr, Errno>, reply: fuser::ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&self.attr_timeout, &file_attr(&attr)),
            Err(error) => reply.error(errno::of(error)),
        }
    }

    async fn serve(&self, work: Work) {
        let fs = &*self.fs;
        match work {
            Work::Lookup { parent, name, reply } => match fs.lookup(parent, &name).await {
                // Number 0: the kernel may remember that there is no such name.
                Err(Errno::NotFound) => {
                    let none = nothing_but(0, Kind::File);
                    reply.entry(&self.entry_timeout, &none, Generation(0));
                }
                result => self.answer_entry(result, reply),
            },
            // Forgotten without a task, in `start`.
            Work::Forget { .. } => {}
            Work::Attr { ino, reply } => self.answer_attr(fs.attr(ino).await, reply),
            Work::SetAttr { caller, ino, set, reply } => {
                self.answer_attr(fs.set_attr(caller, ino, set).await, reply);
            }
            Work::Make { caller, parent, name, node, reply } => {
                let (kind, perm, rdev, target) = (node.kind, node.perm, node.rdev, &*node.target);
                let new = NewNode { kind, perm, rdev, target };
                self.answer_entry(fs.make(caller, parent, &name, new).await, reply);
            }
            Work::Create { caller, parent, name, perm, how, reply } => {
                match self.create(caller, parent, &name, perm, how).await {
                    Ok(entry) => {
                        let (attr, generation) =
                            (file_attr(&entry.attr), Generation(entry.generation));
                        let flags = self.open_flags(how);
                        reply.created(&self.attr_timeout, &attr, generation, NO_HANDLE, flags);
                    }
                    Err(error) => reply.error(errno::of(error)),
                }
            }
            Work::ReadLink { ino, reply } => match fs.read_link(ino).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::Link { ino, parent, name, reply } => {
                self.answer_entry(fs.link(ino, parent, &name).await, reply);
            }
            Work::Unlink { parent, name, reply } => {
                answer(fs.unlink(parent, &name).await, reply);
            }
            Work::RemoveDir { parent, name, reply } => {
                answer(fs.remove_dir(parent, &name).await, reply);
            }
            Work::Rename { from, to, flags, reply } => {
                answer(fs.rename(from.0, &from.1, to.0, &to.1, flags).await, reply);
            }
            Work::Open { caller, ino, how, reply } => match self.open(caller, ino, how).await {
                Ok(()) => reply.opened(NO_HANDLE, self.open_flags(how)),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::Close { ino, reply } => {
                self.references.closed(ino);
                fs.close(ino);
                reply.ok();
            }
            Work::Read { ino, offset, len, direct, reply } => {
                let _share = self.reads.take(len as u64).await;
                match fs.read(ino, offset, len).await {
                    Ok(data) if direct && data.len() < len => {
                        let (remote, key) = (self.shard.remote(), self.key);
                        let again = Work::Read { ino, offset, len, direct: false, reply };
                        self.write_out.then(ino, move || {
                            remote.run(move |shard| start::<F>(shard, key, again));
                        });
                    }
                    Ok(data) => reply.data(&data),
                    Err(error) => reply.error(errno::of(error)),
                }
            }
            Work::Write { ino, offset, data, clear_setid, reply } => {
                self.write(ino, offset, data, clear_setid, reply).await;
            }
            Work::Sync { ino, data_only, reply } => answer(fs.fsync(ino, data_only).await, reply),
            Work::Allocate { ino, how, offset, len, reply } => {
                answer(fs.allocate(ino, how, offset, len).await, reply);
            }
            Work::Seek { ino, offset, what, reply } => match fs.seek(ino, offset, what).await {
                // The kernel's offsets are signed; no file is that long.
                Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::ReadDir { ino, offset, reply } => self.read_dir(ino, offset, reply).await,
            Work::ReadDirPlus { ino, offset, reply } => {
                self.read_dir_plus(ino, offset, reply).await
            }
            Work::Space { reply } => match fs.space().await {
                Ok(space) => reply.statfs(
                    space.blocks,
                    space.free,
                    space.available,
                    space.files,
                    space.files_free,
                    space.block,
                    space.name_max,
                    space.block,
                ),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::SetXattr { ino, name, value, mode, reply } => {
                answer(fs.set_xattr(ino, &name, &value, mode).await, reply);
            }
            Work::Xattr { ino, name, size, reply } => {
                answer_sized(fs.xattr(ino, &name).await, size, reply);
            }
            Work::Xattrs { ino, size, reply } => {
                let joined = fs.xattrs(ino).await.map(|names| {
                    names.into_iter().fold(Vec::new(), |mut all, name| {
                        all.extend_from_slice(&name);
                        all.push(0);
                        all
                    })
                });
                answer_sized(joined, size, reply);
            }
            Work::RemoveXattr { ino, name, reply } => {
                answer(fs.remove_xattr(ino, &name).await, reply);
            }
        }
    }

    /// Little space left, or a file opened for direct I/O: past the page cache, writers side by side.
    fn open_flags(&self, how: Opening) -> FopenFlags {
        // The kernel tells us of every change that it makes, and nobody else makes any.
        let cached = FopenFlags::FOPEN_KEEP_CACHE;
        if self.direct_mmap.get() && (how.direct || self.fs.is_nearly_full()) {
            return cached | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        cached
    }

    async fn open(&self, caller: Caller, ino: Ino, how: Opening) -> Result<(), Errno> {
        // Others than root lose the setuid and setgid bits of what they cut, which `open` does not know of.
        let cut = how.truncate && caller.uid != 0;
        self.fs.open(ino, how.truncate && !cut).await?;
        if cut {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            if let Err(error) = self.fs.set_attr(caller, ino, set).await {
                self.fs.close(ino);
                return Err(error);
            }
        }
        self.references.opened(ino);
        Ok(())
    }

    /// Makes a file and opens it; one that is there is opened, unless it must not be.
    async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        perm: u16,
        how: Opening,
    ) -> Result<Entry, Errno> {
        let new = NewNode { kind: Kind::File, perm, rdev: 0, target: &[] };
        let (entry, truncate) = match self.fs.make(caller, parent, name, new).await {
            Ok(entry) => (entry, false),
            Err(Errno::Exists) if !how.exclusive => {
                (self.fs.lookup(parent, name).await?, how.truncate)
            }
            Err(error) => return Err(error),
        };
        let entry = self.looked_up(entry);
        match self.open(caller, entry.attr.ino, Opening { truncate, ..how }).await {
            Ok(()) => Ok(entry),
            Err(error) => {
                self.forget(entry.attr.ino, 1);
                Err(error)
            }
        }
    }

    async fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: Payload,
        clear_setid: bool,
        reply: fuser::ReplyWrite,
    ) {
        let Some((data, refill)) = self.lender.unpack(&self.shard, data) else {
            return reply.error(fuser::Errno::EIO);
        };
        let len = data.len() as u32;
        match self.fs.write(ino, offset, data, clear_setid).await {
            Ok(()) => reply.written(len),
            Err(error) => reply.error(errno::of(error)),
        }
        self.lender.refill(&self.shard, refill);
    }

    /// `.` and `..` of directory `ino` that are due from `offset` on: number, next position, name.
    async fn dots(&self, ino: Ino, offset: u64) -> Result<Vec<(Ino, u64, &'static [u8])>, Errno> {
        let mut dots: Vec<(Ino, u64, &'static [u8])> = Vec::new();
        if offset < 1 {
            dots.push((ino, 1, b"."));
        }
        if offset < DOTS {
            dots.push((self.fs.parent(ino).await?, DOTS, b".."));
        }
        Ok(dots)
    }

    async fn read_dir(&self, ino: Ino, offset: u64, mut reply: fuser::ReplyDirectory) {
        let dots = match self.dots(ino, offset).await {
            Ok(dots) => dots,
            Err(error) => return reply.error(errno::of(error)),
        };
        for (ino, next, name) in dots {
            if reply.add(INodeNo(ino), next, fuser::FileType::Directory, OsStr::from_bytes(name)) {
                return reply.ok();
            }
        }
        let (mut cookie, mut empty) = (offset.saturating_sub(DOTS), offset >= DOTS);
        loop {
            let entries = match self.fs.read_dir(ino, cookie, DIRECTORY / ENTRY).await {
                Ok(entries) => entries,
                Err(error) if empty => return reply.error(errno::of(error)),
                // What is there is answered; the error comes with the next part.
                Err(_) => return reply.ok(),
            };
            if entries.is_empty() {
                return reply.ok();
            }
            for entry in entries {
                let (next, kind) = (entry.cookie.saturating_add(DOTS), file_type(entry.kind));
                if reply.add(INodeNo(entry.ino), next, kind, OsStr::from_bytes(&entry.name)) {
                    return reply.ok();
                }
                (cookie, empty) = (entry.cookie, false);
            }
        }
    }

    async fn read_dir_plus(&self, ino: Ino, offset: u64, mut reply: fuser::ReplyDirectoryPlus) {
        let dots = match self.dots(ino, offset).await {
            Ok(dots) => dots,
            Err(error) => return reply.error(errno::of(error)),
        };
        let (none, generation) = (Duration::ZERO, Generation(0));
        for (ino, next, name) in dots {
            // The kernel takes no look-up from these two.
            let (ino, attr) = (INodeNo(ino), nothing_but(ino, Kind::Directory));
            if reply.add(ino, next, OsStr::from_bytes(name), &none, &attr, generation) {
                return reply.ok();
            }
        }
        // How much the kernel wants fuser does not say, so look-ups of the last part are done in vain.
        let (mut cookie, max) = (offset.saturating_sub(DOTS), DIRECTORY / ENTRY_PLUS);
        let (mut full, mut empty) = (false, offset >= DOTS);
        while !full {
            let entries = match self.fs.read_dir_plus(ino, cookie, max).await {
                Ok(entries) => entries,
                Err(error) if empty => return reply.error(errno::of(error)),
                // What is there is answered; the error comes with the next part.
                Err(_) => break,
            };
            if entries.is_empty() {
                break;
            }
            for (entry, found) in entries {
                full = full || self.add_plus(&entry, found.as_ref(), &mut reply);
                match found {
                    Some(found) if full => self.fs.forget(found.attr.ino, 1),
                    Some(found) => self.references.looked_up(found.attr.ino),
                    None => {}
                }
                (cookie, empty) = (entry.cookie, false);
            }
        }
        reply.ok();
    }

    /// True when it did not fit.
    fn add_plus(
        &self,
        entry: &DirEntry,
        found: Option<&Entry>,
        reply: &mut fuser::ReplyDirectoryPlus,
    ) -> bool {
        let (attr, generation) = match found {
            Some(found) => (file_attr(&found.attr), Generation(found.generation)),
            // Number 0: no look-up comes with it.
            None => (nothing_but(0, entry.kind), Generation(0)),
        };
        let timeout = self.entry_timeout.min(self.attr_timeout);
        let (next, name) = (entry.cookie.saturating_add(DOTS), OsStr::from_bytes(&entry.name));
        reply.add(INodeNo(entry.ino), next, name, &timeout, &attr, generation)
    }
}

fn answer(result: Result<(), Errno>, reply: fuser::ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno::of(error)),
    }
}

/// An extended attribute, or the list of them: its length when room for 0 bytes is given, ERANGE when it does not
/// fit, else itself.
fn answer_sized(result: Result<Vec<u8>, Errno>, room: usize, reply: fuser::ReplyXattr) {
    match result {
        // At most 64 KiB each, so a length fits.
        Ok(bytes) if room == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if bytes.len() > room => reply.error(fuser::Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno::of(error)),
    }
}
