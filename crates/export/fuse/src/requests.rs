//! The kernel's requests as they come: made into [`Work`] and sent to the shard. Runs on fuser's threads.
//!
//! What can be refused without looking at the file system is refused here. What the kernel is to do by itself
//! (locks, polls, copies between files) is answered ENOSYS, after which it does not ask again.

use crate::attributes::{from_system, set_time};
use crate::kernel;
use crate::options::MountOptions;
use crate::payload::{self, Payload};
use crate::serve;
use crate::work::{Name, Node, Opening, Work};
use crate::write_out::WriteOut;
use braid_filesystem::{
    Allocate, Caller, FileSystem, Ino, Kind, MODE_MASK, RENAME_EXCHANGE, RENAME_NOREPLACE,
    RenameFlags, Seek, SetAttr, XattrMode,
};
use braid_shard::mailbox::Remote;
use fuser::*;
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

// Values of linux/falloc.h, linux/fs.h and linux/xattr.h.
const FALLOC_KEEP_SIZE: i32 = 0x01;
const FALLOC_PUNCH_HOLE: i32 = 0x02;
const FALLOC_ZERO_RANGE: i32 = 0x10;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// What fuser calls.
pub(crate) struct Requests<F> {
    pub remote: Remote,
    /// The server's number on the shard.
    pub key: usize,
    pub options: MountOptions,
    pub write_out: Arc<WriteOut>,
    pub file_system: PhantomData<fn(F)>,
}

impl<F: FileSystem + 'static> Requests<F> {
    fn send(&self, work: Work) {
        let key = self.key;
        // When the shard is gone the work is dropped, and a dropped reply is EIO.
        self.remote.run(move |shard| serve::start::<F>(shard, key, work));
    }

    /// A write's bytes in a buffer of the shard; `None` when the shard is gone.
    fn pack(&self, bytes: &[u8]) -> Option<Payload> {
        payload::pack(bytes, || {
            let (remote, key) = (self.remote.clone(), self.key);
            let shelves = remote.call(move |shard| serve::lend::<F>(shard, key))??;
            Some((shelves, move |shelves| {
                remote.run(move |shard| serve::take_back::<F>(shard, key, shelves));
            }))
        })
    }
}

