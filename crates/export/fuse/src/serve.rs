//! The shard's side of a mount: each request is a task that asks the file system and answers the kernel.

use crate::abi::directory::{ENTRY, ENTRY_PLUS, Listed, Listing};
use crate::abi::ioctl;
use crate::abi::reply::{self, OPEN_DIRECT_IO, OPEN_KEEP_CACHE, OPEN_PARALLEL_DIRECT_WRITES};
use crate::depth::Depth;
use crate::errno;
use crate::kernel::Agreed;
use crate::options::MountOptions;
use crate::references::References;
use crate::reply::{Reply, answer, answer_sized};
use crate::watchdog::Progress;
use crate::work::{Durable, Form, NewFlags, Node, Opening, Work, WriteHow};
use crate::write_out::WriteOut;
use braid_filesystem::{
    Attr, Caller, Entry, Errno, FileFlags, FileSystem, Ino, Kind, Lease, SetAttr, Writing,
};
use braid_shard::sync::{Budget, Notify};
use braid_shard::{BufMut, Shard, Spawner};
use slab::Slab;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Positions in a directory that come before those of the file system: of `.` and of `..`.
const DOTS: u64 = 2;
/// Reads that may wait for the kernel at a time. It counts asynchronous ones as work in the background, as it does the
/// writes that they wait for: of those it sends so many at a time and no more (`BACKGROUND` in `kernel.rs`), so that with
/// too many waiting the writes would not come.
const PARKED_READS_MAX: usize = 64;

/// One mount on its shard.
pub(crate) struct Server<F> {
    pub shard: Shard,
    fs: Rc<F>,
    /// Bytes of reads under way.
    reads: Rc<Budget>,
    /// Bytes of writes under way.
    pub writes: Rc<Budget>,
    references: References,
    /// Requests that are under way, or wait.
    pub depth: Depth,
    /// Requests that were begun.
    begun: Cell<u64>,
    ended: Notify,
    attr_timeout: Duration,
    entry_timeout: Duration,
    direct_mmap: bool,
    writeback: bool,
    /// The number by which the shard finds it.
    pub key: usize,
    write_out: Arc<WriteOut>,
    /// Replies to requests that wait for another thread.
    parked: RefCell<Slab<Reply>>,
    /// Reads among them.
    parked_reads: Cell<usize>,
    /// Files that are open.
    opens: RefCell<Slab<Rc<Open>>>,
    tasks: Tasks<F>,
}

/// A file that is open.
struct Open {
    ino: Ino,
    writes: bool,
    /// The losses that it has been told of.
    told: Cell<u64>,
}

/// Starts requests.
type Tasks<F> = Spawner<(Rc<Server<F>>, Work, Reply)>;

/// The mounts of one kind of file system on a shard.
struct Servers<F> {
    all: RefCell<Slab<Rc<Server<F>>>>,
    tasks: OnceCell<Tasks<F>>,
}

impl<F> Default for Servers<F> {
    fn default() -> Self {
        Servers { all: RefCell::new(Slab::new()), tasks: OnceCell::new() }
    }
}

/// A server for a new mount, found by its number from then on; requests are its caller's to receive.
pub(crate) fn enroll<F: FileSystem + 'static>(
    shard: &Shard,
    fs: Rc<F>,
    agreed: &Agreed,
    write_out: Arc<WriteOut>,
    options: &MountOptions,
) -> Rc<Server<F>> {
    let servers = shard.local::<Servers<F>>();
    let tasks = servers.tasks.get_or_init(|| {
        shard.spawner(|(server, work, reply): (Rc<Server<F>>, Work, Reply)| async move {
            server.serve(work, reply).await;
            server.depth.end();
            server.ended.notify_all();
        })
    });
    let memory = options.memory.max(options.max_write as usize) as u64;
    let key = servers.all.borrow().vacant_key();
    let server = Rc::new(Server {
        shard: shard.clone(),
        fs,
        reads: Budget::new(shard, memory),
        writes: Budget::new(shard, memory),
        references: References::default(),
        depth: Depth::default(),
        begun: Cell::new(0),
        ended: Notify::new(shard),
        attr_timeout: options.attr_timeout,
        entry_timeout: options.entry_timeout,
        direct_mmap: agreed.direct_mmap,
        writeback: options.writeback_cache,
        key,
        write_out,
        parked: RefCell::default(),
        parked_reads: Cell::new(0),
        opens: RefCell::default(),
        tasks: tasks.clone(),
    });
    servers.all.borrow_mut().insert(Rc::clone(&server));
    server
}

