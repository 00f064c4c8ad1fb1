//! The requests that a client makes of a file system, and their answers, as plain values.

use super::meta::Id;
use super::stamp::{self, Version};
use braid_filesystem::{
    Allocate, Attr, Caller, DirEntry, Entry, Errno, FileFlags, FileSystem, Ino, Kind, NewNode,
    Opening, RENAME_WHITEOUT, RenameFlags, Seek, SetAttr, Space, TrimRange, Writing, XattrMode,
};
use braid_shard::Pool;
use std::ops::Range;

/// What is asked.
#[derive(Clone, Debug)]
pub enum What {
    /// The name in the directory.
    Lookup(Vec<u8>),
    /// Attributes.
    Attr,
    /// Attributes are changed.
    SetAttr(Caller, SetAttr),
    /// A new file in the directory.
    Make {
        /// Whose it is.
        caller: Caller,
        /// Its name.
        name: Vec<u8>,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        perm: u16,
        /// Those that are not to be set.
        umask: u16,
        /// Device number.
        rdev: u32,
        /// What it points to.
        target: Vec<u8>,
    },
    /// A new file in the directory without a name.
    MakeUnnamed {
        /// Whose it is.
        caller: Caller,
        /// Permission bits.
        perm: u16,
        /// Those that are not to be set.
        umask: u16,
    },
    /// The attributes of chattr(1).
    Flags,
    /// They are set.
    SetFlags(FileFlags),
    /// Devices are told of free space.
    Trim(TrimRange),
    /// What a symbolic link points to.
    ReadLink,
    /// The file gets that name in the other, a directory.
    Link(Vec<u8>),
    /// The name goes.
    Unlink(Vec<u8>),
    /// The directory of that name goes.
    RemoveDir(Vec<u8>),
    /// From that name here to that name in the other.
    Rename(Vec<u8>, Vec<u8>, RenameFlags),
    /// Opened, and cut with `true`.
    Open(bool),
    /// Read from the offset so many bytes.
    Read(u64, usize),
    /// Written at the offset so many bytes, of a version.
    Write(u64, usize, Version),
    /// Made durable; the data only with `true`.
    Fsync(bool),
    /// Everything is made durable.
    Sync,
    /// Space.
    Allocate(Allocate, u64, u64),
    /// Such a range is copied from the other file to the same place: these versions.
    Copy(Range<u64>, Vec<(Range<u64>, Version)>),
    /// The next data or hole.
    Seek(u64, Seek),
    /// All entries, so many at a time; with `true` looked up as well.
    List(usize, bool),
    /// The directory's own.
    Parent,
    /// How full it is.
    Space,
    /// An extended attribute is set.
    SetXattr(Vec<u8>, Vec<u8>, XattrMode),
    /// Its value.
    Xattr(Vec<u8>),
    /// The names of all.
    Xattrs,
    /// It goes.
    RemoveXattr(Vec<u8>),
}

/// A request on a file, or two.
#[derive(Clone, Debug)]
pub struct Call {
    /// The file.
    pub on: Id,
    /// The second directory of a rename or link, the source of a copy; else the same as `on`.
    pub other: Id,
    /// What is asked.
    pub what: What,
}

/// What comes back when it went well.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nothing more.
    Done,
    /// A file that was looked up.
    Entry(Entry),
    /// Attributes.
    Attr(Attr),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Names.
    Names(Vec<Vec<u8>>),
    /// A whole directory.
    List(Vec<(DirEntry, Option<Entry>)>),
    /// An offset.
    Offset(u64),
    /// A number.
    Ino(Ino),
    /// Space.
    Space(Space),
    /// The attributes of chattr(1).
    Flags(FileFlags),
}

/// Reads a directory from its start to its end.
///
/// # Errors
/// Those of the file system.
pub async fn list<F: FileSystem>(
    fs: &F,
    dir: Ino,
    max: usize,
    plus: bool,
) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let some = match plus {
            true => fs.read_dir_plus(dir, cookie, max).await?,
            false => {
                let some = fs.read_dir(dir, cookie, max).await?;
                some.into_iter().map(|entry| (entry, None)).collect()
            }
        };
        let Some((last, _)) = some.last() else { return Ok(all) };
        cookie = last.cookie;
        all.extend(some);
        // A file system that never comes to an end is found by the length.
        if all.len() > 100_000 {
            return Ok(all);
        }
    }
}

/// Writes of some files may be of the kind for which nobody waits.
pub fn may_be_behind(id: Id) -> bool {
    id.is_multiple_of(2)
}

/// This one is.
pub fn is_behind(id: Id, what: &What) -> bool {
    matches!(what, What::Write(.., version) if may_be_behind(id) && !version.is_multiple_of(4))
}

