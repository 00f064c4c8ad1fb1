//! `braid remove`: faulty members or spares are let go, their devices closed.

use super::done::say_members;
use crate::cli::Remove;
use crate::client::{Client, member_arguments};
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(Remove { some: options, keep }: Remove) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let members = member_arguments(&options.members, &["failed", "faulty", "detached"])?;
    let request = Request::Remove { array: options.name, members, keep };
    say_members(&client.ask(&request)?, options.json)
}
