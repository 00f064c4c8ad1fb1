//! Opening and locking a path, once per process.

use super::device::FileDevice;
use super::loops;
use super::network;
use super::probe::{self, Abilities};
use super::whole::Whole;
use crate::device::Device;
use crate::info::DeviceInfo;
use crate::target::{OpenError, Opener};
use braid_shard::Shard;
use rustix::fs::{FileType, FlockOperation, Mode as CreateMode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Linux keeps the files of a killed process open for a while if it used io_uring (`io_ring_exit_work` in
/// io_uring.c). A process that is started in its place waits for them up to this time.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the attempts to open a file that is in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The purpose that the file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading and writing; nobody else may use it.
    ReadWrite,
    /// Reading; others may read too, nobody may write.
    ReadOnly,
    /// Reading while somebody else may be using it: no lock at all.
    Examine,
}

/// A file or block device that is open and locked; makes a device on any shard.
#[derive(Clone, Debug)]
pub struct FileMember {
    info: DeviceInfo,
    abilities: Abilities,
    mode: Mode,
    notes: Vec<String>,
    whole: Arc<Whole>,
}

impl FileMember {
    /// Opens `path`, locks it as `mode` asks, and determines its size and block sizes. Waits for up to two seconds if
    /// it is in use.
    ///
    /// # Errors
    /// When it is not there, is neither a regular file nor a block device, is in use, is too
    /// small to hold a block, or may not be opened.
    pub fn open(path: impl AsRef<Path>, mode: Mode) -> Result<FileMember, OpenError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let refuse = |why: String| OpenError { name: name.clone(), why };
        // Checked before opening, because opening a pipe can block and opening a tape can rewind it.
        let found = fs::metadata(path).map_err(|error| refuse(reason(&error)))?;
        let block_device = match FileType::from_raw_mode(mode_bits(&found)) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            FileType::Directory => {
                return Err(refuse("it is a directory; name a file in it".into()));
            }
            _ => return Err(refuse("it is neither a regular file nor a block device".into())),
        };
        let mut notes = Vec::new();
        let since = Instant::now();
        let (fd, direct, locks) = loop {
            match open_locked(path, mode, block_device, &mut notes) {
                Err(Refusal::InUse(_)) if since.elapsed() < IN_USE_TIMEOUT => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Err(Refusal::InUse(why) | Refusal::Other(why)) => return Err(refuse(why)),
                Ok(opened) => break opened,
            }
        };
        let abilities = probe::abilities(&fd, block_device, direct, mode == Mode::ReadWrite)
            .map_err(|errno| refuse(format!("reading its size failed: {errno}; check the device, the kernel log may say more")))?;
        let block = u64::from(abilities.logical_block);
        if block > 4096 {
            return Err(refuse(format!(
                "its logical blocks are {block} bytes; 4096 is the largest that braid can use"
            )));
        }
        if abilities.size < block {
            return Err(refuse(format!(
                "it holds {} bytes, less than one block of {block}; give it a size first (truncate -s 1G {name})",
                abilities.size
            )));
        }
        if !direct && !abilities.in_memory {
            notes.push(format!(
                "{name}: its file system does not support O_DIRECT; the page cache is used"
            ));
        }
        let info = abilities.info(&name, direct);
        let mut whole = Whole::new(fd, block_device, abilities.size);
        whole.hold(locks);
        // Direct writes report errors themselves. Only buffered writes may fail later, in write-back.
        if mode == Mode::ReadWrite && !info.direct {
            whole.flush_apart();
        }
        Ok(FileMember { info, abilities, mode, notes, whole: Arc::new(whole) })
    }

    /// The description of the devices made from it.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

