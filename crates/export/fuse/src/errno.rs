//! Errors of a file system as the kernel wants them: a number each, the same as in errno.h.

use braid_filesystem::Errno;

/// What the kernel is told for `error`.
pub(crate) fn of(error: Errno) -> fuser::Errno {
    match error {
        Errno::NotFound => fuser::Errno::ENOENT,
        Errno::Exists => fuser::Errno::EEXIST,
        Errno::NotDirectory => fuser::Errno::ENOTDIR,
        Errno::IsDirectory => fuser::Errno::EISDIR,
        Errno::NotEmpty => fuser::Errno::ENOTEMPTY,
        Errno::NameTooLong => fuser::Errno::ENAMETOOLONG,
        Errno::Invalid => fuser::Errno::EINVAL,
        Errno::NotPermitted => fuser::Errno::EPERM,
        Errno::Access => fuser::Errno::EACCES,
        Errno::ReadOnly => fuser::Errno::EROFS,
        Errno::NoSpace => fuser::Errno::ENOSPC,
        Errno::TooBig => fuser::Errno::EFBIG,
        Errno::TooManyLinks => fuser::Errno::EMLINK,
        Errno::Loop => fuser::Errno::ELOOP,
        Errno::NoData => fuser::Errno::ENODATA,
        Errno::Range => fuser::Errno::ERANGE,
        Errno::TooLarge => fuser::Errno::E2BIG,
        Errno::Nxio => fuser::Errno::ENXIO,
        Errno::Stale => fuser::Errno::ESTALE,
        Errno::Busy => fuser::Errno::EBUSY,
        Errno::Unsupported => fuser::Errno::EOPNOTSUPP,
        Errno::CrossDevice => fuser::Errno::EXDEV,
        Errno::Io => fuser::Errno::EIO,
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
        ];
        for (error, number) in all {
            assert_eq!(i32::from(of(error)), number, "{error:?}");
        }
    }
}