/// Makes the request of `fs`.
///
/// `behind`: nobody waits to see on the bricks what is written.
///
/// # Errors
/// Those of the file system.
pub async fn carry_out<F: FileSystem>(
    fs: &F,
    pool: &Pool,
    seed: u64,
    (on, other): (Ino, Ino),
    what: &What,
    behind: bool,
) -> Result<Answer, Errno> {
    let done = |()| Answer::Done;
    match what {
        What::Lookup(name) => fs.lookup(on, name).await.map(Answer::Entry),
        What::Attr => fs.attr(on).await.map(Answer::Attr),
        What::SetAttr(caller, set) => fs.set_attr(*caller, on, *set).await.map(Answer::Attr),
        What::Make { caller, name, kind, perm, umask, rdev, target } => {
            let node = NewNode { kind: *kind, perm: *perm, umask: *umask, rdev: *rdev, target };
            fs.make(*caller, on, name, node).await.map(Answer::Entry)
        }
        What::MakeUnnamed { caller, perm, umask } => {
            let (kind, target) = (Kind::File, &b""[..]);
            let node = NewNode { kind, perm: *perm, umask: *umask, rdev: 0, target };
            fs.make_unnamed(*caller, on, node).await.map(Answer::Entry)
        }
        What::Flags => fs.flags(on).await.map(Answer::Flags),
        What::SetFlags(flags) => fs.set_flags(on, *flags).await.map(done),
        What::Trim(range) => fs.trim(*range).await.map(Answer::Offset),
        What::ReadLink => fs.read_link(on).await.map(Answer::Bytes),
        What::Link(name) => fs.link(on, other, name).await.map(Answer::Entry),
        What::Unlink(name) => fs.unlink(on, name).await.map(done),
        What::RemoveDir(name) => fs.remove_dir(on, name).await.map(done),
        What::Rename(name, new, flags) => {
            fs.rename(on, name, other, new, *flags).await?;
            match flags.0 & RENAME_WHITEOUT.0 {
                0 => Ok(Answer::Done),
                // Nobody has been told which file the whiteout is.
                _ => fs.lookup(on, name).await.map(Answer::Entry),
            }
        }
        What::Open(truncate) => {
            let how = Opening { truncate: *truncate, ..Opening::WRITE };
            fs.open(on, how).await.map(done)
        }
        What::Read(offset, len) => {
            fs.read(on, *offset, *len).await.map(|bytes| Answer::Bytes(bytes.to_vec()))
        }
        What::Write(offset, len, version) => {
            let mut bytes = pool.get(*len);
            stamp::fill(seed, *version, *offset, &mut bytes);
            let how = Writing { behind, ..Writing::default() };
            fs.write(on, *offset, bytes.freeze(), how).await.map(done)
        }
        What::Fsync(data_only) => fs.fsync(on, *data_only).await.map(done),
        What::Sync => fs.sync().await.map(done),
        What::Allocate(how, offset, len) => fs.allocate(on, *how, *offset, *len).await.map(done),
        What::Copy(range, _) => {
            let mut at = range.start;
            while at < range.end {
                match fs.copy_range((other, at), (on, at), range.end - at).await? {
                    0 => break,
                    bytes => at += bytes,
                }
            }
            Ok(Answer::Done)
        }
        What::Seek(offset, what) => fs.seek(on, *offset, *what).await.map(Answer::Offset),
        What::List(max, plus) => list(fs, on, *max, *plus).await.map(Answer::List),
        What::Parent => fs.parent(on).await.map(Answer::Ino),
        What::Space => fs.space(on).await.map(Answer::Space),
        What::SetXattr(name, value, mode) => fs.set_xattr(on, name, value, *mode).await.map(done),
        What::Xattr(name) => fs.xattr(on, name).await.map(Answer::Bytes),
        What::Xattrs => fs.xattrs(on).await.map(Answer::Names),
        What::RemoveXattr(name) => fs.remove_xattr(on, name).await.map(done),
    }
}

fn text(name: &[u8]) -> String {
    match name.len() {
        0..40 => String::from_utf8_lossy(name).into_owned(),
        len => format!("{}…({len} bytes)", String::from_utf8_lossy(&name[..8])),
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (on, other) = (self.on, self.other);
        match &self.what {
            What::Lookup(name) => write!(f, "lookup {} in f{on}", text(name)),
            What::Make { name, kind, .. } => write!(f, "make {kind:?} {} in f{on}", text(name)),
            What::MakeUnnamed { .. } => write!(f, "make a file without a name in f{on}"),
            What::SetFlags(flags) => write!(f, "set flags of f{on} to {flags:?}"),
            What::Link(name) => write!(f, "link f{on} as {} in f{other}", text(name)),
            What::Unlink(name) => write!(f, "unlink {} in f{on}", text(name)),
            What::RemoveDir(name) => write!(f, "remove dir {} in f{on}", text(name)),
            What::Rename(name, new, flags) => {
                let (name, new, flags) = (text(name), text(new), flags.0);
                write!(f, "rename {name} in f{on} to {new} in f{other} flags {flags}")
            }
            What::Write(offset, len, version) => {
                write!(f, "write #{version} f{on} {offset}+{len}")
            }
            What::Copy(range, _) => write!(f, "copy f{other} {range:?} to f{on}"),
            What::SetXattr(name, value, mode) => {
                write!(f, "set xattr {} of f{on} to {} bytes {mode:?}", text(name), value.len())
            }
            What::Xattr(name) => write!(f, "xattr {} of f{on}", text(name)),
            What::RemoveXattr(name) => write!(f, "remove xattr {} of f{on}", text(name)),
            What::SetAttr(_, set) => {
                write!(f, "set attr f{on}")?;
                if let Some(size) = set.size {
                    write!(f, " size {size}")?;
                }
                if set.perm.is_some() || set.uid.is_some() || set.gid.is_some() {
                    write!(f, " mode {:?} {:?}:{:?}", set.perm, set.uid, set.gid)?;
                }
                if set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some() {
                    write!(f, " times")?;
                }
                Ok(())
            }
            what => write!(f, "{what:?} f{on}"),
        }
    }
}