fn owned(name: &OsStr) -> Name {
    name.as_bytes().into()
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

/// Permission bits of a new file. The kernel has applied the umask unless it was asked not to; twice is once.
fn perm(mode: u32, umask: u32) -> u16 {
    (mode & !umask) as u16 & MODE_MASK
}

/// What fallocate(2)'s mode means; `None` for what is not supported.
fn allocate_how(mode: i32) -> Option<Allocate> {
    const PUNCH: i32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
    const ZERO_KEEP: i32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
    Some(match mode {
        0 => Allocate::Reserve { keep_size: false },
        FALLOC_KEEP_SIZE => Allocate::Reserve { keep_size: true },
        PUNCH => Allocate::PunchHole,
        FALLOC_ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
        ZERO_KEEP => Allocate::ZeroRange { keep_size: true },
        _ => return None,
    })
}

impl<F: FileSystem + 'static> Filesystem for Requests<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::configure(&self.options, config);
        if config.capabilities().contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP) {
            let key = self.key;
            self.remote.run(move |shard| serve::allow_direct_mmap::<F>(shard, key));
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.send(Work::Lookup { parent: parent.0, name: owned(name), reply });
    }

    // fuser hands a batch over one by one: its type for an entry of a batch is private.
    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.send(Work::Forget { ino: ino.0, count });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.send(Work::Attr { ino: ino.0, reply });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.map(|mode| mode as u16 & MODE_MASK),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(from_system),
        };
        self.send(Work::SetAttr { caller: caller(request), ino: ino.0, set, reply });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.send(Work::ReadLink { ino: ino.0, reply });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = Kind::from_bits(mode) else { return reply.error(Errno::EINVAL) };
        let node = Node { kind, perm: perm(mode, umask), rdev, target: Box::default() };
        let (parent, name) = (parent.0, owned(name));
        self.send(Work::Make { caller: caller(request), parent, name, node, reply });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let perm = perm(mode, umask);
        let node = Node { kind: Kind::Directory, perm, rdev: 0, target: Box::default() };
        let (parent, name) = (parent.0, owned(name));
        self.send(Work::Make { caller: caller(request), parent, name, node, reply });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = owned(target.as_os_str());
        let node = Node { kind: Kind::Symlink, perm: 0o777, rdev: 0, target };
        let (parent, name) = (parent.0, owned(name));
        self.send(Work::Make { caller: caller(request), parent, name, node, reply });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send(Work::Unlink { parent: parent.0, name: owned(name), reply });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send(Work::RemoveDir { parent: parent.0, name: owned(name), reply });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags(flags.bits());
        if ![RenameFlags::default(), RENAME_NOREPLACE, RENAME_EXCHANGE].contains(&flags) {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((parent.0, owned(name)), (new_parent.0, owned(new_name)));
        self.send(Work::Rename { from, to, flags, reply });
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.send(Work::Link { ino: ino.0, parent: parent.0, name: owned(name), reply });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, perm, how) = (caller(request), perm(mode, umask), Opening::of(flags));
        let (parent, name) = (parent.0, owned(name));
        self.send(Work::Create { caller, parent, name, perm, how, reply });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let how = Opening::of(flags.0);
        self.send(Work::Open { caller: caller(request), ino: ino.0, how, reply });
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.send(Work::Close { ino: ino.0, reply });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let is_direct = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DIRECT);
        let direct = self.options.writeback_cache && is_direct;
        self.send(Work::Read { ino: ino.0, offset, len: size as usize, direct, reply });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(data) = self.pack(data) else { return reply.error(Errno::EIO) };
        let clear_setid = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        self.send(Work::Write { ino: ino.0, offset, data, clear_setid, reply });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is held back here. The kernel writes its cache out at close all the same.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.send(Work::Sync { ino: ino.0, data_only, reply });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Look-ups keep a directory in existence. The kernel then opens directories by itself, and caches them.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.send(Work::ReadDir { ino: ino.0, offset, reply });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.send(Work::ReadDirPlus { ino: ino.0, offset, reply });
    }

    fn fsyncdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.send(Work::Sync { ino: ino.0, data_only, reply });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.send(Work::Space { reply });
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        self.send(Work::SetXattr {
            ino: ino.0,
            name: owned(name),
            value: value.into(),
            mode,
            reply,
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.send(Work::Xattr { ino: ino.0, name: owned(name), size: size as usize, reply });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.send(Work::Xattrs { ino: ino.0, size: size as usize, reply });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send(Work::RemoveXattr { ino: ino.0, name: owned(name), reply });
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (default_permissions).
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(how) = allocate_how(mode) else { return reply.error(Errno::EOPNOTSUPP) };
        self.send(Work::Allocate { ino: ino.0, how, offset, len, reply });
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let ino: Ino = ino.0;
        let work = Work::Seek { ino, offset, what, reply };
        if !self.options.writeback_cache {
            return self.send(work);
        }
        let (remote, key) = (self.remote.clone(), self.key);
        self.write_out.then(ino, move || {
            remote.run(move |shard| serve::start::<F>(shard, key, work));
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel then copies through its cache.
        reply.error(Errno::ENOSYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_fallocate_are_told_apart_and_others_refused() {
        assert_eq!(allocate_how(0), Some(Allocate::Reserve { keep_size: false }));
        assert_eq!(allocate_how(1), Some(Allocate::Reserve { keep_size: true }));
        assert_eq!(allocate_how(3), Some(Allocate::PunchHole));
        assert_eq!(allocate_how(0x10), Some(Allocate::ZeroRange { keep_size: false }));
        assert_eq!(allocate_how(0x11), Some(Allocate::ZeroRange { keep_size: true }));
        // A hole without KEEP_SIZE, collapse, insert, unshare.
        for mode in [2, 8, 0x20, 0x40, 0x12, -1] {
            assert_eq!(allocate_how(mode), None, "{mode}");
        }
    }

    #[test]
    fn new_files_get_the_bits_that_the_umask_leaves() {
        assert_eq!(perm(0o100666, 0o022), 0o644);
        assert_eq!(perm(0o47777, 0), 0o7777);
    }
}
