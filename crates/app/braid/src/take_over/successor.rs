//! A server starts its own successor: the program that is at its place now, which may be a newer one.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Appended by the kernel to the path of a program that was replaced.
const DELETED: &[u8] = b" (deleted)";

/// Starts it; it asks for everything by itself, at the control socket `control`.
///
/// # Errors
/// There is no program any more, or the system refuses a process.
pub fn start(control: &Path) -> Result<()> {
    let program = place(std::env::current_exe().context("finding the program")?);
    let mut child = Command::new(&program)
        .args(["serve", "--take-over", "--control"])
        .arg(control)
        // It is for the process that the service manager has started; the successor is watched in its place.
        .env_remove("WATCHDOG_PID")
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    // When it takes over it outlives this process; when it fails somebody has to take note of its end.
    std::thread::Builder::new()
        .name("successor".to_string())
        .spawn(move || child.wait())
        .context("starting a thread that waits for the new server")?;
    Ok(())
}

/// Where a program was before it was replaced.
fn place(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(before) => OsString::from_vec(before.to_vec()).into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_found_where_it_was() {
        assert_eq!(place("/usr/bin/braid (deleted)".into()), Path::new("/usr/bin/braid"));
        assert_eq!(place("/usr/bin/braid".into()), Path::new("/usr/bin/braid"));
    }
}
