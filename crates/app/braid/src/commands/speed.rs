//! `braid speed`: limits of background jobs.

use super::done::say_done;
use crate::cli::Speed;
use crate::client::Client;
use anyhow::{Result, bail};
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: Speed) -> Result<ExitCode> {
    if options.min.is_none() && options.max.is_none() {
        bail!(
            "give --min, --max or both, in KiB per second; `braid detail` shows what they are now"
        );
    }
    let mut client = Client::connect(&options.control.path())?;
    let request =
        Request::Speed { array: options.name, min_kib: options.min, max_kib: options.max };
    say_done(&client.order(&request)?, options.json)
}
