//! A request taken apart: [`Work`] for what the file system is asked, a number of errno.h for what is not.

use super::fields::Fields;
use super::ioctl;
use crate::work::{Durable, Held, Name, Node, Opening, Work, WriteHow};
use braid_filesystem::{
    Allocate, Caller, Ino, Kind, MODE_MASK, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
    RenameFlags, Seek, SetAttr, SetTime, Time, XattrMode,
};
use braid_shard::BufMut;
use rustix::fs::OFlags;
use rustix::io::Errno;

// Values of linux/falloc.h, linux/fs.h and linux/xattr.h.
// Of asm-generic/fcntl.h, as nearly all machines have them; O_SYNC includes O_DSYNC.
const O_DSYNC: u32 = 0o10000;
const O_SYNC: u32 = 0o4000000 | O_DSYNC;
const FALLOC_KEEP_SIZE: u32 = 0x01;
const FALLOC_PUNCH_HOLE: u32 = 0x02;
const FALLOC_ZERO_RANGE: u32 = 0x10;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const SETXATTR_ACL_KILL_SGID: u32 = 1;

// Flags of linux/fuse.h.
const FATTR_MODE: u32 = 1 << 0;
const FATTR_UID: u32 = 1 << 1;
const FATTR_GID: u32 = 1 << 2;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_ATIME: u32 = 1 << 4;
const FATTR_MTIME: u32 = 1 << 5;
const FATTR_ATIME_NOW: u32 = 1 << 7;
const FATTR_MTIME_NOW: u32 = 1 << 8;
const FATTR_CTIME: u32 = 1 << 10;
const FSYNC_FDATASYNC: u32 = 1;
const READ_LOCKOWNER: u32 = 1 << 1;
const WRITE_CACHE: u32 = 1 << 0;
const WRITE_LOCKOWNER: u32 = 1 << 1;
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Opcodes of linux/fuse.h that are dealt with.
pub(crate) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// `fuse_in_header`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Bytes of the request, this header included.
    pub len: u32,
    /// The operation.
    pub opcode: u32,
    /// The number that the reply needs.
    pub unique: u64,
    /// The file that it is about, or the directory.
    pub ino: Ino,
    /// The process that asks.
    pub caller: Caller,
}

impl Header {
    /// From the first bytes of a request.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let mut fields = Fields(bytes);
        let (len, opcode) = (fields.u32()?, fields.u32()?);
        let (unique, ino) = (fields.u64()?, fields.u64()?);
        let caller = Caller { uid: fields.u32()?, gid: fields.u32()? };
        Some(Header { len, opcode, unique, ino, caller })
    }
}

/// A write's own fields; its payload comes behind.
pub(crate) struct WriteHead {
    open: u64,
    /// Where in the file.
    offset: u64,
    /// Bytes of the payload.
    pub size: usize,
    how: WriteHow,
}

impl WriteHead {
    /// From what comes after the header.
    pub fn parse(body: &[u8]) -> Option<WriteHead> {
        let mut fields = Fields(body);
        let (open, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let flags = fields.u32()?;
        fields.skip(8)?;
        let opened = fields.u32()?;
        let durable = match opened & O_SYNC {
            // The page cache writes out later, on nobody's behalf.
            _ if flags & WRITE_CACHE != 0 => None,
            O_SYNC => Some(Durable::File),
            O_DSYNC => Some(Durable::Data),
            _ => None,
        };
        let direct = flags & WRITE_LOCKOWNER != 0;
        let how = WriteHow {
            clear_setid: flags & WRITE_KILL_SUIDGID != 0,
            clear_capabilities: direct && opened & OFlags::DIRECT.bits() == 0,
            direct,
            cached: flags & WRITE_CACHE != 0,
            durable,
        };
        Some(WriteHead { open, offset, size: size as usize, how })
    }

    /// The write of `data` to file `ino`; `held` as in [`Work::Write`].
    pub fn of(&self, ino: Ino, data: BufMut, held: Option<Held>) -> Work {
        let &WriteHead { open, offset, how, .. } = self;
        Work::Write { ino, open, offset, data, how, held }
    }
}

/// The files of a batch of forgets, each with its number of look-ups.
pub(crate) fn forgets(body: &[u8]) -> impl Iterator<Item = (Ino, u64)> {
    let mut fields = Fields(body);
    let mut left = fields.u32().unwrap_or_default();
    // After it come four bytes of nothing; where they are missing there is no entry either.
    let _ = fields.skip(4);
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        Some((fields.u64()?, fields.u64()?))
    })
}

/// The number of look-ups of one file that are forgotten.
pub(crate) fn forgotten(body: &[u8]) -> u64 {
    Fields(body).u64().unwrap_or_default()
}

