//! The errors that a file system gives, named as errno names them.

/// Why a request on a file failed. Each is the errno of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Errno {
    /// `ENOENT`.
    #[error("no such file or directory")]
    NotFound,
    /// `EEXIST`.
    #[error("it exists already")]
    Exists,
    /// `ENOTDIR`.
    #[error("not a directory")]
    NotDirectory,
    /// `EISDIR`.
    #[error("is a directory")]
    IsDirectory,
    /// `ENOTEMPTY`.
    #[error("the directory is not empty")]
    NotEmpty,
    /// `ENAMETOOLONG`.
    #[error("the name is too long")]
    NameTooLong,
    /// `EINVAL`.
    #[error("invalid argument")]
    Invalid,
    /// `EPERM`.
    #[error("operation not permitted")]
    NotPermitted,
    /// `EACCES`.
    #[error("permission denied")]
    Access,
    /// `EROFS`.
    #[error("the file system is read-only")]
    ReadOnly,
    /// `ENOSPC`.
    #[error("no space left")]
    NoSpace,
    /// `EDQUOT`: a project has reached its limit.
    #[error("the limit of the project is reached")]
    Quota,
    /// `EFBIG`.
    #[error("the file would be too large")]
    TooBig,
    /// `EMLINK`.
    #[error("too many links")]
    TooManyLinks,
    /// `ELOOP`.
    #[error("too many levels of symbolic links")]
    Loop,
    /// `ENODATA`.
    #[error("no such attribute")]
    NoData,
    /// `ERANGE`.
    #[error("the buffer is too small, or the value too large")]
    Range,
    /// `E2BIG`.
    #[error("the value is too large")]
    TooLarge,
    /// `ENXIO`.
    #[error("there is nothing at that offset")]
    Nxio,
    /// `ESTALE`.
    #[error("stale file handle")]
    Stale,
    /// `EBUSY`.
    #[error("busy")]
    Busy,
    /// `EOPNOTSUPP`.
    #[error("operation not supported")]
    Unsupported,
    /// `EXDEV`.
    #[error("on another file system")]
    CrossDevice,
    /// `EIO`: a brick failed, or what was asked for is lost.
    #[error("input or output error")]
    Io,
}
