//! `braid set`: settings of a running array, changed while requests go on.

use super::done::say_done;
use crate::cli::Set;
use crate::client::Client;
use crate::settings::ArraySettings;
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: Set) -> Result<ExitCode> {
    // What is given twice needs no server to say so.
    ArraySettings::default().with(&options.settings)?;
    let mut client = Client::connect(&options.control.path())?;
    let settings = options.settings.into_iter().map(|one| (one.name, one.value)).collect();
    let request = Request::Set { array: options.name, settings, once: options.once };
    say_done(&client.order(&request)?, options.json)
}
