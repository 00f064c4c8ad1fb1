//! `braid stop`: an array is stopped, its members are marked clean and read back; the server ends with its last.

use super::done::say_done;
use crate::cli::Stop;
use crate::client::{Client, unexpected};
use crate::output;
use anyhow::{Result, bail};
use braid_control::protocol::{Answer, Request};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A stop that takes longer says why that may be.
const SOON: Duration = Duration::from_secs(2);

/// The array that runs, where it is the only one.
fn only(client: &mut Client) -> Result<String> {
    let arrays = match client.ask(&Request::List)? {
        Answer::List { arrays } => arrays,
        other => return Err(unexpected(&other)),
    };
    match arrays.as_slice() {
        [only] => Ok(only.name.clone()),
        [] => bail!("no array is running; braid stop --all ends a server of volumes"),
        several => {
            let names: Vec<&str> = several.iter().map(|array| array.name.as_str()).collect();
            bail!("several arrays are running, say which, or --all: {}", names.join(", "))
        }
    }
}

pub fn run(options: Stop) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let array = match options.name {
        _ if options.all => None,
        Some(name) => Some(name),
        None => Some(only(&mut client)?),
    };
    let (_stopped, wait) = mpsc::channel::<()>();
    let name = array.clone().unwrap_or_else(|| "NAME".to_string());
    std::thread::spawn(move || {
        if wait.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            output::note(format!(
                "braid: still waiting for writes and flushes that are under way; a member that reads and does not end them \
                 is given up after member_timeout (30 s unless set), at once by: braid fail {name} MEMBER"
            ));
        }
    });
    say_done(&client.order(&Request::Stop { array, force: options.force })?, options.json)
}
