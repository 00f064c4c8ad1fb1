//! `braid stop`: an array is stopped and its members are marked clean; the server ends with its last.

use super::say_done;
use crate::cli::Stop;
use crate::client::Client;
use crate::daemon::protocol::Request;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Stop) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control)?;
    let array = if options.all { None } else { options.name };
    say_done(&client.order(&Request::Stop { array })?, options.json)
}
