//! The folder in which one case plays: objects to try things on, other users, and comparisons that say what was wrong.
//!
//! A scene owns its folder and nothing outside; what the case leaves there its runner removes.

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::fmt::{Debug, Display};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a case gives back; an error of kind [`Skip`] says that the question does not arise here.
pub type Outcome = Result<()>;

/// The user that most cases call "another user"; any number but root's does.
pub const ALICE: u32 = 64_101;
/// A second user, for what one user may do to another's objects.
pub const BOB: u32 = 64_102;
/// A group; nobody is in it unless a case puts him there.
pub const STAFF: u32 = 64_201;

/// Why a case was not played.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// Ends a case without a verdict.
///
/// # Errors
///
/// Always: the [`Skip`].
pub fn skip<T>(reason: impl Display) -> Result<T> {
    Err(Skip(reason.to_string()).into())
}

/// What the one who started the run has said about the surroundings.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// A directory of the same kind of file system, mounted read-only.
    pub read_only: Option<PathBuf>,
    /// The program that plays the second process, called as `PROGRAM helper`.
    pub helper: PathBuf,
}

/// A folder of the file system under test that belongs to one case.
#[derive(Debug)]
pub struct Scene {
    root: PathBuf,
    /// What is known about the surroundings.
    pub surroundings: Surroundings,
}

/// The kinds of objects that a directory can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, to a name that does not exist.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name, without a socket behind it.
    Socket,
    /// A character device: the one of /dev/null.
    Character,
    /// A block device: one that no driver has.
    Block,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Regular,
        Self::Directory,
        Self::Symlink,
        Self::Fifo,
        Self::Socket,
        Self::Character,
        Self::Block,
    ];

    /// Whether only root may make one.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(self, Self::Character | Self::Block)
    }
}

impl Scene {
    /// A scene in the folder `root`, which is there and empty.
    #[must_use]
    pub fn new(root: PathBuf, surroundings: Surroundings) -> Self {
        Self { root, surroundings }
    }

    /// The scene's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `name` in the scene's folder.
    #[must_use]
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(Path::new(name.as_ref()))
    }

    /// Makes an empty file of mode 0644.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn file(&self, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        self.file_of(name, b"")
    }

    /// Makes a file of mode 0644 that holds `bytes`.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn file_of(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)
            .with_context(|| format!("making the file {}", path.display()))?;
        file.write_all(bytes).with_context(|| format!("writing the file {}", path.display()))?;
        Ok(path)
    }

    /// Makes a directory of mode 0755.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn dir(&self, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        let path = self.path(name);
        rustix::fs::mkdir(&path, Mode::from(0o755))
            .with_context(|| format!("making the directory {}", path.display()))?;
        Ok(path)
    }

    /// Makes a symbolic link with the text `target`.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn symlink(&self, target: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        let path = self.path(name);
        rustix::fs::symlink(target.as_ref(), &path)
            .with_context(|| format!("making the symbolic link {}", path.display()))?;
        Ok(path)
    }

    /// Makes an object of the given kind, of mode 0644 where it has one to choose and 0755 for a directory.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn make(&self, kind: Kind, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        let path = self.path(&name);
        let (file_type, device) = match kind {
            Kind::Regular => return self.file(name),
            Kind::Directory => return self.dir(name),
            Kind::Symlink => return self.symlink("nowhere", name),
            Kind::Fifo => (FileType::Fifo, 0),
            Kind::Socket => (FileType::Socket, 0),
            Kind::Character => (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            Kind::Block => (FileType::BlockDevice, rustix::fs::makedev(240, 7)),
        };
        rustix::fs::mknodat(CWD, &path, file_type, Mode::from(0o644), device)
            .with_context(|| format!("making {kind:?} {}", path.display()))?;
        Ok(path)
    }

    /// The kinds that this process may make: devices only as root.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| !kind.is_device() || is_root()).collect()
    }

    /// Opens for reading and writing.
    ///
    /// # Errors
    ///
    /// The system's, with the name.
    pub fn open(&self, path: &Path) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("opening {}", path.display()))
    }

    /// Gives `path` itself to a user and a group.
    ///
    /// # Errors
    ///
    /// The system's; [`Skip`] without root.
    pub fn give(&self, path: &Path, uid: u32, gid: u32) -> Outcome {
        needs_root()?;
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))
            .with_context(|| format!("giving {} to user {uid}, group {gid}", path.display()))
    }

    /// Sets the mode of what `path` leads to.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_mode(&self, path: &Path, mode: u32) -> Outcome {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("setting mode {mode:o} of {}", path.display()))
    }

    /// Lets so much time pass that what happens next has a later time stamp than what happened before: a kernel stamps
    /// with the clock of its last tick, at most 10 ms ago.
    pub fn tick(&self) {
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Whether this process may act as other users.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Ends a case that another user plays in, where that cannot be arranged.
///
/// # Errors
///
/// [`Skip`] without root.
pub fn needs_root() -> Outcome {
    if is_root() { Ok(()) } else { skip("needs root, to act as another user") }
}

/// Does `work` as another user without any privilege: `groups` are the group and the supplementary groups.
///
/// The kernel keeps users by thread, so a thread of its own changes and ends; this one stays what it is.
///
/// # Errors
///
/// [`Skip`] without root; the system's when it refuses to change users.
pub fn as_user<T: Send>(uid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> Result<T> {
    needs_root()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<T> {
            let ids: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
            let Some((gid, rest)) = ids.split_first() else { bail!("a user needs a group") };
            rustix::thread::set_thread_groups(rest).context("changing groups")?;
            rustix::thread::set_thread_res_gid(*gid, *gid, *gid).context("changing the group")?;
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).context("changing the user")?;
            Ok(work())
        });
        match other.join() {
            Ok(done) => done,
            Err(_) => bail!("the other user's thread panicked"),
        }
    })
}

