//! Unix sockets that listen: made with the right mode, and never taken from a server that runs.
//!
//! A file that a dead server left behind is replaced, which takes two steps: to see that nobody
//! listens, and to remove it. Two servers that start together could each remove what the other has just
//! made; so both steps, and the removal at the end, are done under a lock of the folder.
//!
//! Invariant: a socket file is removed only when it is this one's own or nobody listens on it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Tries to lock the folder, and the pause between them: two seconds. Servers hold the lock for less than a
/// millisecond.
const LOCK_TRIES: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Tries to find the socket of a server that was killed closed, and the pause between them: nearly two seconds.
const GONE_TRIES: usize = 180;
const GONE_PAUSE: Duration = Duration::from_millis(10);

/// Why nothing can listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum SocketFileError {
    /// Somebody listens there.
    #[error("{} is in use by a running server", .0.display())]
    InUse(PathBuf),
    /// The path is taken by something that is not a socket.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The folder stays locked.
    #[error("the folder {} is locked by another program (flock)", .0.display())]
    Locked(PathBuf),
    /// The system refused.
    #[error("{doing} {}: {source}", .path.display())]
    System {
        /// The action that failed.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

/// The rights to connect to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permissions of its file, whatever the umask.
    pub mode: u32,
    /// The number of the group that the file belongs to; the one that new files get, without it.
    pub group: Option<u32>,
}

impl Rights {
    /// Its owner and nobody else.
    pub const OWNER: Rights = Rights { mode: 0o600, group: None };
}

/// The file of a listening socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    own: Identity,
}

/// Device, inode, and the time when it was made, where the file system knows that: the next file may get the same
/// inode.
type Identity = (u64, u64, Option<SystemTime>);

impl SocketFile {
    /// A socket that listens at `path`, whose file has these rights; never more, not for a moment. A file on which nobody
    /// listens is replaced.
    ///
    /// # Errors
    /// A running server, another kind of file, a folder that cannot be used, a group that this process may not give files
    /// to.
    pub fn bind(
        path: &Path,
        rights: Rights,
    ) -> Result<(UnixListener, SocketFile), SocketFileError> {
        let Rights { mode, group } = rights;
        let failed = |doing| move |source: io::Error| error(doing, path, source);
        let _locked = lock_folder_of(path)?;
        clear_stale(path)?;
        // Until it belongs to its group it is nobody's but the owner's.
        let first = if group.is_some() { mode & 0o700 } else { mode };
        let socket = socket_of(path, first).map_err(failed("listening on"))?;
        let undone = |error| {
            // As it is made here, nobody else has it.
            let _ = fs::remove_file(path);
            error
        };
        if group.is_some() {
            lchown(path, None, group).map_err(failed("setting the group of")).map_err(undone)?;
        }
        // The umask took from the mode; this gives it back.
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, permissions)
            .map_err(failed("setting the mode of"))
            .map_err(undone)?;
        let found = fs::symlink_metadata(path).map_err(failed("looking at"))?;
        let file = SocketFile { path: path.to_owned(), own: identity(&found) };
        Ok((UnixListener::from(socket), file))
    }

    /// The file of a socket that another has made and listens on no longer; `None` when it is not there.
    #[must_use]
    pub fn adopt(path: &Path) -> Option<SocketFile> {
        let found = fs::symlink_metadata(path).ok().filter(|found| found.file_type().is_socket());
        found.map(|found| SocketFile { path: path.to_owned(), own: identity(&found) })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if it is still this one.
    pub fn remove(&self) {
        // Without the lock it is left for the next server to replace.
        let Ok(_locked) = lock_folder_of(&self.path) else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.own) {
            // The same goes for a file that cannot be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.dev(), found.ino(), found.created().ok())
}

fn error(doing: &'static str, path: &Path, source: io::Error) -> SocketFileError {
    SocketFileError::System { doing, path: path.to_owned(), source }
}

fn socket_of(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux makes the file with the mode that the socket itself has.
    fchmod(socket.as_fd(), Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Locks the folder until the file is dropped.
fn lock_folder_of(path: &Path) -> Result<File, SocketFileError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = File::open(folder).map_err(|source| error("opening the folder", folder, source))?;
    for _ in 0..LOCK_TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            // A file system without locks: as well as can be.
            Err(_) => return Ok(file),
        }
    }
    Err(SocketFileError::Locked(folder.to_owned()))
}

