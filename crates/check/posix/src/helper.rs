//! A second process, for what one process may do while another holds a lock.
//!
//! It is this program again, called as `braid-posix helper`. It reads one request a line and answers each with one
//! line: `ok`, or the number of the error. A path stands last in its line and holds no line break.

use crate::raw::{LockKind, LockOwner, lock_range};
use crate::scene::{plain, skip};
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Answers requests until standard input ends.
///
/// # Errors
///
/// When a request is not understood, or the other side is gone.
pub fn serve() -> Result<()> {
    let mut open: HashMap<PathBuf, File> = HashMap::new();
    let mut out = std::io::stdout();
    for line in std::io::stdin().lines() {
        let answer = match answer(&mut open, &line?)? {
            Ok(()) => "ok".to_owned(),
            Err(errno) => errno.raw_os_error().to_string(),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(open: &mut HashMap<PathBuf, File>, line: &str) -> Result<rustix::io::Result<()>> {
    let (request, path) = line.split_once('\t').context("a request without a path")?;
    let path = PathBuf::from(path);
    if request == "close" {
        open.remove(&path);
        return Ok(Ok(()));
    }
    if !open.contains_key(&path) {
        match plain(OpenOptions::new().read(true).write(true).open(&path)) {
            Ok(file) => open.insert(path.clone(), file),
            Err(errno) => return Ok(Err(errno)),
        };
    }
    let file = open.get(&path).context("a file that was just opened")?;
    let words: Vec<&str> = request.split(' ').collect();
    Ok(match words.as_slice() {
        ["flock", kind] => flock(
            file,
            match *kind {
                "shared" => FlockOperation::NonBlockingLockShared,
                "exclusive" => FlockOperation::NonBlockingLockExclusive,
                "none" => FlockOperation::Unlock,
                "wait" => FlockOperation::LockExclusive,
                other => bail!("no flock of kind {other}"),
            },
        ),
        ["range", kind, start, len] => {
            let (kind, wait) = match *kind {
                "read" => (LockKind::Read, false),
                "write" => (LockKind::Write, false),
                "none" => (LockKind::Unlock, false),
                "wait" => (LockKind::Write, true),
                other => bail!("no lock of kind {other}"),
            };
            lock_range(file, LockOwner::Process, kind, start.parse()?, len.parse()?, wait)
        }
        _ => bail!("not understood: {request}"),
    })
}

/// The second process, as the first sees it; it ends when this is dropped.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// When `program` cannot be started; a skip where none was named.
    pub fn start(program: &Path) -> Result<Self> {
        if program.as_os_str().is_empty() {
            return skip("needs a second process");
        }
        let mut child = Command::new(program)
            .arg("helper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {} as a second process", program.display()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the second process has no pipes");
        };
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        // Process numbers are positive and fit: the kernel keeps them in an i32.
        self.child.id() as i32
    }

    /// Sends a request; `answer` gives what came of it.
    ///
    /// # Errors
    ///
    /// When the second process is gone.
    pub fn send(&mut self, request: &str, path: &Path) -> Result<()> {
        let path = path.to_str().context("a path for the second process that is not UTF-8")?;
        writeln!(self.requests, "{request}\t{path}").context("sending to the second process")?;
        self.requests.flush().context("sending to the second process")
    }

    /// Waits for the answer to the oldest request that has none.
    ///
    /// # Errors
    ///
    /// When the second process is gone.
    pub fn answer(&mut self) -> Result<rustix::io::Result<()>> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("hearing from the second process")?;
        match line.trim_end() {
            "ok" => Ok(Ok(())),
            "" => bail!("the second process ended"),
            number => Ok(Err(Errno::from_raw_os_error(number.parse()?))),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// When the second process is gone.
    pub fn ask(&mut self, request: &str, path: &Path) -> Result<rustix::io::Result<()>> {
        self.send(request, path)?;
        self.answer()
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the second process")?;
        self.child.wait().context("waiting for the second process")?;
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // One that is gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
