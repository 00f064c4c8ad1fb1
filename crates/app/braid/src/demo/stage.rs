//! The demo's folder, its server as a child process, the tools that it calls, and its interruption.
//!
//! Children run in process groups of their own, so that Ctrl-C reaches the demo only, which then ends
//! them in order. Invariant: whatever is started here is on the clean-up list before anything else
//! can fail.

use super::cleanup::Cleanup;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A tool that takes longer is given up.
const TOOL_TIME: Duration = Duration::from_secs(60);
/// Between two looks at a child.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What a server gets to stop in order.
const STOP_TIME: Duration = Duration::from_secs(15);

/// A child that several may wait for or end.
pub type SharedChild = Arc<Mutex<Child>>;

/// Whether a signal has come.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// # Errors
    /// When a signal came.
    pub fn go_on(&self) -> Result<()> {
        ensure!(!self.0.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }
}

/// See the module's documentation.
pub struct Stage {
    /// Undone before the folder goes: fields are dropped in this order.
    pub cleanup: Cleanup,
    folder: Option<TempDir>,
    root: PathBuf,
    interrupt: Interrupt,
    server: Option<SharedChild>,
}

impl Stage {
    /// Makes the folder, in `parent` or where the system keeps temporary files.
    ///
    /// # Errors
    /// When it cannot be made, or signals cannot be taken over.
    pub fn set(parent: Option<&Path>) -> Result<Stage> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .context("taking over signals")?;
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix("braid-demo-");
        let folder = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        };
        let folder = folder.context("making a folder for the demo; give one with --dir")?;
        let root = folder.path().to_owned();
        Ok(Stage {
            cleanup: Cleanup::default(),
            folder: Some(folder),
            root,
            interrupt: Interrupt(interrupted),
            server: None,
        })
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The server's control socket.
    pub fn control(&self) -> PathBuf {
        self.path("control.sock")
    }

    /// The server's NBD socket.
    pub fn nbd_socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    /// # Errors
    /// When a signal came.
    pub fn go_on(&self) -> Result<()> {
        self.interrupt.go_on()
    }

    /// To be asked on other threads.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Undoes everything and removes the folder.
    ///
    /// # Errors
    /// What could not be undone.
    pub fn strike(&mut self) -> Result<()> {
        let undone = self.cleanup.undo_to(0);
        if let Some(folder) = self.folder.take() {
            folder.close().context("removing the demo's folder")?;
        }
        undone
    }

    /// Runs this program with `words`, showing the line as it would be typed and what it answers.
    ///
    /// # Errors
    /// When it fails; its own words.
    pub fn braid(&self, words: &[&str]) -> Result<()> {
        self.show(words)?;
        let text = self.run(self.program(words)?)?;
        if !text.is_empty() {
            output::line(text.trim_end())?;
        }
        Ok(())
    }

    fn show(&self, words: &[&str]) -> Result<()> {
        let root = format!("{}/", self.root.display());
        output::line(format!("$ braid {}", words.join(" ").replace(&root, "")))
    }

    fn program(&self, words: &[&str]) -> Result<Command> {
        let own = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(own);
        command.args(words).env("BRAID_CONTROL", self.control());
        Ok(command)
    }

    /// Runs another program and gives what it wrote to standard output.
    ///
    /// # Errors
    /// When it is not there, fails (its own words), takes too long, or a signal came.
    pub fn tool(&self, program: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(words);
        self.run(command)
    }

    fn run(&self, command: Command) -> Result<String> {
        run(command, || self.go_on())
    }

    /// Starts the server on `members` and waits until it listens.
    ///
    /// # Errors
    /// When it ends instead.
    pub fn serve(&mut self, members: &[&str]) -> Result<()> {
        let nbd = format!("unix:{}", self.nbd_socket().display());
        let mut words = vec!["serve"];
        words.extend(members);
        words.extend(["--nbd", &nbd]);
        self.show(&words)?;
        let mut command = self.program(&words)?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let ending = Arc::clone(&child);
        self.cleanup.push("ending the server", move || end(&ending, STOP_TIME));
        self.server = Some(Arc::clone(&child));
        let (ready, is_ready) = mpsc::channel();
        relay(out, Some(ready));
        relay(err, None);
        loop {
            match is_ready.recv_timeout(LOOK_EVERY) {
                Ok(()) => return Ok(()),
                Err(_) => self.go_on()?,
            }
            if let Some(status) = ended(&child)? {
                bail!("the server has ended with {status}");
            }
        }
    }

    /// Waits until the server has ended by itself.
    ///
    /// # Errors
    /// When it does not, or ends with an error.
    pub fn wait_for_server(&self) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let give_up = Instant::now() + STOP_TIME;
        while Instant::now() < give_up {
            self.go_on()?;
            if let Some(status) = ended(server)? {
                ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("the server was stopped and does not end")
    }

    /// Starts a program that goes on in the background until the end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn background(&mut self, mut command: Command, what: &str) -> Result<SharedChild> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = Arc::new(Mutex::new(spawn(command)?));
        let ending = Arc::clone(&child);
        self.cleanup.push(format!("ending {what}"), move || end(&ending, STOP_TIME));
        Ok(child)
    }

    /// What a failing disk does to its blocks, at once: the file is there and holds nothing.
    ///
    /// # Errors
    /// When it cannot be done.
    pub fn cut_to_nothing(&self, path: &str) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path);
        output::line(format!("$ truncate --size 0 {name}"))?;
        let file = std::fs::OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.set_len(0)).with_context(|| format!("cutting {path} to nothing"))
    }
}

