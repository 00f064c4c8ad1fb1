//! The verbs of a server that is there from boot on: `daemon`, `start`, `config`.

use super::common::{Control, EXIT_CODES};
use crate::configuration::DEFAULT_PATH;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Serve the arrays of a configuration, from boot to shutdown: what a service manager runs.
#[derive(Debug, Args)]
#[command(
    long_about = "Serve the arrays of a configuration, from boot to shutdown: what a service manager runs.\n\n\
    Arrays that the configuration names, or that its [scan] finds and `auto` allows, are started when their members are \
    there, and after a while without those that are not (degraded-after). `braid start`, `braid assemble --scan`, \
    `braid create --start` and `braid stop` bring arrays in and take them out meanwhile; it ends by SIGTERM only. SIGHUP \
    has the program that is at its place now, and the file as it is now, take over, while clients stay connected.\n\n\
    It tells a service manager (sd_notify) when clients can connect, how its arrays are, and that it is alive.",
    after_help = EXIT_CODES
)]
pub struct Daemon {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
    #[command(flatten)]
    pub control: Control,
}

/// Start arrays in a server that runs already, or give members back to them.
#[derive(Debug, Args)]
#[command(
    long_about = "Start arrays in a server that runs already (`braid daemon`, `braid serve`).\n\n\
    A word with a / in it, or that is the name of a file here, is a member; any other is the name or UUID of an array, \
    whose members the server looks for. Members of an array that runs without them are taken back. What is missing is \
    looked for from then on.",
    after_help = EXIT_CODES
)]
pub struct Start {
    /// Members, or names or UUIDs of arrays.
    #[arg(required_unless_present = "scan", value_name = "MEMBER|ARRAY")]
    pub words: Vec<String>,
    /// All arrays that the server's configuration wants, also those that were stopped.
    #[arg(short, long)]
    pub scan: bool,
    /// Start even when members are missing that were there when the array was last written.
    #[arg(short = 'R', long)]
    pub run: bool,
    /// As for `braid serve`: blocks that were being written when a degraded array was not stopped cleanly may come back
    /// wrong; members that an array went on without are taken.
    #[arg(short, long)]
    pub force: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Read the configuration, say what it means, and what of mdadm.conf is ignored; change nothing.
    Check(ConfigCheck),
}

/// `braid config check`.
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
}

/// Tell the running server of a device that has come, or gone: what udev calls.
#[derive(Debug, Args)]
#[command(
    long_about = "Tell the running server of a device that has come, or gone: what udev's rules call, as mdadm -I.\n\n\
    A device that is a member of an array which the configuration wants is given to the server: it starts the array when \
    all members are there (and after a while without those that are not), or takes the member back by the bitmap. Exit \
    code 1: it is no member, or of no array that is wanted. Without a server nothing is done: it looks at all devices \
    when it starts."
)]
pub struct Incremental {
    /// The device.
    pub device: PathBuf,
    /// It has gone: members that are not there any more are failed and removed.
    #[arg(short, long, conflicts_with = "export")]
    pub fail: bool,
    /// Change nothing, and print for udev that the device is braid's (BRAID_MEMBER=1), where it is.
    #[arg(long)]
    pub export: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
    #[command(flatten)]
    pub control: Control,
}

/// `braid completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `braid manual`.
#[derive(Debug, Args)]
pub struct Manual {
    /// The folder that the pages are written to.
    pub folder: PathBuf,
}
