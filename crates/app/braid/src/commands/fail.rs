//! `braid fail`: members are not used any more; spares take over, where there are any.

use super::done::say_members;
use crate::cli::SomeMembers;
use crate::client::{Client, member_arguments};
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: SomeMembers) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let members = member_arguments(&options.members, &["detached"])?;
    let request = Request::Fail { array: options.name, members };
    say_members(&client.ask(&request)?, options.json)
}