fn spawn(mut command: Command) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.process_group(0).stdin(Stdio::null());
    command.spawn().with_context(|| format!("starting {program}"))
}

/// Runs a program to its end and gives its standard output; `go_on` is asked meanwhile.
pub fn run(mut command: Command, go_on: impl Fn() -> Result<()>) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command)?;
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let child = Arc::new(Mutex::new(child));
    let give_up = Instant::now() + TOOL_TIME;
    let status = loop {
        if let Some(status) = ended(&child)? {
            break status;
        }
        let stop = go_on().err().or_else(|| {
            (Instant::now() > give_up)
                .then(|| anyhow::anyhow!("{program} took longer than {} s", TOOL_TIME.as_secs()))
        });
        if let Some(error) = stop {
            end(&child, Duration::from_secs(1))?;
            return Err(error);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    if !status.success() {
        bail!("{program}: {status}: {}", err.trim());
    }
    if !err.trim().is_empty() {
        tracing::debug!(program, stderr = err.trim(), "tool");
    }
    Ok(out)
}

/// The status of a child that has ended.
pub fn ended(child: &SharedChild) -> Result<Option<ExitStatus>> {
    lock(child).try_wait().context("looking at a child process")
}

fn lock(child: &SharedChild) -> std::sync::MutexGuard<'_, Child> {
    // Nothing that holds the lock can panic half-way.
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a child: SIGTERM, and after `time` SIGKILL.
fn end(child: &SharedChild, time: Duration) -> Result<()> {
    if ended(child)?.is_some() {
        return Ok(());
    }
    let pid = i32::try_from(lock(child).id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended since; then there is nothing to do.
        let _ = kill_process(pid, Signal::TERM);
    }
    let give_up = Instant::now() + time;
    while Instant::now() < give_up {
        if ended(child)?.is_some() {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let mut child = lock(child);
    child.kill().context("killing a child process")?;
    child.wait().context("waiting for a child process")?;
    Ok(())
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // A pipe that breaks gives what came before.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Shows the server's lines; says when the last one of its start has come.
fn relay(from: Option<impl Read + Send + 'static>, ready: Option<mpsc::Sender<()>>) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // When nobody reads our output the demo goes on all the same.
            let _ = output::line(format!("  serve: {line}"));
            if let Some(ready) = ready.as_ref().filter(|_| line.starts_with("control socket")) {
                // Nobody waits any more when it was told before.
                let _ = ready.send(());
            }
        }
    });
}
