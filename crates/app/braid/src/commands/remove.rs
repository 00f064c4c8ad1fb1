//! `braid remove`: a faulty member or spare is let go, its device closed.

use super::done::say_done;
use crate::cli::OneMember;
use crate::client::{Client, member_argument};
use crate::protocol::Request;
use anyhow::Result;
use std::process::ExitCode;

pub fn run(options: OneMember) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let member = member_argument(&options.member)?;
    let done = client.order(&Request::Remove { array: options.name, member })?;
    say_done(&done, options.json)
}
