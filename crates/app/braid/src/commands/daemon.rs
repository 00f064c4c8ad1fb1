//! `braid daemon`: the server that a service manager runs, by its configuration.

use super::serve;
use crate::cli::{Cli, Command, Daemon};
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::process::ExitCode;

pub fn run(options: Daemon) -> Result<ExitCode> {
    // A server that takes over is given the same words.
    let path = std::path::absolute(&options.config)
        .with_context(|| format!("making {} absolute", options.config.display()))?;
    let Ok(path) = path.into_os_string().into_string() else {
        bail!("the path of the configuration is no text");
    };
    let mut words = vec!["serve".to_string(), "--config".to_string(), path];
    if let Some(control) = options.control.control.as_ref().and_then(|path| path.to_str()) {
        words.extend(["--control".to_string(), control.to_string()]);
    }
    let all = std::iter::once("braid").chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(all).context("making the options of the server")?.command {
        Command::Serve(options) => serve::run_with(*options, words),
        _ => bail!("making the options of the server: no server"),
    }
}
