//! `braid add`: devices become spares, and take over at once where members are missing.

use super::done::say_members;
use crate::cli::Add;
use crate::client::{Client, member_arguments};
use anyhow::{Result, bail};
use braid_control::protocol::{Flags, Request};
use std::process::ExitCode;

pub fn run(options: Add) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let members = member_arguments(&options.members, &[])?;
    if options.journal {
        let [member] = members.as_slice() else {
            bail!("an array has one journal; give one device with --journal")
        };
        let (array, member) = (options.name, member.clone());
        let request = Request::AddJournal { array, member, force: options.force };
        return say_members(&client.ask(&request)?, options.json);
    }
    let request = Request::Add {
        array: options.name,
        members,
        force: options.force,
        flags: Flags { write_mostly: options.write_mostly, failfast: options.failfast },
    };
    say_members(&client.ask(&request)?, options.json)
}
