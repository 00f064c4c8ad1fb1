//! The doors whose servers take over from each other.

use clap::ValueEnum;

/// The door at which the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // Their names are those of the doors.
pub enum Door {
    Nbd,
    VhostUser,
    Nvme,
    Ublk,
}

impl Door {
    /// Its name, and what its client does.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Door::Nbd => ("NBD", "stays connected"),
            Door::VhostUser => ("vhost-user-blk", "connects again; requests are tracked"),
            Door::Nvme => ("NVMe/TCP", "connects again and repeats its commands"),
            Door::Ublk => ("ublk", "stays; its requests wait in the kernel"),
        }
    }
}
