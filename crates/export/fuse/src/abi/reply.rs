//! The bodies of replies.

use super::fields::Out;
use braid_filesystem::{Attr, Entry, Kind, Space};
use std::time::Duration;

/// `FOPEN_DIRECT_IO`: past the page cache.
pub(crate) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_KEEP_CACHE`: what the page cache holds of the file is still true.
pub(crate) const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: writers side by side.
pub(crate) const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

// Of linux/stat.h.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
/// Bytes of `fuse_statx_out`.
const STATX_OUT: usize = 288;

fn put_attr(out: Out, attr: &Attr) -> Out {
    out.u64(attr.ino)
        .u64(attr.size)
        .u64(attr.blocks)
        .i64(attr.atime.seconds)
        .i64(attr.mtime.seconds)
        .i64(attr.ctime.seconds)
        .u32(attr.atime.nanos)
        .u32(attr.mtime.nanos)
        .u32(attr.ctime.nanos)
        .u32(attr.kind.bits() | u32::from(attr.perm))
        .u32(attr.nlink)
        .u32(attr.uid)
        .u32(attr.gid)
        .u32(attr.rdev)
        .u32(attr.blksize)
        .u32(0)
}

/// For how long the kernel may believe `attr`: the setuid and setgid bits of a file go when it is written to, which the
/// kernel leaves to us and does not look at again while it may believe what it has. So it may not.
fn believed(attr: &Attr, attrs: Duration) -> Duration {
    let setid = attr.kind == Kind::File && attr.perm & 0o6000 != 0;
    if setid { Duration::ZERO } else { attrs }
}

fn put_entry(out: Out, entry: &Entry, names: Duration, attrs: Duration) -> Out {
    let attrs = believed(&entry.attr, attrs);
    let out = out
        .u64(entry.attr.ino)
        .u64(entry.generation)
        .u64(names.as_secs())
        .u64(attrs.as_secs())
        .u32(names.subsec_nanos())
        .u32(attrs.subsec_nanos());
    put_attr(out, &entry.attr)
}

/// The reply to a look-up; its name and its attributes may be cached for so long.
pub(crate) fn entry(entry: &Entry, names: Duration, attrs: Duration) -> Out {
    put_entry(Out::new(), entry, names, attrs)
}

/// There is no such name, which the kernel may remember. Also, with no time, an entry of a directory that comes
/// without a look-up.
pub(crate) fn no_entry(names: Duration) -> Out {
    let out = Out::new().u64(0).u64(0).u64(names.as_secs()).u64(0).u32(names.subsec_nanos());
    // The rest of fuse_entry_out is not looked at.
    (0..21).fold(out, |out, _| out.u32(0)).u64(0)
}

/// Attributes, good for so long.
pub(crate) fn attr(attr: &Attr, attrs: Duration) -> Out {
    let attrs = believed(attr, attrs);
    let out = Out::new().u64(attrs.as_secs()).u32(attrs.subsec_nanos()).u32(0);
    put_attr(out, attr)
}

/// The same with the time of creation: `fuse_statx_out`. Only what stat(2) does not have is looked at by the kernel.
pub(crate) fn statx(attr: &Attr, attrs: Duration) -> Vec<u8> {
    let attrs = believed(attr, attrs);
    let out = Out::new().u64(attrs.as_secs()).u32(attrs.subsec_nanos()).u32(0).u64(0).u64(0);
    let out = out
        .u32(STATX_BASIC_STATS | STATX_BTIME)
        .u32(attr.blksize)
        .u64(0)
        .u32(attr.nlink)
        .u32(attr.uid)
        .u32(attr.gid)
        .u16(attr.kind.bits() as u16 | attr.perm)
        .u16(0)
        .u64(attr.ino)
        .u64(attr.size)
        .u64(attr.blocks)
        .u64(0);
    let times = [attr.atime, attr.crtime, attr.ctime, attr.mtime];
    let times =
        times.iter().fold(Out::new(), |out, time| out.i64(time.seconds).u32(time.nanos).u32(0));
    // The kernel's own form of a device number, taken apart (linux/kdev_t.h: new_decode_dev).
    let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
    let times = times.u32(major).u32(minor).u32(0).u32(0);
    let mut bytes = [out.bytes(), times.bytes()].concat();
    bytes.resize(STATX_OUT, 0);
    bytes
}

/// A file is open; its requests name the opening as number `open`.
pub(crate) fn opened(open: u64, flags: u32) -> Out {
    put_opened(Out::new(), open, flags)
}

fn put_opened(out: Out, open: u64, flags: u32) -> Out {
    out.u64(open).u32(flags).u32(0)
}

/// A file was made and is open.
pub(crate) fn created(entry: &Entry, known: Duration, open: u64, flags: u32) -> Out {
    put_opened(put_entry(Out::new(), entry, known, known), open, flags)
}

/// So many bytes were written.
pub(crate) fn written(bytes: u32) -> Out {
    Out::new().u32(bytes).u32(0)
}

/// The reply with the size of an attribute, or of the list of them, in bytes.
pub(crate) fn xattr_size(bytes: u32) -> Out {
    Out::new().u32(bytes).u32(0)
}

/// Where data, or a hole, begins.
pub(crate) fn sought(offset: u64) -> Out {
    Out::new().u64(offset)
}

/// The reply with the space of the file system.
pub(crate) fn space(space: &Space) -> Out {
    let out = Out::new()
        .u64(space.blocks)
        .u64(space.free)
        .u64(space.available)
        .u64(space.files)
        .u64(space.files_free)
        .u32(space.block)
        .u32(space.name_max)
        .u32(space.block);
    (0..7).fold(out, |out, _| out.u32(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_filesystem::Time;

    /// Sizes of linux/fuse.h: a reply of another length the kernel refuses.
    #[test]
    fn bodies_have_the_kernels_sizes() {
        let time = Time { seconds: -2, nanos: 800_000_000 };
        let attr = Attr {
            ino: 5,
            size: 6,
            blocks: 7,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: Kind::File,
            perm: 0o644,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: 4,
            blksize: 4096,
        };
        let (found, day) = (Entry { attr, generation: 9 }, Duration::from_secs(86_400));
        assert_eq!(entry(&found, day, day).bytes().len(), 128);
        assert_eq!(no_entry(day).bytes().len(), 128);
        assert_eq!(super::attr(&attr, day).bytes().len(), 104);
        assert_eq!(opened(1, 2).bytes().len(), 16);
        assert_eq!(created(&found, day, 1, 2).bytes().len(), 144);
        assert_eq!((written(1).bytes().len(), xattr_size(1).bytes().len()), (8, 8));
        let none = Space {
            block: 4096,
            blocks: 1,
            free: 1,
            available: 1,
            files: 1,
            files_free: 1,
            name_max: 255,
        };
        assert_eq!((space(&none).bytes().len(), sought(1).bytes().len()), (80, 8));
        let sx =
            statx(&Attr { crtime: Time { seconds: 77, nanos: 5 }, rdev: 0x12_0345, ..attr }, day);
        assert_eq!(sx.len(), 288);
        assert_eq!(
            (&sx[32..36], &sx[72..80]),
            (&0xfff_u32.to_ne_bytes()[..], &6_u64.to_ne_bytes()[..])
        );
        assert_eq!(
            (&sx[112..120], &sx[120..124]),
            (&77_i64.to_ne_bytes()[..], &5_u32.to_ne_bytes()[..])
        );
        assert_eq!(
            (&sx[160..164], &sx[164..168]),
            (&0x203_u32.to_ne_bytes()[..], &0x145_u32.to_ne_bytes()[..])
        );
        let out = super::attr(&attr, day);
        // Seconds before 1970 are negative, nanoseconds count upwards (stat(2)).
        assert_eq!(out.bytes()[40..48], (-2i64).to_ne_bytes());
        assert_eq!(out.bytes()[64..68], 800_000_000u32.to_ne_bytes());
        assert_eq!(out.bytes()[76..80], 0o100_644u32.to_ne_bytes());
        // The time for which they are valid comes first.
        assert_eq!(out.bytes()[..8], 86_400u64.to_ne_bytes());
        let program = Attr { perm: 0o4755, ..attr };
        assert_eq!(super::attr(&program, day).bytes()[..8], [0; 8]);
        let folder = Attr { perm: 0o2755, kind: Kind::Directory, ..attr };
        assert_eq!(super::attr(&folder, day).bytes()[..8], 86_400u64.to_ne_bytes());
    }
}