impl Opener for FileMember {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let refuse = |why: String| OpenError { name: self.info.name.clone(), why };
        let fd = self.whole.descriptor().map_err(|error| refuse(reason(&error)))?;
        let flush_fd = self.whole.flush_descriptor().map_err(|error| refuse(reason(&error)))?;
        let writable = self.mode == Mode::ReadWrite;
        // It may have become larger since it was opened.
        let size = self.whole.size_now().unwrap_or(0).max(self.abilities.size);
        let abilities = self.abilities.with_size(size);
        let device = FileDevice::new(
            shard,
            (fd, flush_fd),
            abilities.info(&self.info.name, self.info.direct),
            abilities,
            writable,
            Arc::clone(&self.whole),
        );
        match device {
            Some(device) => Ok(Rc::new(device)),
            None => Err(refuse("a simulated shard cannot do I/O on files".into())),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn is_remote(&self) -> bool {
        let fd = self.whole.descriptor();
        fd.is_ok_and(|fd| network::is_remote(&fd, !self.whole.is_file()))
    }
}

/// Creates a file of `size` bytes that takes no space until it is written.
///
/// # Errors
/// When the file exists or cannot be made.
pub fn create_sparse(path: impl AsRef<Path>, size: u64) -> Result<(), OpenError> {
    let path = path.as_ref();
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|file| file.set_len(size))
        .map_err(|error| OpenError {
            name: path.display().to_string(),
            why: format!("creating a sparse file of {size} bytes failed: {error}"),
        })
}

fn mode_bits(found: &fs::Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    found.mode()
}

/// A path could not be opened.
pub(super) enum Refusal {
    /// Another process uses it.
    InUse(String),
    Other(String),
}

impl From<loops::InUse> for Refusal {
    fn from(loops::InUse(why): loops::InUse) -> Refusal {
        Refusal::InUse(why)
    }
}

/// Opens and locks the path. The flag is true if it was opened with O_DIRECT; the other descriptors are locks on other
/// ways to the same blocks.
fn open_locked(
    path: &Path,
    mode: Mode,
    block: bool,
    notes: &mut Vec<String>,
) -> Result<(OwnedFd, bool, Vec<OwnedFd>), Refusal> {
    let (fd, direct) = open_either(path, mode, block).map_err(|errno| {
        let why = reason(&errno.into());
        if errno == Errno::BUSY { Refusal::InUse(why) } else { Refusal::Other(why) }
    })?;
    lock(&fd, mode, block, notes)?;
    let locks = match (mode, block) {
        (Mode::Examine, _) => Vec::new(),
        (_, true) => loops::behind(&fd, mode == Mode::ReadWrite)?.into_iter().collect(),
        (_, false) => loops::over(&fd)?,
    };
    Ok((fd, direct, locks))
}

/// Opens the path with O_DIRECT, or without if that is refused. The flag is true for with.
fn open_either(path: &Path, mode: Mode, block_device: bool) -> Result<(OwnedFd, bool), Errno> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if mode == Mode::ReadWrite { OFlags::RDWR } else { OFlags::RDONLY };
    if block_device && mode != Mode::Examine {
        // Fails on a block device that is mounted, or held by md, dm or another O_EXCL.
        flags |= OFlags::EXCL;
    }
    match open(path, flags | OFlags::DIRECT, CreateMode::empty()) {
        Ok(fd) => Ok((fd, true)),
        Err(Errno::INVAL) => Ok((open(path, flags, CreateMode::empty())?, false)),
        Err(errno) => Err(errno),
    }
}

fn lock(fd: &OwnedFd, mode: Mode, block: bool, notes: &mut Vec<String>) -> Result<(), Refusal> {
    let operation = match mode {
        Mode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Mode::ReadOnly => FlockOperation::NonBlockingLockShared,
        Mode::Examine => return Ok(()),
    };
    // On block devices udev takes short locks of its own, so they are protected by O_EXCL instead.
    if block || fstat(fd).is_err() {
        return Ok(());
    }
    match flock(fd, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let why = "it is in use by another process, or named twice; stop the other user first";
            Err(Refusal::InUse(why.into()))
        }
        Err(errno) => {
            notes.push(format!("locking it against use by other processes failed: {errno}; it is used without a lock"));
            Ok(())
        }
    }
}

/// The system's error with a remedy.
fn reason(error: &std::io::Error) -> String {
    let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "; check the path",
        Some(Errno::ACCESS | Errno::PERM) => {
            "; run as a user that may open it (block devices: root, or the group disk)"
        }
        Some(Errno::BUSY) => {
            return "it is in use by another process: mounted, or held by md, LVM or another array"
                .into();
        }
        Some(Errno::ROFS) => "; it can only be opened read-only",
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit on open files (ulimit -n)",
        _ => "",
    };
    format!("{error}{advice}")
}
