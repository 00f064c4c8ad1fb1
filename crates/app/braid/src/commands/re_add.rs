//! `braid re-add`: a member that was away comes back; what was written meanwhile is copied to it.

use super::done::say_done;
use crate::cli::OneMember;
use crate::client::{Client, member_argument};
use crate::protocol::Request;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: OneMember) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let member = member_argument(&options.member)?;
    let request = Request::ReAdd { array: options.name, member };
    say_done(&client.order(&request)?, options.json)
}
