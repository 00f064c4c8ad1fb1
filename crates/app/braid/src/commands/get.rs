//! `braid get`: the settings of a running array, with what auto means at the moment.

use crate::cli::Get;
use crate::client::{Client, unexpected};
use crate::output;
use anyhow::Result;
use braid_control::protocol::{Answer, Request, Setting};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Report {
    name: String,
    settings: Vec<Setting>,
}

pub fn run(options: &Get) -> Result<ExitCode> {
    let mut client = Client::connect(&options.control.path())?;
    let (name, mut settings) = match client.ask(&Request::Get { array: options.name.clone() })? {
        Answer::Settings { array, settings } => (array, settings),
        other => return Err(unexpected(&other)),
    };
    if !options.settings.is_empty() {
        settings.retain(|setting| options.settings.contains(&setting.name));
    }
    if options.json {
        output::json(&Report { name, settings })?;
    } else {
        for setting in &settings {
            output::line(text(setting))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(setting: &Setting) -> String {
    let mut remarks: Vec<String> = setting.meaning.iter().cloned().collect();
    if setting.kept != setting.value {
        remarks.push(format!("kept: {}", setting.kept));
    }
    let line = format!("{}={}", setting.name, setting.value);
    if remarks.is_empty() { line } else { format!("{line} ({})", remarks.join("; ")) }
}
