//! `braid add`: a device becomes a spare, and takes over at once where a member is missing.

use super::done::say_done;
use crate::cli::Add;
use crate::client::{Client, member_argument};
use crate::protocol::{Flags, Request};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: Add) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let member = member_argument(&options.member)?;
    let request = Request::Add {
        array: options.name,
        member,
        force: options.force,
        flags: Flags { write_mostly: options.write_mostly, failfast: options.failfast },
    };
    say_done(&client.order(&request)?, options.json)
}