/// A new file without a target. The kernel has applied the umask unless it was asked not to; twice is once.
fn node(kind: Kind, mode: u32, umask: u32, rdev: u32) -> Node {
    let bits = |mode: u32| mode as u16 & MODE_MASK;
    Node { kind, perm: bits(mode), umask: bits(umask), rdev, target: Name::default() }
}

/// The meaning of fallocate(2)'s mode; `None` for modes that are not supported.
fn allocate_how(mode: u32) -> Option<Allocate> {
    const PUNCH: u32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
    const ZERO_KEEP: u32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
    Some(match mode {
        0 => Allocate::Reserve { keep_size: false },
        FALLOC_KEEP_SIZE => Allocate::Reserve { keep_size: true },
        PUNCH => Allocate::PunchHole,
        FALLOC_ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
        ZERO_KEEP => Allocate::ZeroRange { keep_size: true },
        _ => return None,
    })
}

fn set_attr(fields: &mut Fields<'_>) -> Option<SetAttr> {
    let valid = fields.u32()?;
    fields.skip(4 + 8)?;
    let size = fields.u64()?;
    fields.skip(8)?;
    let seconds = [fields.i64()?, fields.i64()?, fields.i64()?];
    let nanos = [fields.u32()?, fields.u32()?, fields.u32()?];
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let has = |flag: u32| valid & flag != 0;
    let time = |at: usize| Time { seconds: seconds[at], nanos: nanos[at] };
    let set_time = |at: usize, is_set: u32, is_now: u32| match (has(is_now), has(is_set)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::To(time(at))),
        (false, false) => None,
    };
    Some(SetAttr {
        perm: has(FATTR_MODE).then_some(mode as u16 & MODE_MASK),
        uid: has(FATTR_UID).then_some(uid),
        gid: has(FATTR_GID).then_some(gid),
        size: has(FATTR_SIZE).then_some(size),
        atime: set_time(0, FATTR_ATIME, FATTR_ATIME_NOW),
        mtime: set_time(1, FATTR_MTIME, FATTR_MTIME_NOW),
        ctime: has(FATTR_CTIME).then_some(time(2)),
    })
}

/// Fields of `fuse_read_in`: offset, size, and whether a process reads past the page cache. The flags of the open file
/// do not tell: a page of a mapped file that was opened with `O_DIRECT` is read with them, too, and is locked meanwhile.
fn read(fields: &mut Fields<'_>) -> Option<(u64, usize, bool)> {
    fields.skip(8)?;
    let (offset, size, flags) = (fields.u64()?, fields.u32()?, fields.u32()?);
    // Behind the owner and the flags of the open file.
    fields.skip(8 + 4)?;
    Some((offset, size as usize, flags & READ_LOCKOWNER != 0))
}

fn renamed(fields: &mut Fields<'_>, with_flags: bool, from: Ino) -> Option<Result<Work, Errno>> {
    let to = fields.u64()?;
    let mut flags = RenameFlags::default();
    if with_flags {
        flags = RenameFlags(fields.u32()?);
        fields.skip(4)?;
    }
    let (from, to) = ((from, Name::from(fields.name()?)), (to, Name::from(fields.name()?)));
    const KNOWN: u32 = RENAME_NOREPLACE.0 | RENAME_EXCHANGE.0 | RENAME_WHITEOUT.0;
    if flags.0 & !KNOWN != 0 {
        return Some(Err(Errno::INVAL));
    }
    Some(Ok(Work::Rename { from, to, flags }))
}

/// The request that `header` and the `body` after it make. An error is the answer. Requests that the kernel can serve by
/// itself (locks, polls, copies between files) are answered `ENOSYS`, after which it does not ask again.
pub(crate) fn parse(header: &Header, body: &[u8]) -> Result<Work, Errno> {
    // Too short: no kernel sends that.
    parse_fields(header, &mut Fields(body)).unwrap_or(Err(Errno::INVAL))
}

