//! The errors of devices, classified by the reaction of an array.

/// The kind of failure, which decides how the array reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// These blocks could not be read or written; others may work.
    Medium,
    /// The device has disappeared, has shrunk, or does not answer: none of its data can be relied on.
    Gone,
    /// The request is outside the device or not aligned.
    Invalid,
    /// The device cannot do this operation.
    Unsupported,
    /// No space is left (a sparse file on a full filesystem).
    NoSpace,
    /// The array has lost more members than its level tolerates. (If only some blocks are lost, the error is
    /// [`Medium`](IoErrorKind::Medium).)
    Lost,
    /// The array is being stopped, or is read-only.
    Refused,
    /// The disk takes the writes of another host alone: this one's registration has ended, or it had none
    /// ([`reservation`](crate::reservation)).
    Reserved,
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
    /// An error without an error number of the system.
    pub fn new(kind: IoErrorKind) -> IoError {
        IoError { kind, errno: 0 }
    }

    /// Classifies an errno of a block device or file.
    pub fn from_errno(errno: i32) -> IoError {
        let kind = match errno {
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::EBADF | libc::ETIMEDOUT => {
                IoErrorKind::Gone
            }
            libc::EINVAL => IoErrorKind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS => IoErrorKind::Unsupported,
            libc::ENOSPC | libc::EDQUOT => IoErrorKind::NoSpace,
            // Linux makes this of a reservation conflict (`BLK_STS_NEXUS`, later `BLK_STS_RESV_CONFLICT`).
            libc::EBADE => IoErrorKind::Reserved,
            libc::EROFS | libc::EPERM | libc::EACCES => IoErrorKind::Refused,
            _ => IoErrorKind::Medium,
        };
        IoError { kind, errno }
    }

    /// True if a device that answers a read with this error cannot be used any more: it has disappeared, or it is an array
    /// that has failed or was stopped. After other errors, other blocks may still be readable.
    pub fn means_gone(&self) -> bool {
        matches!(
            self.kind,
            IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Refused | IoErrorKind::Reserved
        )
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
            IoErrorKind::Reserved => "refused by the disk: another host has reserved it",
        };
        match self.errno {
            0 => what.to_string(),
            errno => format!("{what} ({})", std::io::Error::from_raw_os_error(errno)),
        }
    }
}
