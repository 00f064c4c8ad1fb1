//! `braid resume`: writes that wait for space, and jobs that could not go on, are tried again.

use super::done::say_done;
use crate::cli::Resume;
use crate::client::Client;
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: &Resume) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let array = options.name.clone();
    say_done(&client.order(&Request::Resume { array })?, options.json)
}
