//! `braid member`: flags of a member of a running array.

use super::done::say_done;
use crate::cli::{Member, Whether};
use crate::client::{Client, member_argument};
use anyhow::Result;
use braid_control::protocol::Request;
use std::process::ExitCode;

pub fn run(options: Member) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let member = member_argument(&options.member)?;
    let on = |whether: Option<Whether>| whether.map(|whether| whether == Whether::On);
    let request = Request::Member {
        array: options.name,
        member,
        write_mostly: on(options.write_mostly),
        failfast: on(options.failfast),
    };
    say_done(&client.order(&request)?, options.json)
}
