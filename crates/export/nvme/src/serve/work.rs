//! The work of a command, and what became of it.

use crate::protocol::Status;
use braid_device::{BufMuts, IoError, IoErrorKind, Op};
use braid_shard::BufMut;

/// The work of a command. Offsets and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Admin,
    Read {
        offset: u64,
    },
    Write {
        offset: u64,
        fua: bool,
    },
    Compare {
        offset: u64,
    },
    Zeroes {
        offset: u64,
        len: u64,
        unmap: bool,
        fua: bool,
    },
    /// So many ranges are in the data.
    Discard {
        ranges: usize,
    },
    Flush,
    /// Nothing: a hint that is not used.
    Hint,
}

/// The end of a command that the device had, with `data` of the host; the data of a read.
pub(super) fn outcome(
    work: Work,
    failed: Option<IoError>,
    op: Op,
    data: Option<BufMut>,
) -> (Result<(), Status>, BufMuts) {
    let bufs = if let Op::Read(bufs) = op { bufs } else { BufMuts::new() };
    match (failed, work) {
        // A discard is a hint: nothing is lost when the device cannot do it.
        (Some(IoError { kind: IoErrorKind::Unsupported, .. }), Work::Discard { .. }) => {
            (Ok(()), BufMuts::new())
        }
        (Some(error), _) => (Err(status_of(error.kind, work)), BufMuts::new()),
        (None, Work::Compare { .. }) => {
            let same = match (&data, bufs.as_slice()) {
                (Some(wanted), [found]) => **wanted == **found,
                _ => false,
            };
            (if same { Ok(()) } else { Err(Status::COMPARE_FAILURE) }, BufMuts::new())
        }
        (None, Work::Read { .. }) => (Ok(()), bufs),
        (None, _) => (Ok(()), BufMuts::new()),
    }
}

/// The status for a device's error.
fn status_of(kind: IoErrorKind, work: Work) -> Status {
    let reads = matches!(work, Work::Read { .. } | Work::Compare { .. });
    match kind {
        IoErrorKind::Medium | IoErrorKind::Gone | IoErrorKind::Lost if reads => {
            Status::UNRECOVERED_READ
        }
        IoErrorKind::Medium | IoErrorKind::Gone | IoErrorKind::Lost | IoErrorKind::Reserved => {
            Status::WRITE_FAULT
        }
        IoErrorKind::Invalid => Status::INVALID_FIELD,
        IoErrorKind::Unsupported => Status::INVALID_OPCODE,
        IoErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        // The array is being stopped: a host that waits finds it again.
        IoErrorKind::Refused => Status::NAMESPACE_NOT_READY,
    }
}