/// The server of a mount that has not ended.
pub(crate) fn find<F: FileSystem + 'static>(shard: &Shard, key: usize) -> Option<Rc<Server<F>>> {
    server(&shard.local::<Servers<F>>(), key)
}

fn server<F: 'static>(servers: &Servers<F>, key: usize) -> Option<Rc<Server<F>>> {
    servers.all.borrow().get(key).cloned()
}

/// Starts one request.
pub(crate) fn begin<F: FileSystem + 'static>(server: &Rc<Server<F>>, work: Work, reply: Reply) {
    server.depth.begin();
    server.begun.set(server.begun.get() + 1);
    server.tasks.spawn((Rc::clone(server), work, reply));
}

/// Starts one request that had to wait for another thread; its reply is parked as number `parked`.
fn resume<F: FileSystem + 'static>(shard: &Shard, key: usize, work: Work, parked: usize) {
    let Some(server) = server(&shard.local::<Servers<F>>(), key) else { return };
    let reply = server.parked.borrow_mut().try_remove(parked);
    if let Some(reply) = reply {
        reply.unpark();
        if matches!(work, Work::Read { .. }) {
            server.parked_reads.set(server.parked_reads.get() - 1);
        }
        begin(&server, work, reply);
    }
}

/// The progress of a mount; `None` when it has ended.
pub(crate) fn progress<F: FileSystem + 'static>(shard: &Shard, key: usize) -> Option<Progress> {
    server(&shard.local::<Servers<F>>(), key)
        .map(|server| Progress { under_way: server.depth.under_way(), begun: server.begun.get() })
}

/// True if somebody has `ino` open who may write to it.
pub(crate) fn is_open_to_write<F: FileSystem + 'static>(
    shard: &Shard,
    key: usize,
    ino: Ino,
) -> bool {
    server(&shard.local::<Servers<F>>(), key).is_some_and(|server| {
        server.opens.borrow().iter().any(|(_, open)| open.ino == ino && open.writes)
    })
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
        server.ended.wait_for(|| (server.depth.under_way() == 0).then_some(())).await;
        server.references.give_back(&*server.fs);
        done(server.fs.sync().await);
    });
}

