//! The options of `serve` that have etcd decide which host runs an array.

use crate::lease::Place;
use clap::Args;

/// A lease that another host takes over.
#[derive(Debug, Clone, Args)]
pub struct Lease {
    /// Run arrays only while this host holds their lease in etcd: etcd://HOST:PORT, with commas between its members. Another host
    /// that is given the same is refused them meanwhile, or waits (--standby). When the lease cannot be renewed in time the
    /// process ends at once, before another can get it: clients have to connect to the other host then.
    #[arg(long, value_name = "ETCD", conflicts_with_all = ["read_only", "take_over", "create"])]
    pub lease: Option<Place>,
    /// The time that the lease lasts without being renewed. Another host takes over about so long after this one is gone; this
    /// one ends after four fifths of it without an answer of etcd.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(3..=600),
        requires = "lease"
    )]
    pub lease_ttl: u32,
    /// Wait until no other host holds the lease, then assemble and serve. Until then there is no control socket, and a service
    /// manager is told that the start goes on.
    #[arg(long, requires = "lease", conflicts_with = "strict")]
    pub standby: bool,
}
