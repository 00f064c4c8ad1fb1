//! `braid monitor`.

use super::common::{Control, EXIT_CODES};
use crate::configuration::DEFAULT_PATH;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Say what happens to arrays, and tell others of it by mail, a program or a webhook.
#[derive(Debug, Args)]
#[command(
    long_about = "Say what happens to the arrays of a running server, as mdadm --monitor does, and tell others of it.\n\n\
    `braid daemon` does that by itself, by the [monitor] of its configuration; this is for a server without one, for \
    another machine's log, and to try who is told (--test --oneshot).\n\n\
    Events are mdadm's: NewArray, DegradedArray, SparesMissing, Fail, FailSpare, SpareActive, RebuildStarted, RebuildNN, \
    RebuildFinished, MoveSpare, DeviceDisappeared, TestMessage; and MemberAdded, MemberRemoved, ArrayFailed, JobFailed, \
    MismatchFound, WaitingForSpace, SmartWarning, LostToHost, LeaseTaken, ClientConnected, ClientGone. Mail is sent for those that \
    somebody has to look after.",
    after_help = EXIT_CODES
)]
pub struct Monitor {
    /// The arrays: names or UUIDs. Without any, all.
    pub names: Vec<String>,
    /// Tell also those whom the configuration names in [monitor].
    #[arg(short, long)]
    pub scan: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
    /// Send a mail to this address, by sendmail. May be given several times.
    #[arg(short, long, value_name = "ADDRESS")]
    pub mail: Vec<String>,
    /// Run this program with the event, the array and the member, as mdadm runs its PROGRAM.
    #[arg(short, long, visible_alias = "alert", value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Send each event to this URL, by POST, as JSON. May be given several times.
    #[arg(short, long, value_name = "URL")]
    pub webhook: Vec<String>,
    /// Tell of a TestMessage of each array first.
    #[arg(short, long)]
    pub test: bool,
    /// Look once, and end.
    #[arg(short = '1', long)]
    pub oneshot: bool,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = super::figures::seconds)]
    pub delay: Duration,
    /// Events as JSON, one a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}
