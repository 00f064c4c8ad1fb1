//! `braid incremental`: udev says that a device has come, or gone.

use crate::cli::Incremental;
use crate::client::{Client, member_argument, unexpected};
use crate::configuration::Configuration;
use crate::discover;
use crate::output;
use anyhow::{Context, Result};
use braid_control::protocol::{Answer, Request};
use std::path::Path;
use std::process::ExitCode;

/// The device is none that the configuration wants.
const NOT_OURS: u8 = 1;

pub fn run(options: Incremental) -> Result<ExitCode> {
    let device = options.device.to_str().context("the path of the device is no text")?;
    let control = options.control.path();
    if options.fail {
        return match Client::is_listening(&control) {
            true => gone(&mut Client::connect(&control)?, device),
            false => Ok(ExitCode::SUCCESS),
        };
    }
    let configuration = Configuration::read(&options.config)?;
    let superblock = discover::examine(Path::new(device))?.superblock.ok().flatten();
    if !superblock.is_some_and(|superblock| configuration.wants(&superblock)) {
        return Ok(ExitCode::from(NOT_OURS));
    }
    if options.export {
        output::line("BRAID_MEMBER=1")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !Client::is_listening(&control) {
        output::note("note: no server is running; it looks at all devices when it starts");
        return Ok(ExitCode::SUCCESS);
    }
    let (members, arrays) = (vec![member_argument(device)?], Vec::new());
    let request = Request::Start { members, arrays, scan: false, run: false, force: false };
    match Client::connect(&control)?.ask(&request)? {
        // An array that waits for others is nothing wrong.
        Answer::Started { done, waiting } => {
            done.iter().chain(&waiting).try_for_each(output::line)?;
            Ok(ExitCode::SUCCESS)
        }
        other => Err(unexpected(&other)),
    }
}

/// Fails and removes members that are not there any more.
fn gone(client: &mut Client, device: &str) -> Result<ExitCode> {
    let path = if device.contains('/') { device.to_string() } else { format!("/dev/{device}") };
    let arrays = match client.ask(&Request::List)? {
        Answer::List { arrays } => arrays,
        other => return Err(unexpected(&other)),
    };
    for array in arrays {
        let detail = client.detail(Some(&array.uuid))?;
        // It may be known by another path, which leads nowhere now.
        let is_gone =
            |name: &str| name == path || name.starts_with("/dev/") && !Path::new(name).exists();
        let members = detail.members.iter().filter(|member| is_gone(&member.name));
        for member in members.map(|member| member.name.clone()) {
            let (array, members) = (array.uuid.clone(), vec![member]);
            for request in [
                Request::Fail { array: array.clone(), members: members.clone() },
                Request::Remove { array: array.clone(), members: members.clone(), keep: true },
            ] {
                match client.ask(&request) {
                    Ok(Answer::Members { done, error }) => {
                        done.iter().try_for_each(|one| output::line(&one.done))?;
                        error.iter().for_each(|why| output::note(format!("braid: {why}")));
                    }
                    Ok(other) => return Err(unexpected(&other)),
                    // One that the data depends on stays, and is named.
                    Err(error) => output::note(format!("braid: {}", output::said(&error))),
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
