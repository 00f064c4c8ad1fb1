//! Probing of an open file or block device: sizes, alignment, discards, caches.

use super::network;
use crate::info::DeviceInfo;
use braid_shard::Pool;
use rustix::fs::{
    AtFlags, FallocateFlags, SeekFrom, StatxFlags, fallocate, fstat, ioctl_blkpbszget,
    ioctl_blksszget, major, minor, seek, statx,
};
use rustix::io::{Errno, pread};
use std::os::fd::OwnedFd;

/// `f_type` of tmpfs and ramfs, from the kernel's linux/magic.h.
const MEMORY_FILESYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The same of FUSE, whose server is another process. As with one on [another machine](network::SERVERS) even the start of a
/// request may block: FUSE takes a lock that a flush holds until its server answers.
const FUSE: u64 = 0x6573_5546;

/// The result of a probe. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Size, not rounded.
    pub(super) size: u64,
    pub(super) logical_block: u32,
    physical_block: u32,
    minimum_io: u32,
    optimal_io: u32,
    discards: bool,
    volatile_cache: bool,
    rotational: bool,
    /// The content is in memory (tmpfs), so system calls do not block.
    pub(super) in_memory: bool,
    /// A file system whose server is another process or machine, so every system call may block.
    pub(super) is_served: bool,
}

impl Abilities {
    /// The same, and `size` bytes.
    pub(super) fn with_size(self, size: u64) -> Abilities {
        Abilities { size, ..self }
    }

    pub(super) fn info(&self, name: &str, direct: bool) -> DeviceInfo {
        let block = u64::from(self.logical_block.max(512));
        DeviceInfo {
            name: name.to_string(),
            size: self.size / block * block,
            logical_block: self.logical_block,
            physical_block: self.physical_block,
            minimum_io: self.minimum_io,
            optimal_io: self.optimal_io,
            discards: self.discards,
            writes_zeroes: self.discards,
            volatile_cache: self.volatile_cache,
            wants_plug: !self.in_memory,
            rotational: self.rotational,
            direct: direct || self.in_memory,
        }
    }
}

/// Probes `fd`. With `writable` it also tries whether holes can be punched.
pub(super) fn abilities(
    fd: &OwnedFd,
    block_device: bool,
    direct: bool,
    writable: bool,
) -> Result<Abilities, Errno> {
    if block_device { of_block_device(fd) } else { of_file(fd, direct, writable) }
}

fn of_block_device(fd: &OwnedFd) -> Result<Abilities, Errno> {
    let size = seek(fd, SeekFrom::End(0))?;
    let logical_block = ioctl_blksszget(fd)?;
    let physical_block = ioctl_blkpbszget(fd).unwrap_or(logical_block);
    let queue = Queue::of(fstat(fd)?.st_rdev);
    Ok(Abilities {
        size,
        logical_block,
        physical_block: physical_block.max(logical_block),
        minimum_io: queue.size("minimum_io_size"),
        optimal_io: queue.size("optimal_io_size"),
        discards: queue.number("discard_max_bytes").is_some_and(|bytes| bytes > 0),
        volatile_cache: queue.text("write_cache").is_none_or(|cache| cache == "write back"),
        rotational: queue.number("rotational") == Some(1),
        in_memory: false,
        is_served: false,
    })
}

fn of_file(fd: &OwnedFd, direct: bool, writable: bool) -> Result<Abilities, Errno> {
    let stat = fstat(fd)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let filesystem = network::filesystem(fd);
    let in_memory = MEMORY_FILESYSTEMS.contains(&filesystem);
    let logical_block = match direct && !in_memory {
        true => direct_alignment(fd, size)?,
        false => 512,
    };
    let queue = Queue::of(stat.st_dev);
    Ok(Abilities {
        size,
        logical_block,
        physical_block: (stat.st_blksize as u32).clamp(logical_block, 4096.max(logical_block)),
        minimum_io: 0,
        optimal_io: 0,
        discards: writable && supports_holes(fd, size),
        volatile_cache: !in_memory,
        rotational: !in_memory && queue.number("rotational") == Some(1),
        in_memory,
        is_served: filesystem == FUSE || network::SERVERS.contains(&filesystem),
    })
}

/// The alignment that O_DIRECT requires of offsets, lengths and memory, in bytes, at least 512.
fn direct_alignment(fd: &OwnedFd, size: u64) -> Result<u32, Errno> {
    if let Ok(found) = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && found.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        && found.stx_dio_offset_align != 0
    {
        return Ok(found.stx_dio_offset_align.max(found.stx_dio_mem_align).max(512));
    }
    // Kernels before 6.1 and some file systems do not report it, so try the smallest read that succeeds.
    let pool = Pool::new(0);
    let mut buffer = pool.get(4096);
    for block in [512u32, 1024, 2048] {
        if size < u64::from(block) {
            break;
        }
        match pread(fd, &mut buffer[..block as usize], 0) {
            Ok(_) => return Ok(block),
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(4096)
}

/// Tries whether holes can be punched, beyond the end of the file, where that changes nothing.
fn supports_holes(fd: &OwnedFd, size: u64) -> bool {
    let beyond = size.next_multiple_of(4096);
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, beyond, 4096).is_ok()
}

/// The sysfs queue attributes of the disk `device`, or of the disk that the partition `device` is on.
struct Queue(String);

impl Queue {
    fn of(device: u64) -> Queue {
        Queue(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
    }

    fn text(&self, attribute: &str) -> Option<String> {
        ["queue", "../queue"].iter().find_map(|folder| {
            let text = std::fs::read_to_string(format!("{}/{folder}/{attribute}", self.0)).ok()?;
            Some(text.trim().to_string())
        })
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }

    /// An attribute in bytes; 0 if it is unknown.
    fn size(&self, attribute: &str) -> u32 {
        self.number(attribute).and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
    }
}
