//! The option of `serve` on telling other hosts that its arrays are in use.

use crate::hosts::Heartbeat;
use clap::Args;

/// Arrays that other hosts reach, too.
#[derive(Debug, Clone, Copy, Args)]
pub struct Hosts {
    /// Tell other hosts that reach the same members that the arrays are in use, every so many seconds (1 to 60), in a block
    /// beside each superblock; a host that starts one meanwhile is refused. auto does so, every 2 seconds, where a
    /// member is reached over a network (iSCSI, Fibre Channel, NVMe over fabrics, NBD, RBD, NFS, SMB, Ceph). The start then
    /// takes as long as one beat, and five seconds more when the host that used an array last has crashed.
    #[arg(long, value_name = "auto|off|SECONDS", default_value = "auto")]
    pub heartbeat: Heartbeat,
}
