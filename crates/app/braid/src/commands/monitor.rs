//! `braid monitor`: events of the arrays of a running server, as they happen.

use crate::cli::Monitor;
use crate::client::{Client, unexpected};
use crate::configuration::{self, Configuration};
use crate::monitor::Event;
use crate::monitor::slow::Slow;
use crate::monitor::telling::Telling;
use crate::monitor::watching::Watching;
use crate::output;
use anyhow::Result;
use braid_control::protocol::{Answer, Detail, Request, Stat};
use std::process::ExitCode;
use std::time::Instant;

pub fn run(options: &Monitor) -> Result<ExitCode> {
    let read = options.scan.then(|| Configuration::read(&options.config)).transpose()?;
    let mut told =
        read.as_ref().map_or_else(configuration::Monitor::default, |read| read.monitor.clone());
    told.mail.extend(options.mail.iter().cloned());
    told.webhook.extend(options.webhook.iter().cloned());
    if options.program.is_some() {
        told.program.clone_from(&options.program);
    }
    let telling = Telling::begin(told)?;
    let spares = |detail: &Detail| read.as_ref()?.spares_of(&detail.uuid, &detail.full_name);
    let (mut watching, mut slow) = (Watching::default(), Slow::default());
    // Without a server at first it is a mistake; later it is an event.
    let mut now = details(options)?;
    if options.test {
        for detail in &now {
            let text = format!("a test of who is told of array {}", detail.name);
            say(options, &telling, &Event::of(detail, "TestMessage", None, text))?;
        }
    }
    loop {
        let at = Instant::now();
        let slow = match slow.is_due(at) {
            true => slow.look(stats(options, &now), &now, at),
            false => Vec::new(),
        };
        for event in watching.look(now, at, &spares).into_iter().chain(slow) {
            if !say(options, &telling, &event)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if options.oneshot {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(options.delay);
        now = details(options).unwrap_or_default();
    }
}

/// False when nobody reads any more.
fn say(options: &Monitor, telling: &Telling, event: &Event) -> Result<bool> {
    telling.tell(event);
    if options.json {
        return output::line_if_read(serde_json::to_string(event)?);
    }
    output::line_if_read(format!("{}  {}", output::time::local(event.time), event.line()))
}

fn details(options: &Monitor) -> Result<Vec<Detail>> {
    let mut client = Client::connect(&options.control.path())?;
    let names = match options.names.is_empty() {
        false => options.names.clone(),
        true => match client.ask(&Request::List)? {
            Answer::List { arrays } => arrays.into_iter().map(|array| array.uuid).collect(),
            other => return Err(unexpected(&other)),
        },
    };
    // One that is stopped meanwhile is not running any more.
    Ok(names.iter().filter_map(|name| client.detail(Some(name)).ok()).collect())
}

/// The work of these arrays, of those that still run.
fn stats(options: &Monitor, details: &[Detail]) -> Vec<Stat> {
    let Ok(mut client) = Client::connect(&options.control.path()) else { return Vec::new() };
    details.iter().filter_map(|detail| client.stat(Some(&detail.uuid)).ok()).collect()
}