/// Removes a socket file that a dead server left behind.
fn clear_stale(path: &Path) -> Result<(), SocketFileError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(SocketFileError::NotASocket(path.to_owned()));
    }
    for _ in 0..GONE_TRIES {
        match UnixStream::connect(path) {
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                let removed = fs::remove_file(path);
                return removed.map_err(|source| error("removing the stale socket", path, source));
            }
            // The kernel takes some time to end the ring of a server that was killed, and closes its socket after that.
            Ok(stream) if listener_is_gone(&stream) => std::thread::sleep(GONE_PAUSE),
            // Full backlog and denied permission mean a live server as well.
            _ => break,
        }
    }
    Err(SocketFileError::InUse(path.to_owned()))
}

/// The process that listens at the other end does not exist any more. One of another namespace counts as there.
fn listener_is_gone(stream: &UnixStream) -> bool {
    let listener = rustix::net::sockopt::socket_peercred(stream);
    listener.is_ok_and(|listener| is_gone(listener.pid))
}

fn is_gone(process: rustix::process::Pid) -> bool {
    rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn of_servers_that_start_together_one_wins_and_can_be_reached() {
        const SERVERS: usize = 4;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..100 {
            drop(UnixListener::bind(&path).unwrap());
            let barrier = Barrier::new(SERVERS);
            let won: Vec<(UnixListener, SocketFile)> = std::thread::scope(|scope| {
                let start = || {
                    barrier.wait();
                    SocketFile::bind(&path, Rights::OWNER)
                };
                let threads: Vec<_> = (0..SERVERS).map(|_| scope.spawn(start)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
            });
            assert_eq!(won.len(), 1);
            assert!(UnixStream::connect(&path).is_ok(), "the winner's file is there");
            won[0].1.remove();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_process_that_has_ended_is_gone_and_this_one_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        child.wait().unwrap();
        assert!(is_gone(pid) && !is_gone(rustix::process::getpid()));
    }

    #[test]
    fn the_mode_is_as_asked_for_whatever_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o660, 0o666] {
            let path = folder.path().join(format!("{mode:o}"));
            let _socket = SocketFile::bind(&path, Rights { mode, group: None }).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
            // The mode as the kernel made it, before the umask is compensated.
            let bare = folder.path().join(format!("{mode:o}-bare"));
            let _socket = socket_of(&bare, mode).unwrap();
            assert_eq!(fs::metadata(&bare).unwrap().mode() & 0o777 & !mode, 0);
        }
    }

    #[test]
    fn the_group_is_as_asked_for_and_a_group_that_cannot_be_had_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let own = rustix::process::getegid().as_raw();
        let rights = Rights { mode: 0o660, group: Some(own) };
        let (_socket, file) = SocketFile::bind(&path, rights).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o777), (own, 0o660));
        file.remove();
        let rights = Rights { group: Some(u32::MAX - 1), ..rights };
        match SocketFile::bind(&path, rights) {
            // A superuser may name any number.
            Ok((_socket, file)) => {
                assert_eq!(fs::metadata(&path).unwrap().gid(), u32::MAX - 1);
                file.remove();
            }
            Err(error) => assert!(error.to_string().contains("the group of"), "{error}"),
        }
        assert!(!path.exists());
    }

    #[test]
    fn another_servers_file_and_other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (socket, first) = SocketFile::bind(&path, Rights::OWNER).unwrap();
        assert!(matches!(SocketFile::bind(&path, Rights::OWNER), Err(SocketFileError::InUse(_))));
        drop(socket);
        let (_socket, second) = SocketFile::bind(&path, Rights::OWNER).unwrap();
        assert_eq!(second.path(), path);
        first.remove();
        assert!(UnixStream::connect(&path).is_ok(), "it is the second's by now");
        second.remove();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            SocketFile::bind(&path, Rights::OWNER),
            Err(SocketFileError::NotASocket(_))
        ));
        first.remove();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
