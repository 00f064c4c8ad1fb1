//! `braid replace`: members are copied to others, which take their places; they serve meanwhile.

use super::done::say_members;
use crate::cli::Replace;
use crate::client::{Client, member_arguments};
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: Replace) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let members = member_arguments(&options.members, &[])?;
    let with = member_arguments(&options.with, &[])?;
    let request = Request::Replace { array: options.name, members, with, force: options.force };
    say_members(&client.ask(&request)?, options.json)
}
