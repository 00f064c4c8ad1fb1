//! The `braid` command: takes a line apart, runs the verb, turns its end into an exit code.

#![forbid(unsafe_code)]

mod array_name;
mod cli;
mod client;
mod commands;
mod creating;
mod daemon;
mod demo;
mod discover;
mod exit;
mod hosts;
mod md_view;
mod members;
mod memory;
mod on_shard;
mod output;
mod panics;
mod protocol;
mod settings;
mod source;
mod take_over;
mod volumes;
mod wanted;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    panics::end_the_process();
    let cli = cli::Cli::parse();
    let filter = EnvFilter::try_from_env("BRAID_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if let Some(warning) = braid_parity::override_warning() {
        output::note(format!("braid: {warning}"));
    }
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            output::note(format!("braid: {error:#}"));
            exit::code_of(&error)
        }
    }
}
