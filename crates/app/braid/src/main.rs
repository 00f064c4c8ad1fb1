//! The `braid` command: takes a line apart, runs the verb, turns its end into an exit code.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod commands;
mod configuration;
mod creating;
mod daemon;
mod demo;
mod discover;
mod exit;
mod hosts;
mod lease;
mod log;
mod md_view;
mod members;
mod memory;
mod monitor;
mod on_shard;
mod output;
mod panics;
mod scanning;
mod service;
mod settings;
mod source;
mod take_over;
mod volumes;
mod web;

use clap::Parser;
use service::Priority;
use std::process::ExitCode;

fn main() -> ExitCode {
    panics::end_the_process();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(hint) = std::env::args().nth(1).and_then(|word| cli::verb_for(&word)) {
                output::note(format!("braid: {hint}"));
                return ExitCode::from(exit::FAILED);
            }
            error.exit()
        }
    };
    log::begin();
    if let Some(warning) = braid_parity::override_warning() {
        output::note(format!("braid: {warning}"));
    }
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            let said = output::said(&error);
            if std::env::args().any(|word| word == "--json") {
                // Standard error has the same, should nobody read this.
                let _ = output::json(
                    &serde_json::json!({ "error": said, "code": exit::word_of(&error) }),
                );
            }
            output::tell(Priority::Error, format!("braid: {said}"));
            exit::code_of(&error)
        }
    }
}
