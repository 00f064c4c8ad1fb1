//! The options of `serve` on asking disks for their health.

use clap::Args;
use std::path::PathBuf;

/// SMART warnings of the disks that members lie on.
#[derive(Debug, Clone, Args)]
pub struct Smart {
    /// The smartctl of smartmontools, which asks disks for their health; without it there are no warnings.
    #[arg(long, value_name = "PATH", default_value = "smartctl")]
    pub smartctl: PathBuf,
    /// Minutes from one time that disks are asked to the next; 0: never.
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=525_600))]
    pub smart_every: u64,
}
