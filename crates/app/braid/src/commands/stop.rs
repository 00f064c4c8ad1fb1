//! `braid stop`: an array is stopped, its members are marked clean and read back; the server ends with its last.

use super::done::say_done;
use crate::cli::Stop;
use crate::client::Client;
use crate::output;
use crate::protocol::Request;
use anyhow::Result;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A stop that takes longer says why that may be.
const SOON: Duration = Duration::from_secs(2);

pub fn run(options: Stop) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let array = if options.all { None } else { options.name };
    let (_stopped, wait) = mpsc::channel::<()>();
    let name = array.clone().unwrap_or_else(|| "NAME".to_string());
    std::thread::spawn(move || {
        if wait.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            output::note(format!(
                "braid: still waiting for writes and flushes that are under way; a member that reads and does not end them \
                 is given up after member_timeout (30 s unless set), at once by: braid fail {name} MEMBER"
            ));
        }
    });
    say_done(&client.order(&Request::Stop { array, force: options.force })?, options.json)
}
