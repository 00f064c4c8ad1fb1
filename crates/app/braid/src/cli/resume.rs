//! `braid resume`.

use super::common::Control;
use clap::Args;

/// `braid resume`.
#[derive(Debug, Args)]
#[command(
    long_about = "Try writes again, now, that wait because the file system that a member lies on is full. By themselves \
    they are tried again every few seconds; `braid detail` shows which members they wait for."
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