impl<F: FileSystem + 'static> Server<F> {
    /// See [`FileSystem::lease`].
    pub(crate) async fn lease(&self, ino: Ino, offset: u64) -> Option<Lease> {
        self.fs.lease(ino, offset).await
    }

    /// No request is under way: whoever asks next does not wait for another.
    pub(crate) fn is_idle(&self) -> bool {
        self.depth.under_way() == 0
    }

    /// `count` look-ups of `ino` are over.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        self.references.forgotten(ino, count);
        self.fs.forget(ino, count);
    }

    fn looked_up(&self, entry: Entry) -> Entry {
        self.references.looked_up(entry.attr.ino);
        entry
    }

    fn answer_entry(&self, result: Result<Entry, Errno>, reply: Reply) {
        match result {
            Ok(entry) => {
                self.looked_up(entry);
                reply.with(&reply::entry(&entry, self.entry_timeout, self.attr_timeout));
            }
            Err(error) => reply.error(errno::of(error)),
        }
    }

    fn answer_attr(&self, result: Result<Attr, Errno>, reply: Reply) {
        match result {
            Ok(attr) => reply.with(&reply::attr(&attr, self.attr_timeout)),
            Err(error) => reply.error(errno::of(error)),
        }
    }

    async fn serve(&self, work: Work, reply: Reply) {
        let fs = &*self.fs;
        match work {
            Work::Lookup { parent, name } => match fs.lookup(parent, &name).await {
                Err(Errno::NotFound) => reply.with(&reply::no_entry(self.entry_timeout)),
                result => self.answer_entry(result, reply),
            },
            Work::Attr { ino } => self.answer_attr(fs.attr(ino).await, reply),
            Work::Statx { ino } => match fs.attr(ino).await {
                Ok(attr) => reply.data(&reply::statx(&attr, self.attr_timeout)),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::SetAttr { caller, ino, set } => {
                self.answer_attr(fs.set_attr(caller, ino, set).await, reply);
            }
            Work::Make { caller, parent, name, node } => {
                self.answer_entry(fs.make(caller, parent, &name, node.to_make()).await, reply);
            }
            Work::Create { caller, parent, name, node, how } => {
                let created = self.create(caller, parent, &name, &node, how).await;
                self.answer_created(created, how, reply);
            }
            Work::CreateUnnamed { caller, parent, node, how } => {
                let created = match fs.make_unnamed(caller, parent, node.to_make()).await {
                    Ok(entry) => self.open_new(caller, entry, how).await,
                    Err(error) => Err(error),
                };
                self.answer_created(created, how, reply);
            }
            Work::Flags { ino, form } => match fs.flags(ino).await {
                Ok(flags) => reply.with(&ioctl::flags(flags, form)),
                Err(error) => reply.error(no_ioctl(error)),
            },
            Work::SetFlags { ino, new } => match self.set_flags(ino, new).await {
                Ok(()) => reply.with(&ioctl::nothing()),
                Err(error) => reply.error(no_ioctl(error)),
            },
            // The kernel asks nobody for a permission here.
            Work::Trim { caller, .. } if caller.uid != 0 => reply.error(rustix::io::Errno::PERM),
            Work::Trim { range, .. } => match fs.trim(range).await {
                Ok(bytes) => reply.with(&ioctl::trimmed(range, bytes)),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::ReadLink { ino } => match fs.read_link(ino).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::Link { ino, parent, name } => {
                self.answer_entry(fs.link(ino, parent, &name).await, reply);
            }
            Work::Unlink { parent, name } => answer(fs.unlink(parent, &name).await, reply),
            Work::RemoveDir { parent, name } => answer(fs.remove_dir(parent, &name).await, reply),
            Work::Rename { from, to, flags } => {
                answer(fs.rename(from.0, &from.1, to.0, &to.1, flags).await, reply);
            }
            Work::Open { caller, ino, how } => match self.open(caller, ino, how).await {
                Ok(open) => reply.with(&reply::opened(open, self.open_flags(ino, how))),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::Close { ino, open } => {
                self.forget_open(open);
                self.references.closed(ino);
                fs.close(ino);
                reply.done();
            }
            Work::Read { ino, offset, len, direct } => {
                self.read(ino, offset, len, direct, reply).await;
            }
            Work::Write { ino, open, offset, data, how, held } => {
                // At most what the kernel writes at once.
                let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
                match self.write(ino, open, offset, data, how).await {
                    Ok(()) => reply.with(&reply::written(len)),
                    Err(error) => reply.error(errno::of(error)),
                }
                drop(held);
            }
            Work::Sync { ino, open, data_only } => {
                answer(self.sync(ino, open, data_only).await, reply);
            }
            Work::Allocate { caller, ino, how, offset, len } => {
                let cleared = self.clear_rights(caller, ino).await;
                let done = match cleared {
                    Ok(()) => fs.allocate(ino, how, offset, len).await,
                    Err(error) => Err(error),
                };
                answer(done, reply);
            }
            Work::CopyRange { caller, from, to, len } => {
                let copied = match self.clear_rights(caller, to.0).await {
                    Ok(()) => fs.copy_range(from, to, len).await,
                    Err(error) => Err(error),
                };
                match copied {
                    // As much as is asked for at once fits.
                    Ok(bytes) => {
                        reply.with(&reply::written(u32::try_from(bytes).unwrap_or(u32::MAX)))
                    }
                    Err(error) => reply.error(errno::of(error)),
                }
            }
            Work::Seek { ino, offset, what, current } if current || !self.writeback => {
                match fs.seek(ino, offset, what).await {
                    Ok(found) => reply.with(&reply::sought(found)),
                    Err(error) => reply.error(errno::of(error)),
                }
            }
            Work::Seek { ino, offset, what, .. } => {
                let again = move || Work::Seek { ino, offset, what, current: true };
                // Linux then takes all of a file for data, from now on: right for any file.
                self.written_out(ino, offset, again, reply, rustix::io::Errno::NOSYS);
            }
            Work::ReadDir { ino, offset, size } => self.read_dir(ino, offset, size, reply).await,
            Work::ReadDirPlus { ino, offset, size } => {
                self.read_dir_plus(ino, offset, size, reply).await;
            }
            Work::Space { ino } => match fs.space(ino).await {
                Ok(space) => reply.with(&reply::space(&space)),
                Err(error) => reply.error(errno::of(error)),
            },
            Work::SetXattr { ino, name, value, mode, clear_setgid } => {
                let set = match fs.set_xattr(ino, &name, &value, mode).await {
                    Ok(()) if clear_setgid => self.clear_setgid(ino).await,
                    other => other,
                };
                answer(set, reply);
            }
            Work::Xattr { ino, name, size } => {
                answer_sized(fs.xattr(ino, &name).await, size, reply);
            }
            Work::Xattrs { ino, size } => {
                let joined = fs.xattrs(ino).await.map(|names| {
                    names.into_iter().fold(Vec::new(), |mut all, name| {
                        all.extend_from_slice(&name);
                        all.push(0);
                        all
                    })
                });
                answer_sized(joined, size, reply);
            }
            Work::RemoveXattr { ino, name } => {
                answer(fs.remove_xattr(ino, &name).await, reply);
            }
        }
    }

    async fn read(&self, ino: Ino, offset: u64, len: usize, direct: bool, reply: Reply) {
        // A request over io_uring brings its memory with it.
        let (result, _share) = match reply.room() {
            Some(room) => (self.fs.read_into(ino, offset, len, room).await, None),
            None => {
                let share = self.reads.take(len as u64).await;
                (self.fs.read(ino, offset, len).await, Some(share))
            }
        };
        match result {
            Ok(data) if direct && self.writeback && data.len() < len => {
                let end = offset.saturating_add(data.len() as u64);
                drop(data);
                let again = move || Work::Read { ino, offset, len, direct: false };
                let waiting = self.parked_reads.get();
                if waiting >= PARKED_READS_MAX {
                    return reply.error(rustix::io::Errno::AGAIN);
                }
                if self.written_out(ino, end, again, reply, rustix::io::Errno::AGAIN) {
                    self.parked_reads.set(waiting + 1);
                }
            }
            Ok(data) => reply.content(data),
            Err(error) => reply.error(errno::of(error)),
        }
    }

    async fn write(
        &self,
        ino: Ino,
        open: u64,
        offset: u64,
        data: BufMut,
        how: WriteHow,
    ) -> Result<(), Errno> {
        if how.clear_capabilities {
            self.clear_capabilities(ino).await?;
        }
        let writing = Writing {
            clear_setid: how.clear_setid,
            behind: how.cached,
            times_told: how.cached && self.writeback,
        };
        self.fs.write(ino, offset, data.freeze(), writing).await?;
        match how.durable {
            Some(durable) => self.sync(ino, open, durable == Durable::Data).await,
            None => Ok(()),
        }
    }

    /// An fsync by whoever has opening number `open`, which is told of each loss once.
    async fn sync(&self, ino: Ino, open: u64, data_only: bool) -> Result<(), Errno> {
        let found = self.opens.borrow().get(open_index(open)).cloned();
        match found {
            Some(open) => self.fs.fsync_since(ino, data_only, &open.told).await,
            // Directories are not opened here.
            None => self.fs.fsync(ino, data_only).await,
        }
    }

    /// Takes away the setuid and setgid bits and the capabilities of a file whose space `caller` changes, which Linux
    /// leaves to us (it says so of writes and truncates only). It lets nobody else change the mode meanwhile.
    async fn clear_rights(&self, caller: Caller, ino: Ino) -> Result<(), Errno> {
        self.clear_capabilities(ino).await?;
        let attr = self.fs.attr(ino).await?;
        // A setgid bit without permission to execute for the group means something else (chmod(2)).
        let group = if attr.perm & 0o010 != 0 { 0o2000 } else { 0 };
        let perm = attr.perm & !(0o4000 | group);
        if caller.uid != 0 && perm != attr.perm {
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            self.fs.set_attr(caller, ino, set).await?;
        }
        Ok(())
    }

    async fn clear_capabilities(&self, ino: Ino) -> Result<(), Errno> {
        match self.fs.remove_xattr(ino, b"security.capability").await {
            Ok(()) | Err(Errno::NoData | Errno::Unsupported) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Goes on with `work` when the kernel holds nothing back of `ino` from byte `from` on; the answer is `otherwise` when
    /// too many wait, and this false. The kernel must not hold a page of the file for this request: see `write_out`.
    fn written_out(
        &self,
        ino: Ino,
        from: u64,
        work: impl FnOnce() -> Work + Send + 'static,
        reply: Reply,
        otherwise: rustix::io::Errno,
    ) -> bool {
        if !reply.park() {
            reply.error(otherwise);
            return false;
        }
        let (remote, key) = (self.shard.remote(), self.key);
        let parked = self.parked.borrow_mut().insert(reply);
        self.write_out.then(ino, from, move || {
            // When the mount has ended its parked replies are dropped, which is EIO.
            remote.run(move |shard| resume::<F>(shard, key, work(), parked));
        });
        true
    }

    /// With little space left writers go past the page cache, side by side. Files opened for direct I/O need not be told
    /// to: the kernel does that by itself, and only then notes the times of their writes.
    fn open_flags(&self, ino: Ino, how: Opening) -> u32 {
        if self.fs.is_shared(ino) {
            return OPEN_DIRECT_IO;
        }
        if self.fs.is_uncached(ino) {
            return OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES;
        }
        // The kernel tells us of every change that it makes, and nobody else makes any.
        if self.direct_mmap && !how.direct && self.fs.is_nearly_full(ino) {
            return OPEN_KEEP_CACHE | OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES;
        }
        OPEN_KEEP_CACHE
    }

    /// The number that requests name the opening by; 0 is none.
    fn add_open(&self, ino: Ino, writes: bool) -> u64 {
        let open = Open { ino, writes, told: Cell::new(self.fs.losses_told(ino)) };
        self.opens.borrow_mut().insert(Rc::new(open)) as u64 + 1
    }

    fn forget_open(&self, open: u64) {
        self.opens.borrow_mut().try_remove(open_index(open));
    }

    async fn open(&self, caller: Caller, ino: Ino, how: Opening) -> Result<u64, Errno> {
        // Others than root lose the setuid and setgid bits of what they cut, which `open` does not know of.
        let cut = how.truncate && caller.uid != 0;
        let how = Opening { truncate: how.truncate && !cut, ..how };
        self.fs.open(ino, how.to_file()).await?;
        if cut {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            if let Err(error) = self.fs.set_attr(caller, ino, set).await {
                self.fs.close(ino);
                return Err(error);
            }
        }
        // Pages that the kernel collects would be refused only when it writes them out, perhaps to nobody. Asked
        // at the end: who
        // begins to share the file looks for openings afterwards.
        if how.writes && self.fs.is_shared(ino) {
            self.fs.close(ino);
            return Err(Errno::Busy);
        }
        self.references.opened(ino);
        Ok(self.add_open(ino, how.writes))
    }

    /// Makes a file and opens it; one that is there is opened, unless it must not be.
    async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        node: &Node,
        how: Opening,
    ) -> Result<(Entry, u64), Errno> {
        let (entry, truncate) = match self.fs.make(caller, parent, name, node.to_make()).await {
            Ok(entry) => (entry, false),
            Err(Errno::Exists) if !how.exclusive => {
                (self.fs.lookup(parent, name).await?, how.truncate)
            }
            Err(error) => return Err(error),
        };
        self.open_new(caller, entry, Opening { truncate, ..how }).await
    }

    /// Opens what was just made or looked up.
    async fn open_new(
        &self,
        caller: Caller,
        entry: Entry,
        how: Opening,
    ) -> Result<(Entry, u64), Errno> {
        let entry = self.looked_up(entry);
        match self.open(caller, entry.attr.ino, how).await {
            Ok(open) => Ok((entry, open)),
            Err(error) => {
                self.forget(entry.attr.ino, 1);
                Err(error)
            }
        }
    }

    fn answer_created(&self, created: Result<(Entry, u64), Errno>, how: Opening, reply: Reply) {
        match created {
            Ok((entry, open)) => {
                let known = self.entry_timeout.min(self.attr_timeout);
                let flags = self.open_flags(entry.attr.ino, how);
                reply.with(&reply::created(&entry, known, open, flags));
            }
            Err(error) => reply.error(errno::of(error)),
        }
    }

    async fn set_flags(&self, ino: Ino, new: NewFlags) -> Result<(), Errno> {
        let flags = match new.form {
            Form::Extended => new.flags,
            Form::Flags => FileFlags { project: self.fs.flags(ino).await?.project, ..new.flags },
        };
        self.fs.set_flags(ino, flags).await
    }

    async fn clear_setgid(&self, ino: Ino) -> Result<(), Errno> {
        let perm = self.fs.attr(ino).await?.perm;
        let set = SetAttr { perm: Some(perm & !0o2000), ..SetAttr::default() };
        self.fs.set_attr(Caller::default(), ino, set).await.map(|_| ())
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

    async fn read_dir(&self, ino: Ino, offset: u64, size: usize, reply: Reply) {
        let dots = match self.dots(ino, offset).await {
            Ok(dots) => dots,
            Err(error) => return reply.error(errno::of(error)),
        };
        let mut listing = Listing::new(size);
        for (ino, next, name) in dots {
            if listing.add(&Listed { ino, next, kind: Kind::Directory, name }) {
                return reply.data(listing.bytes());
            }
        }
        let (mut cookie, max) = (offset.saturating_sub(DOTS), (size / ENTRY).max(1));
        loop {
            let entries = match self.fs.read_dir(ino, cookie, max).await {
                Ok(entries) => entries,
                Err(error) if listing.bytes().is_empty() => return reply.error(errno::of(error)),
                // The entries found so far are the answer; the error comes with the next part.
                Err(_) => return reply.data(listing.bytes()),
            };
            if entries.is_empty() {
                return reply.data(listing.bytes());
            }
            for entry in entries {
                let next = entry.cookie.saturating_add(DOTS);
                let (ino, kind, name) = (entry.ino, entry.kind, &*entry.name);
                if listing.add(&Listed { ino, next, kind, name }) {
                    return reply.data(listing.bytes());
                }
                cookie = entry.cookie;
            }
        }
    }

    async fn read_dir_plus(&self, ino: Ino, offset: u64, size: usize, reply: Reply) {
        let dots = match self.dots(ino, offset).await {
            Ok(dots) => dots,
            Err(error) => return reply.error(errno::of(error)),
        };
        let mut listing = Listing::new(size);
        let mut full = false;
        for (ino, next, name) in dots {
            // The kernel takes no look-up from these two.
            full =
                full || listing.add_plus(&Listed { ino, next, kind: Kind::Directory, name }, None);
        }
        let known = self.entry_timeout.min(self.attr_timeout);
        let mut cookie = offset.saturating_sub(DOTS);
        while !full {
            // As many as may have room: of the last ones a look-up is done in vain.
            let max = (size.saturating_sub(listing.bytes().len()) / ENTRY_PLUS).max(1);
            let entries = match self.fs.read_dir_plus(ino, cookie, max).await {
                Ok(entries) => entries,
                Err(error) if listing.bytes().is_empty() => return reply.error(errno::of(error)),
                // The entries found so far are the answer; the error comes with the next part.
                Err(_) => break,
            };
            if entries.is_empty() {
                break;
            }
            for (entry, found) in entries {
                let next = entry.cookie.saturating_add(DOTS);
                let listed = Listed { ino: entry.ino, next, kind: entry.kind, name: &entry.name };
                full =
                    full || listing.add_plus(&listed, found.as_ref().map(|found| (found, known)));
                match found {
                    Some(found) if full => self.fs.forget(found.attr.ino, 1),
                    Some(found) => self.references.looked_up(found.attr.ino),
                    None => {}
                }
                cookie = entry.cookie;
            }
        }
        reply.data(listing.bytes());
    }
}

/// Where [`Server::opens`] has opening number `open`.
fn open_index(open: u64) -> usize {
    // The number of none comes to lie where there is none.
    usize::try_from(open.wrapping_sub(1)).unwrap_or(usize::MAX)
}

/// An ioctl that the file system does not have is one that the file does not have.
fn no_ioctl(error: Errno) -> rustix::io::Errno {
    if error == Errno::Unsupported { rustix::io::Errno::NOTTY } else { errno::of(error) }
}
