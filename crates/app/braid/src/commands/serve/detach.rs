//! `serve --detach`: the server goes on in a process of its own, and the command ends when clients can connect.

use crate::output;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Tells the process that it is the one that goes on.
const DETACHED: &str = "BRAID_DETACHED";
/// The line that a server prints when clients can connect begins so.
pub const LISTENS: &str = "control socket: ";

/// This process was started by [`detach`].
pub fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Leaves the terminal of whoever started it.
///
/// # Errors
/// When the system refuses a session.
pub fn leave_terminal() -> Result<()> {
    rustix::process::setsid().context("leaving the terminal")?;
    Ok(())
}

/// Starts the server and waits until it listens, or has ended.
///
/// # Errors
/// When the process or its log cannot be made.
pub fn detach(control: &Path) -> Result<ExitCode> {
    let path = log_of(control);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
    }
    let log = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path);
    let mut log = log.with_context(|| format!("opening the log {}", path.display()))?;
    let begin = log.seek(SeekFrom::End(0)).context("reading the log")?;
    let program = std::env::current_exe().context("finding the program")?;
    let mut child = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone().context("passing the log")?)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let out = child.stdout.take().context("the server's output")?;
    for line in BufReader::new(out).lines() {
        let line = line.context("reading the server's output")?;
        let listens = line.starts_with(LISTENS);
        output::line(line)?;
        if listens {
            say(log, begin);
            output::line(format!("process {}, log: {}", child.id(), path.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let ended = child.wait().context("waiting for the server")?;
    say(log, begin);
    Ok(ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

/// Says what the log says from there on.
fn say(mut log: File, begin: u64) {
    let mut said = String::new();
    // The log itself has it.
    let read = log.seek(SeekFrom::Start(begin)).and_then(|_| log.read_to_string(&mut said));
    if read.is_ok() && !said.is_empty() {
        output::note(said.trim_end());
    }
}

fn log_of(control: &Path) -> PathBuf {
    control.with_extension("log")
}
