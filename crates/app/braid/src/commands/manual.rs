//! `braid manual` and `braid completions`: made from the definition of the command line, so that they say what it takes.

use crate::cli::{Cli, Completions, Manual};
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// The section of the manual: programs for the administrator.
const SECTION: &str = "8";

pub fn pages(options: &Manual) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.folder)
        .with_context(|| format!("making the folder {}", options.folder.display()))?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    page(&options.folder, &command, "braid")?;
    Ok(ExitCode::SUCCESS)
}

/// A page for the command, and one for each below it.
fn page(folder: &Path, command: &Command, name: &str) -> Result<()> {
    let path = folder.join(format!("{name}.{SECTION}"));
    let doing = || format!("writing {}", path.display());
    // The names of pages have hyphens where the command line has blanks.
    let own = command.clone().display_name(name.to_string());
    let source = format!("braid {}", env!("CARGO_PKG_VERSION"));
    let page_of = clap_mangen::Man::new(own)
        .section(SECTION)
        .manual("braid")
        .source(source)
        .title(name.to_uppercase());
    let mut out = BufWriter::new(File::create(&path).with_context(doing)?);
    page_of.render(&mut out).and_then(|()| out.flush()).with_context(doing)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        page(folder, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}

pub fn completions(options: &Completions) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "braid", &mut text);
    // A reader that went away is no error.
    crate::output::line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(ExitCode::SUCCESS)
}