/// What is known about an object, without following a last symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// The inode number.
    pub ino: u64,
    /// The device that a device's name stands for.
    pub rdev: u64,
    /// When it was last read, in nanoseconds since 1970.
    pub atime: i128,
    /// When its bytes or entries last changed, in nanoseconds since 1970.
    pub mtime: i128,
    /// When anything about it last changed, in nanoseconds since 1970.
    pub ctime: i128,
}

impl Facts {
    /// The twelve bits that chmod sets.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

impl From<std::fs::Metadata> for Facts {
    fn from(from: std::fs::Metadata) -> Self {
        let time =
            |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            mode: from.mode(),
            uid: from.uid(),
            gid: from.gid(),
            nlink: from.nlink(),
            size: from.size(),
            blocks: from.blocks(),
            ino: from.ino(),
            rdev: from.rdev(),
            atime: time(from.atime(), from.atime_nsec()),
            mtime: time(from.mtime(), from.mtime_nsec()),
            ctime: time(from.ctime(), from.ctime_nsec()),
        }
    }
}

/// The facts about `path` itself.
///
/// # Errors
///
/// The system's, with the name.
pub fn facts(path: &Path) -> Result<Facts> {
    let found =
        std::fs::symlink_metadata(path).with_context(|| format!("stat of {}", shortened(path)))?;
    Ok(found.into())
}

/// The facts about an open file.
///
/// # Errors
///
/// The system's.
pub fn facts_of(file: &File) -> Result<Facts> {
    Ok(file.metadata().context("stat of an open file")?.into())
}

fn shortened(path: &Path) -> String {
    let whole = path.display().to_string();
    match whole.char_indices().nth(120) {
        Some((end, _)) => format!("{}… ({} bytes)", &whole[..end], whole.len()),
        None => whole,
    }
}

/// Fails unless the call failed with `want`.
///
/// # Errors
///
/// Says what was done, and what came instead.
pub fn refuses<T>(what: impl Display, got: rustix::io::Result<T>, want: Errno) -> Outcome {
    refuses_with(what, got, &[want])
}

/// Fails unless the call failed with one of `want`: where POSIX leaves a choice.
///
/// # Errors
///
/// Says what was done, and what came instead.
pub fn refuses_with<T>(what: impl Display, got: rustix::io::Result<T>, want: &[Errno]) -> Outcome {
    let wanted = want.iter().map(|errno| name_of(*errno)).collect::<Vec<_>>().join(" or ");
    match got {
        Ok(_) => bail!("{what}: succeeded, should fail with {wanted}"),
        Err(errno) => {
            ensure!(
                want.contains(&errno),
                "{what}: failed with {}, should fail with {wanted}",
                name_of(errno)
            );
            Ok(())
        }
    }
}

