//! The options of `serve` that keep other hosts off its arrays.

use crate::hosts::{Guard, Heartbeat};
use clap::{Args, ValueEnum};

/// Arrays that other hosts reach, too.
#[derive(Debug, Clone, Copy, Args)]
pub struct Hosts {
    /// Tell other hosts that reach the same members that the arrays are in use, every so many seconds (1 to 60), in a block
    /// beside each superblock; a host that starts one meanwhile is refused. auto does so, every 2 seconds, where a
    /// member is reached over a network (iSCSI, Fibre Channel, NVMe over fabrics, NBD, RBD, NFS, SMB, Ceph). The start then
    /// takes as long as one beat, and five seconds more when the host that used an array last has crashed.
    #[arg(long, value_name = "auto|off|SECONDS", default_value = "auto")]
    pub heartbeat: Heartbeat,

    /// Also have the members' disks take the writes of this host alone, where an array has a heartbeat and a disk knows
    /// persistent reservations (SCSI, NVMe): whoever takes over from a host that hangs has the disks refuse what that one
    /// still writes. Needs CAP_SYS_ADMIN. A member that cannot be reserved is named in the log, and has its heartbeat alone.
    #[arg(long, value_enum, default_value_t = Reservations::Auto)]
    pub reservations: Reservations,
}

/// Reservations of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reservations {
    /// Those that can be, of arrays with a heartbeat.
    Auto,
    /// None.
    Off,
}

impl Hosts {
    /// The means that are asked for.
    pub fn guard(&self) -> Guard {
        let reservations = self.reservations == Reservations::Auto;
        Guard { heartbeat: self.heartbeat, reservations, handed_over: false }
    }
}