fn parse_fields(header: &Header, fields: &mut Fields<'_>) -> Option<Result<Work, Errno>> {
    let &Header { ino, caller, .. } = header;
    // Of a request for a name.
    let parent = ino;
    Some(Ok(match header.opcode {
        opcode::LOOKUP => Work::Lookup { parent, name: fields.name()?.into() },
        opcode::GETATTR => Work::Attr { ino },
        opcode::SETATTR => Work::SetAttr { caller, ino, set: set_attr(fields)? },
        opcode::READLINK => Work::ReadLink { ino },
        opcode::SYMLINK => {
            let name = fields.name()?.into();
            let target = fields.name()?.into();
            let node = Node { target, ..node(Kind::Symlink, 0o777, 0, 0) };
            Work::Make { caller, parent, name, node }
        }
        opcode::MKNOD => {
            let (mode, rdev, umask) = (fields.u32()?, fields.u32()?, fields.u32()?);
            fields.skip(4)?;
            let Some(kind) = Kind::from_bits(mode) else { return Some(Err(Errno::INVAL)) };
            let node = node(kind, mode, umask, rdev);
            Work::Make { caller, parent, name: fields.name()?.into(), node }
        }
        opcode::MKDIR => {
            let node = node(Kind::Directory, fields.u32()?, fields.u32()?, 0);
            Work::Make { caller, parent, name: fields.name()?.into(), node }
        }
        opcode::UNLINK => Work::Unlink { parent, name: fields.name()?.into() },
        opcode::RMDIR => Work::RemoveDir { parent, name: fields.name()?.into() },
        opcode::RENAME => return renamed(fields, false, parent),
        opcode::RENAME2 => return renamed(fields, true, parent),
        opcode::LINK => {
            let ino = fields.u64()?;
            Work::Link { ino, parent, name: fields.name()?.into() }
        }
        opcode::OPEN => Work::Open { caller, ino, how: Opening::of(fields.u32()?) },
        opcode::CREATE => {
            let how = Opening::of(fields.u32()?);
            let node = node(Kind::File, fields.u32()?, fields.u32()?, 0);
            fields.skip(4)?;
            Work::Create { caller, parent, name: fields.name()?.into(), node, how }
        }
        opcode::TMPFILE => {
            let how = Opening::of(fields.u32()?);
            let node = node(Kind::File, fields.u32()?, fields.u32()?, 0);
            Work::CreateUnnamed { caller, parent, node, how }
        }
        opcode::RELEASE => Work::Close { ino, open: fields.u64()? },
        opcode::READ => {
            let (offset, len, direct) = read(fields)?;
            Work::Read { ino, offset, len, direct }
        }
        opcode::STATFS => Work::Space { ino },
        opcode::STATX => Work::Statx { ino },
        opcode::FSYNC | opcode::FSYNCDIR => {
            let open = fields.u64()?;
            Work::Sync { ino, open, data_only: fields.u32()? & FSYNC_FDATASYNC != 0 }
        }
        opcode::SETXATTR => {
            let (size, flags) = (fields.u32()?, fields.u32()?);
            let clear_setgid = fields.u32()? & SETXATTR_ACL_KILL_SGID != 0;
            fields.skip(4)?;
            let name = fields.name()?.into();
            let value = fields.bytes(size as usize)?.into();
            let mode = match flags {
                0 => XattrMode::Any,
                XATTR_CREATE => XattrMode::Create,
                XATTR_REPLACE => XattrMode::Replace,
                _ => return Some(Err(Errno::INVAL)),
            };
            Work::SetXattr { ino, name, value, mode, clear_setgid }
        }
        opcode::GETXATTR => {
            let size = fields.u32()? as usize;
            fields.skip(4)?;
            Work::Xattr { ino, name: fields.name()?.into(), size }
        }
        opcode::LISTXATTR => Work::Xattrs { ino, size: fields.u32()? as usize },
        opcode::REMOVEXATTR => Work::RemoveXattr { ino, name: fields.name()?.into() },
        opcode::READDIR => {
            let (offset, size, _) = read(fields)?;
            Work::ReadDir { ino, offset, size }
        }
        opcode::READDIRPLUS => {
            let (offset, size, _) = read(fields)?;
            Work::ReadDirPlus { ino, offset, size }
        }
        opcode::FALLOCATE => {
            fields.skip(8)?;
            let (offset, len) = (fields.u64()?, fields.u64()?);
            let Some(how) = allocate_how(fields.u32()?) else {
                return Some(Err(Errno::OPNOTSUPP));
            };
            Work::Allocate { caller, ino, how, offset, len }
        }
        opcode::LSEEK => {
            fields.skip(8)?;
            let offset = fields.i64()?;
            let what = match fields.u32()? {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Some(Err(Errno::INVAL)),
            };
            let Ok(offset) = u64::try_from(offset) else { return Some(Err(Errno::NXIO)) };
            Work::Seek { ino, offset, what, current: false }
        }
        opcode::COPY_FILE_RANGE => {
            fields.skip(8)?;
            let from = (ino, fields.u64()?);
            let to = fields.u64()?;
            fields.skip(8)?;
            let to = (to, fields.u64()?);
            let len = fields.u64()?;
            if fields.u64()? != 0 {
                return Some(Err(Errno::INVAL));
            }
            Work::CopyRange { caller, from, to, len }
        }
        opcode::IOCTL => return ioctl::parse(caller, ino, fields),
        // Nothing is held back here, so there is nothing to flush; look-ups keep a directory in existence, so that the
        // kernel opens directories by itself and caches them; permissions it checks itself (default_permissions).
        _ => return Some(Err(Errno::NOSYS)),
    }))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
