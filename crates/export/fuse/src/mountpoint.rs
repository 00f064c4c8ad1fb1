//! The directory that a file system is mounted at: checked, mounted, tuned, unmounted.
//!
//! Root mounts by mount(2). Others go through fusermount3, which is setuid and hands back the opened device over a
//! socket (fusermount3(1); `_FUSE_COMMFD` names the socket).

use crate::connection;
use crate::guard::Guard;
use crate::options::{MountError, MountOptions, UnmountError};
use crate::table::{self, Mounted};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::{CString, OsString};
use std::io::{ErrorKind, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Type of our mounts in the table.
const KIND: &str = "fuse.braid";
const HELPER: &str = "fusermount3";

/// Where a file system is mounted.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    dir: PathBuf,
    /// Tells this mount from one that somebody puts at the same place later. (0, 0) when the table did not show it.
    device: (u32, u32),
}

impl MountPoint {
    /// Checks the mount point and mounts; what comes back is /dev/fuse, connected.
    pub(crate) fn mount(options: &MountOptions) -> Result<(MountPoint, OwnedFd), MountError> {
        options.check()?;
        let dir = usable(&options.dir)?;
        let fuse = open_device()?;
        let fuse = match mount_as_root(options, &dir, &fuse) {
            Ok(()) => fuse,
            Err(Errno::PERM) => mount_by_helper(options, &dir)?,
            Err(error) => return Err(MountError::Refused { dir, error: error.into() }),
        };
        let device = table::at(&dir).ok().flatten().map(|mounted| mounted.device);
        Ok((MountPoint { dir, device: device.unwrap_or_default() }, fuse))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// True if this very mount is on top at its directory. True when in doubt.
    pub(crate) fn is_mounted(&self) -> bool {
        match table::at(&self.dir) {
            Ok(mounted) => mounted.is_some_and(|mounted| mounted.device == self.device),
            Err(_) => true,
        }
    }

    /// Unmounts; nothing to do when somebody else has.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        if !self.is_mounted() {
            return Ok(());
        }
        let dir = self.dir.clone();
        let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        match rustix::mount::unmount(&self.dir, UnmountFlags::NOFOLLOW | lazily) {
            // Invalid: not a mount point any more.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy { dir }),
            Err(Errno::PERM) => self.unmount_by_helper(lazy),
            Err(error) => Err(UnmountError::Refused { dir, message: error.to_string() }),
        }
    }

    /// The kernel's file `name` of this mount's connection (Documentation/filesystems/fuse.rst).
    fn control(&self, name: &str) -> PathBuf {
        let (_, minor) = self.device;
        PathBuf::from(format!("/sys/fs/fuse/connections/{minor}/{name}"))
    }

    /// True while requests wait for an answer; `None` where the kernel does not tell, as without fusectl(5) mounted.
    pub(crate) fn has_waiting(&self) -> Option<bool> {
        let waiting = std::fs::read_to_string(self.control("waiting"));
        waiting.ok().map(|waiting| waiting.trim() != "0")
    }

    /// Ends the mount by force: all requests fail, and so does whatever is asked of it later. It is taken out of the tree.
    pub(crate) fn abort(&self) {
        let (_, minor) = self.device;
        let aborted = connection::abort_file(minor).and_then(|mut file| file.write_all(b"1"));
        if let Err(error) = aborted {
            tracing::debug!(%error, "the mount is ended by a forced unmount");
            // It ends the connection also where the unmount then fails, as it does when files are open.
            let _ = rustix::mount::unmount(&self.dir, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE);
        }
        if let Err(error) = self.unmount(true) {
            tracing::warn!("after it was ended by force: {error}");
        }
    }

    /// Starts the process of `words` that ends the mount when this one was killed; `None` where nobody asks for it, or there can be none.
    pub(crate) fn guard(&self, words: &[OsString]) -> Option<Guard> {
        let (_, minor) = self.device;
        if words.is_empty() || minor == 0 {
            return None;
        }
        let guard = Guard::start(words, minor);
        let dir = self.dir.display();
        guard.inspect_err(|error| tracing::warn!(%dir, %error, "the mount has no guard")).ok()
    }

    fn unmount_by_helper(&self, lazy: bool) -> Result<(), UnmountError> {
        let refused = |message| Err(UnmountError::Refused { dir: self.dir.clone(), message });
        let mut helper = Command::new(HELPER);
        helper.args(if lazy { &["-u", "-z"][..] } else { &["-u"] }).arg("--").arg(&self.dir);
        let said = match helper.stdin(Stdio::null()).output() {
            Ok(said) => said,
            Err(error) => return refused(format!("calling {HELPER}: {error}")),
        };
        let message = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        if said.status.success() || !self.is_mounted() {
            return Ok(());
        }
        if message.contains("busy") {
            return Err(UnmountError::Busy { dir: self.dir.clone() });
        }
        refused(message)
    }

    /// Sets limits that only root may set and without which a mount works, too: how far the kernel reads ahead, and how much it
    /// may hold back for writing (FUSE gets a hundredth of what others get, since a server may be slow; then a
    /// writer waits long before the server is busy).
    pub(crate) fn tune(&self, options: &MountOptions) {
        let (major, minor) = self.device;
        let set = |name: &str, value: u64| {
            let path = format!("/sys/class/bdi/{major}:{minor}/{name}");
            if let Err(error) = std::fs::write(&path, value.to_string()) {
                tracing::debug!(path, value, %error, "not set; the kernel's default stays");
            }
        };
        set("read_ahead_kb", options.read_ahead >> 10);
        if options.writeback_cache {
            set("max_ratio", 20);
        }
    }
}

