//! `braid resume`.

use super::common::Control;
use clap::Args;

/// Try again, now, writes that wait because a member's file system is full, and jobs that could not go on.
#[derive(Debug, Args)]
#[command(
    long_about = "Try again, now, what waits: writes, because the file system that a member lies on is full (by themselves \
    they are tried again every few seconds; `braid detail` shows which members they wait for); and a rebuild, resync, \
    reshape or replacement that could not go on, which is tried again after a minute, then after two, and so on up to an hour."
)]
pub struct Resume {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}