/// Fails unless the call succeeded.
///
/// # Errors
///
/// Says what was done, and how it failed.
pub fn works<T>(what: impl Display, got: rustix::io::Result<T>) -> Result<T> {
    got.map_err(|errno| anyhow::anyhow!("{what}: failed with {}, should succeed", name_of(errno)))
}

/// A call of the standard library as one of rustix: both carry the same numbers.
///
/// # Errors
///
/// That of the call; EIO where it carries no number.
pub fn plain<T>(got: std::io::Result<T>) -> rustix::io::Result<T> {
    got.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Fails unless both are equal.
///
/// # Errors
///
/// Says what was compared, with both values.
pub fn equal<T: PartialEq + Debug>(what: impl Display, got: T, want: T) -> Outcome {
    ensure!(got == want, "{what}: is {got:?}, should be {want:?}");
    Ok(())
}

/// Fails unless `condition` holds.
///
/// # Errors
///
/// Says what does not hold.
pub fn holds(what: impl Display, condition: bool) -> Outcome {
    ensure!(condition, "does not hold: {what}");
    Ok(())
}

/// Fails unless the bytes are equal, and says where they begin to differ.
///
/// # Errors
///
/// The lengths, or the first place and what stands there.
pub fn same_bytes(what: impl Display, got: &[u8], want: &[u8]) -> Outcome {
    ensure!(got.len() == want.len(), "{what}: {} bytes, should be {}", got.len(), want.len());
    if let Some(place) = got.iter().zip(want).position(|(got, want)| got != want) {
        let differ = got.iter().zip(want).filter(|(got, want)| got != want).count();
        bail!(
            "{what}: byte {place} is {:#04x}, should be {:#04x}; {differ} of {} bytes differ",
            got[place],
            want[place],
            got.len(),
        );
    }
    Ok(())
}

/// The name by which manual pages know an error.
#[must_use]
pub fn name_of(errno: Errno) -> String {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::TOOBIG, "E2BIG"),
        (Errno::ACCESS, "EACCES"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::BADF, "EBADF"),
        (Errno::BUSY, "EBUSY"),
        (Errno::DEADLK, "EDEADLK"),
        (Errno::EXIST, "EEXIST"),
        (Errno::FBIG, "EFBIG"),
        (Errno::INVAL, "EINVAL"),
        (Errno::IO, "EIO"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::LOOP, "ELOOP"),
        (Errno::MFILE, "EMFILE"),
        (Errno::MLINK, "EMLINK"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NODATA, "ENODATA"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NXIO, "ENXIO"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::PERM, "EPERM"),
        (Errno::PIPE, "EPIPE"),
        (Errno::RANGE, "ERANGE"),
        (Errno::ROFS, "EROFS"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::STALE, "ESTALE"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::XDEV, "EXDEV"),
    ];
    match NAMES.iter().find(|(known, _)| *known == errno) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{errno:?} ({})", errno.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_fail_when_they_should() {
        assert!(equal("n", 1, 2).is_err() && equal("n", 1, 1).is_ok());
        assert!(holds("x", false).is_err() && holds("x", true).is_ok());
        assert!(refuses("x", Ok(()), Errno::NOENT).is_err());
        assert!(refuses::<()>("x", Err(Errno::PERM), Errno::NOENT).is_err());
        assert!(refuses::<()>("x", Err(Errno::NOENT), Errno::NOENT).is_ok());
        assert!(works::<()>("x", Err(Errno::NOENT)).is_err());
    }

    #[test]
    fn a_difference_of_bytes_is_placed() {
        let said = same_bytes("file", b"abXd", b"abcd").unwrap_err().to_string();
        assert!(said.contains("byte 2") && said.contains("1 of 4"), "{said}");
        assert!(same_bytes("file", b"abc", b"abcd").is_err());
        assert!(same_bytes("file", b"abcd", b"abcd").is_ok());
    }
}
