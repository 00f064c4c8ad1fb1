//! The program that users have, in a folder of its own, and servers of it that are killed at their end.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The program, and the folder that it is run in, where its control socket and its state are, too.
pub(crate) struct Program {
    braid: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// `braid`, run in `folder`.
    pub(crate) fn new(braid: &Path, folder: &Path) -> Program {
        Program { braid: braid.to_path_buf(), folder: folder.to_path_buf() }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A run of it with these words, which reads nothing.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.braid);
        command
            .args(words.split_whitespace())
            .current_dir(&self.folder)
            .env("BRAID_CONTROL", self.path("control.sock"))
            .env("BRAID_STATE_DIR", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it with these words, which must succeed; gives its output.
    ///
    /// # Errors
    /// What it has said.
    pub(crate) fn run(&self, words: &str) -> Result<String> {
        let output = self.command(words).output().with_context(|| format!("braid {words}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "braid {words}: {}\n{said}{error}", output.status);
        Ok(said)
    }
}

/// A running server, killed when it is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended by itself, or does so now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
