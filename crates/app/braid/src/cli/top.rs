//! `braid top`.

use super::common::Control;
use clap::Args;
use std::time::Duration;

/// Show arrays, members, volumes, jobs and clients on one screen, anew every second.
#[derive(Debug, Args)]
#[command(
    long_about = "Show running arrays and their members, mounted volumes and their bricks, rates, latencies, queues, jobs and clients, anew every second.\n\n\
    Keys: up and down (or k and j), page up and page down, home and end scroll; + and - change the interval; space holds \
    the picture; q, Escape or Ctrl-C end."
)]
pub struct Top {
    /// The array or volume: its name or UUID. Without it, all volumes, and all arrays that are not below another.
    pub name: Option<String>,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = super::figures::seconds)]
    pub delay: Duration,
    #[command(flatten)]
    pub control: Control,
}