/// The directory as the kernel calls it, once it is sure that it is one and that nothing is mounted there. What a
/// server of ours that is gone has left behind is unmounted.
fn usable(dir: &Path) -> Result<PathBuf, MountError> {
    let given = dir.to_path_buf();
    let inaccessible = |error| MountError::Inaccessible { dir: given.clone(), error };
    // A dead mount does not answer, so only what is above it can be resolved.
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let resolved = match (dir.canonicalize(), dir.file_name()) {
        (Ok(resolved), _) => resolved,
        (Err(error), _) if error.kind() == ErrorKind::NotFound => {
            return Err(MountError::Missing { dir: given });
        }
        (Err(error), _) if error.kind() == ErrorKind::NotADirectory => {
            return Err(MountError::NotDirectory { dir: given });
        }
        (Err(error), Some(name)) if is_dead(&error) => {
            parent.canonicalize().map_err(inaccessible)?.join(name)
        }
        (Err(error), _) => return Err(inaccessible(error)),
    };
    let there = table::at(&resolved).map_err(inaccessible)?;
    match metadata_now(&resolved) {
        Ok(_) if there.is_some() => Err(occupied(given, there)),
        Ok(metadata) if metadata.is_dir() => Ok(resolved),
        Ok(_) => Err(MountError::NotDirectory { dir: given }),
        Err(error) if is_dead(&error) => clean_up(given, &resolved, there).map(|()| resolved),
        Err(_) if there.is_some() => Err(occupied(given, there)),
        Err(error) => Err(inaccessible(error)),
    }
}

