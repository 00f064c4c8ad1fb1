//! Errors of a file system as the kernel wants them: a number each, the same as in errno.h.

use braid_filesystem::Errno;
use rustix::io::Errno as Number;

/// The error number that the kernel is given for `error`.
pub(crate) fn of(error: Errno) -> Number {
    match error {
        Errno::NotFound => Number::NOENT,
        Errno::Exists => Number::EXIST,
        Errno::NotDirectory => Number::NOTDIR,
        Errno::IsDirectory => Number::ISDIR,
        Errno::NotEmpty => Number::NOTEMPTY,
        Errno::NameTooLong => Number::NAMETOOLONG,
        Errno::Invalid => Number::INVAL,
        Errno::NotPermitted => Number::PERM,
        Errno::Access => Number::ACCESS,
        Errno::ReadOnly => Number::ROFS,
        Errno::NoSpace => Number::NOSPC,
        Errno::Quota => Number::DQUOT,
        Errno::TooBig => Number::FBIG,
        Errno::TooManyLinks => Number::MLINK,
        Errno::Loop => Number::LOOP,
        Errno::NoData => Number::NODATA,
        Errno::Range => Number::RANGE,
        Errno::TooLarge => Number::TOOBIG,
        Errno::Nxio => Number::NXIO,
        Errno::Stale => Number::STALE,
        Errno::Busy => Number::BUSY,
        Errno::Unsupported => Number::OPNOTSUPP,
        Errno::CrossDevice => Number::XDEV,
        Errno::Io => Number::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's numbers (asm-generic/errno-base.h and errno.h), beside the names of ours. That none is missing is
    /// seen by the compiler in `of`; that none is mapped to another's number is seen here.
    #[test]
    fn every_error_has_its_own_number_of_errno_h() {
        let all = [
            (Errno::NotPermitted, 1),
            (Errno::NotFound, 2),
            (Errno::Io, 5),
            (Errno::Nxio, 6),
            (Errno::TooLarge, 7),
            (Errno::Access, 13),
            (Errno::Busy, 16),
            (Errno::Exists, 17),
            (Errno::CrossDevice, 18),
            (Errno::NotDirectory, 20),
            (Errno::IsDirectory, 21),
            (Errno::Invalid, 22),
            (Errno::TooBig, 27),
            (Errno::NoSpace, 28),
            (Errno::ReadOnly, 30),
            (Errno::TooManyLinks, 31),
            (Errno::Range, 34),
            (Errno::NameTooLong, 36),
            (Errno::NotEmpty, 39),
            (Errno::Loop, 40),
            (Errno::NoData, 61),
            (Errno::Unsupported, 95),
            (Errno::Stale, 116),
            (Errno::Quota, 122),
        ];
        for (error, number) in all {
            assert_eq!(of(error).raw_os_error(), number, "{error:?}");
        }
    }
}
