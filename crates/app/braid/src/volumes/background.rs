//! A server that is started for a volume where none runs: the same program, away from the terminal.

use crate::client::Client;
use crate::exit::Unreadable;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// For so long a server may take until it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Of what a server said, so much of the end is shown.
const SAID_MAX: usize = 4096;

/// Where a server that was started by itself says what it has to say.
pub fn log_path(control: &Path) -> PathBuf {
    control.with_extension("log")
}

/// Starts a server with this control socket, and these words beside, and waits until it listens.
///
/// # Errors
/// When it does not start; with what it said.
pub fn start(control: &Path, state: Option<&Path>, more: &[OsString]) -> Result<()> {
    let program = std::env::current_exe().context("finding this program, to start a server")?;
    if let Some(folder) = control.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        // As the server itself makes it.
        let made = DirBuilder::new().recursive(true).mode(0o711).create(folder);
        made.with_context(|| {
            format!("making the folder {} of the control socket", folder.display())
        })?;
    }
    let path = log_path(control);
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    let log = options.open(&path).with_context(|| format!("opening {}", path.display()))?;
    let also = log.try_clone().context("duplicating the log's descriptor")?;
    let mut command = Command::new(program);
    command.args(["volume", "host", "--control"]).arg(control).args(more);
    if let Some(state) = state {
        command.arg("--state-dir").arg(state);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(log))
        .stderr(Stdio::from(also))
        .spawn()
        .context("starting a server in the background")?;
    let since = Instant::now();
    while !Client::is_listening(control) {
        if let Some(ended) = child.try_wait().context("watching the server that was started")? {
            let said = said(&path);
            return Err(
                Unreadable(format!("the server that was started ended ({ended}): {said}")).into()
            );
        }
        if since.elapsed() > STARTS_WITHIN {
            return Err(Unreadable(format!(
                "the server that was started does not listen at {}; see {}",
                control.display(),
                path.display()
            ))
            .into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn said(log: &Path) -> String {
    // What cannot be read was not said.
    let bytes = std::fs::read(log).unwrap_or_default();
    let end = &bytes[bytes.len().saturating_sub(SAID_MAX)..];
    String::from_utf8_lossy(end).trim().to_string()
}
