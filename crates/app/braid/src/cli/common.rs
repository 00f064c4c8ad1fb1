//! What many verbs have: the way to the server, and what they end with.

use crate::daemon::control_socket::default_path;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done; for --test: every slot has a member in sync
  1  asked for with --test: degraded. After a check that was waited for: mismatches were found.
     The end of serve: something that it was given could not be served to the end
  2  refused, or failed; for --test: the array cannot be used
  4  a device or a running server could not be read

Members are written as a path (a file or a block device), as ram:256M, as model:sata-ssd,1G, or as
array:NAME, an array that a running server has.
Sizes take K, M, G and T, powers of 1024.";

/// How to reach a running server.
#[derive(Debug, Clone, Args)]
pub struct Control {
    /// The control socket of the server [default: /run/braid/control.sock for root, else
    /// $XDG_RUNTIME_DIR/braid/control.sock].
    #[arg(long, env = "BRAID_CONTROL", value_name = "PATH", hide_env_values = true)]
    pub control: Option<PathBuf>,
}

impl Control {
    /// The control socket that is meant.
    pub fn path(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(default_path)
    }
}