/// The attributes of `dir`, asked of its file system now: for a mount whose server is gone the kernel may still answer
/// from those that it remembers.
///
/// # Errors
/// The file system's error; "transport endpoint is not connected" where no server is behind the mount any more.
pub fn metadata_now(dir: &Path) -> std::io::Result<std::fs::Metadata> {
    rustix::fs::statx(CWD, dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
    std::fs::metadata(dir)
}

/// The server behind a mount is gone: "transport endpoint is not connected".
fn is_dead(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    // The second for a request that was under way, the third for one that was to go into an io_uring just then.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    gone.iter().any(|error| code == Some(error.raw_os_error()))
}

fn source_of(mounted: Option<Mounted>) -> String {
    mounted.map_or_else(|| "something".to_owned(), |mounted| mounted.source)
}

fn occupied(dir: PathBuf, there: Option<Mounted>) -> MountError {
    MountError::Occupied { dir, source_name: source_of(there) }
}

fn clean_up(given: PathBuf, dir: &Path, there: Option<Mounted>) -> Result<(), MountError> {
    if there.as_ref().is_none_or(|there| there.kind != KIND) {
        return Err(MountError::Dead { dir: given, source_name: source_of(there) });
    }
    let source_name = source_of(there);
    tracing::info!(dir = %dir.display(), source_name, "its server is gone; unmounting it");
    let left = MountPoint { device: table_device(dir), dir: dir.to_path_buf() };
    if left.unmount(true).is_err() {
        return Err(MountError::Dead { dir: given, source_name });
    }
    Ok(())
}

fn table_device(dir: &Path) -> (u32, u32) {
    table::at(dir).ok().flatten().map(|mounted| mounted.device).unwrap_or_default()
}

fn open_device() -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| match error {
        Errno::ACCESS | Errno::PERM => MountError::DeviceDenied { error: error.into() },
        error => MountError::NoDevice { error: error.into() },
    })
}

fn mount_as_root(options: &MountOptions, dir: &Path, fuse: &OwnedFd) -> Result<(), Errno> {
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions",
        fuse.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    // FUSE keeps no times of reading, and neither does the server: so it is said.
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.without.setuid);
    flags.set(MountFlags::NODEV, options.without.devices);
    flags.set(MountFlags::NOEXEC, options.without.programs);
    rustix::mount::mount(options.source(), dir, KIND, flags, data.as_c_str())
}

/// The options as fusermount3 wants them: commas and backslashes of a value behind a backslash.
fn helper_options(options: &MountOptions) -> String {
    let source = options.source().replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.read_only { "ro" } else { "rw" };
    let others = if options.allow_other { ",allow_other" } else { "" };
    // It never lets setuid bits and devices be used.
    let programs = if options.without.programs { ",noexec" } else { "" };
    format!("{access},noatime{programs},default_permissions{others},subtype=braid,fsname={source}")
}

fn mount_by_helper(options: &MountOptions, dir: &Path) -> Result<OwnedFd, MountError> {
    let refused = |error: std::io::Error| MountError::Refused { dir: dir.to_path_buf(), error };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| refused(error.into()))?;
    let mut helper = Command::new(HELPER);
    helper.arg("-o").arg(helper_options(options)).arg("--").arg(dir);
    // As its standard input the socket reaches this child and no other.
    helper.env("_FUSE_COMMFD", "0").stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = helper.spawn();
    // The command keeps the other end of the socket open as long as it lives.
    drop(helper);
    let child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => MountError::NoHelper { dir: dir.to_path_buf() },
        _ => refused(error),
    })?;
    let device = receive_device(&ours);
    let said = child.wait_with_output().map_err(refused)?;
    match device {
        Ok(Some(device)) if said.status.success() => Ok(device),
        Err(error) => Err(refused(error.into())),
        Ok(_) => {
            let message = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            Err(MountError::Helper { dir: dir.to_path_buf(), message })
        }
    }
}

/// The descriptor that the helper sends; `None` when it ends without.
fn receive_device(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
        _ => None,
    });
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_gets_names_with_commas_unharmed() {
        let mut options = MountOptions::new("/x", "a,b\\c");
        options.allow_other = false;
        options.read_only = true;
        options.without.programs = true;
        let expected =
            "ro,noatime,noexec,default_permissions,subtype=braid,fsname=braid:a\\,b\\\\c";
        assert_eq!(helper_options(&options), expected);
    }

    #[test]
    fn what_cannot_be_mounted_at_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("a file");
        assert!(matches!(usable(&dir.path().join("no")), Err(MountError::Missing { .. })));
        assert!(matches!(usable(&file), Err(MountError::NotDirectory { .. })));
        assert!(matches!(usable(&file.join("x")), Err(MountError::NotDirectory { .. })));
        assert!(matches!(usable(Path::new("/proc")), Err(MountError::Occupied { .. })));
        let expected = dir.path().canonicalize().expect("it is there");
        assert_eq!(usable(dir.path()).expect("usable"), expected);
    }
}
