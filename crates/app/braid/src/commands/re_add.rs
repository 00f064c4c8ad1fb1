//! `braid re-add`: members that were away come back; what was written meanwhile is copied to them.

use super::done::say_members;
use crate::cli::SomeMembers;
use crate::client::{Client, member_arguments};
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: SomeMembers) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let members = member_arguments(&options.members, &["missing"])?;
    let request = Request::ReAdd { array: options.name, members };
    say_members(&client.ask(&request)?, options.json)
}
