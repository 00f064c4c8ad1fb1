//! The errors that a device gives, by what an array does about them.

/// The kind of failure, which decides how the array reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The medium could not give or take these blocks; others may work.
    Medium,
    /// The device is gone, shrank, or does not answer: nothing there can be trusted.
    Gone,
    /// The request is outside the device or not aligned.
    Invalid,
    /// The device cannot do this operation.
    Unsupported,
    /// No space is left (a sparse file on a full filesystem).
    NoSpace,
    /// The array has lost more members than its level allows. (One that has lost some blocks only says
    /// [`Medium`](IoErrorKind::Medium).)
    Lost,
    /// The array is being stopped, or is read-only.
    Refused,
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct IoError {
    /// The kind of failure.
    pub kind: IoErrorKind,
    /// The system's error number, 0 when there is none.
    pub errno: i32,
}

impl IoError {
    /// An error that the system gave no number for.
    pub fn new(kind: IoErrorKind) -> IoError {
        IoError { kind, errno: 0 }
    }

    /// The kind that an errno of a block device or file stands for.
    pub fn from_errno(errno: i32) -> IoError {
        let kind = match errno {
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::EBADF | libc::ETIMEDOUT => {
                IoErrorKind::Gone
            }
            libc::EINVAL => IoErrorKind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS => IoErrorKind::Unsupported,
            libc::ENOSPC | libc::EDQUOT => IoErrorKind::NoSpace,
            libc::EROFS | libc::EPERM | libc::EACCES => IoErrorKind::Refused,
            _ => IoErrorKind::Medium,
        };
        IoError { kind, errno }
    }

    /// Whoever gave this error to a read is of no use any more: it is gone, or it is an array that has lost
    /// too much or was stopped. Of other errors, other blocks may know nothing.
    pub fn means_gone(&self) -> bool {
        matches!(self.kind, IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Refused)
    }

    fn text(&self) -> String {
        let what = match self.kind {
            IoErrorKind::Medium => "medium error",
            IoErrorKind::Gone => "device gone",
            IoErrorKind::Invalid => "request out of range or not aligned",
            IoErrorKind::Unsupported => "operation not supported",
            IoErrorKind::NoSpace => "no space left",
            IoErrorKind::Lost => "data lost: too many members have failed",
            IoErrorKind::Refused => "refused: read-only or stopping",
        };
        match self.errno {
            0 => what.to_string(),
            errno => format!("{what} ({})", std::io::Error::from_raw_os_error(errno)),
        }
    }
}
