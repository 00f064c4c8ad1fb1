//! Attributes of files in the form in which they have a project (`struct fsxattr` of linux/fs.h).

#![allow(unsafe_code)]

use rustix::ioctl::{Getter, Setter, opcode};
use std::os::fd::AsFd;

/// Attributes of a file, as the kernel gives and takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The bits `FS_XFLAG_…`.
    pub flags: u32,
    /// The size of extents that is wanted.
    pub extent_size: u32,
    /// The number of extents.
    pub extents: u32,
    /// The project.
    pub project: u32,
    /// The size of extents that are copied on write.
    pub copied_extent_size: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<Attributes>() == 28);

const GET: rustix::ioctl::Opcode = opcode::read::<Attributes>(b'X', 31);
const SET: rustix::ioctl::Opcode = opcode::write::<Attributes>(b'X', 32);

impl Attributes {
    /// Those of an open file or directory.
    ///
    /// # Errors
    ///
    /// That of ioctl: ENOTTY or EOPNOTSUPP where there are none.
    pub fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        // SAFETY: FS_IOC_FSGETXATTR fills a structure of this type and no more.
        unsafe { rustix::ioctl::ioctl(file, Getter::<GET, Self>::new()) }
    }

    /// Sets them.
    ///
    /// # Errors
    ///
    /// That of ioctl: EPERM for who may not.
    pub fn set(self, file: impl AsFd) -> rustix::io::Result<()> {
        // SAFETY: FS_IOC_FSSETXATTR reads a structure of this type and no more.
        unsafe { rustix::ioctl::ioctl(file, Setter::<SET, Self>::new(self)) }
    }
}
