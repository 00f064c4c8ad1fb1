//! The process that is killed, and the commands.

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of each brick: a sparse file.
const BRICK_BYTES: u64 = 512 << 20;
/// Bricks that the volume is made of; one more is there to be added.
const BRICKS: u32 = 3;
/// Longest time for a mount, in seconds.
const MOUNT_SECONDS: u64 = 60;
/// Longest time from a kill to the end of the process, in seconds, until its mount is taken away.
const END_SECONDS: u64 = 5;
/// Longest time that something takes that goes on by itself, in seconds.
const WAIT_SECONDS: u64 = 120;

/// A volume named `pool` in a folder of its own, and its server.
pub struct Server {
    braid: PathBuf,
    folder: PathBuf,
    dir: PathBuf,
    process: Option<Child>,
    /// Options of a mount.
    pub mounted_with: Vec<&'static str>,
}

impl Server {
    /// Makes the volume and mounts it.
    pub fn create(braid: &Path, folder: &Path) -> Result<Server> {
        let dir = folder.join("mnt");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let (braid, folder) = (braid.to_path_buf(), folder.to_path_buf());
        let mut server = Server { braid, folder, dir, process: None, mounted_with: Vec::new() };
        fs::create_dir_all(server.bricks()).context("making the folder of the bricks")?;
        for number in 0..=BRICKS {
            server.make_brick(number)?;
        }
        let bricks: Vec<String> = (0..BRICKS).map(|number| server.brick(number)).collect();
        let mut words = vec!["create", "pool"];
        words.extend(bricks.iter().map(String::as_str));
        server.volume(&words)?;
        server.mount()?;
        Ok(server)
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a brick.
    pub fn brick(&self, number: u32) -> String {
        self.bricks().join(format!("b{number}")).display().to_string()
    }

    /// A place for a brick that is away.
    pub fn away(&self) -> PathBuf {
        self.folder.join("away")
    }

    /// Makes the file of a brick, with nothing in it.
    pub fn make_brick(&self, number: u32) -> Result<()> {
        let file = fs::File::create(self.brick(number)).context("making a brick")?;
        file.set_len(BRICK_BYTES).context("making a brick")
    }

    fn bricks(&self) -> PathBuf {
        self.folder.join("bricks")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.braid);
        command
            .arg("volume")
            .args(words)
            .env("BRAID_CONTROL", self.folder.join("control.sock"))
            .env("BRAID_STATE_DIR", self.folder.join("state"));
        command
    }

    fn output(&self, words: &[&str]) -> Result<Output> {
        let output = self.command(words).stdin(Stdio::null()).output();
        output.with_context(|| format!("braid volume {}", words.join(" ")))
    }

    /// Runs `braid volume …`, which must succeed.
    pub fn volume(&self, words: &[&str]) -> Result<()> {
        let output = self.output(words)?;
        ensure!(
            output.status.success(),
            "braid volume {}: {}\n{}{}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Gives commands one after the other, until one fails; it gives how many succeeded.
    pub fn give(&self, lines: &[Vec<&str>]) -> JoinHandle<Result<usize>> {
        let mut commands: Vec<Command> = lines.iter().map(|words| self.command(words)).collect();
        std::thread::spawn(move || {
            for (number, command) in commands.iter_mut().enumerate() {
                let output = command.stdin(Stdio::null()).output();
                if !output.context("giving a command")?.status.success() {
                    return Ok(number);
                }
            }
            Ok(commands.len())
        })
    }

    /// Starts the server and waits until the volume is there.
    pub fn mount(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let dir = self.dir.display().to_string();
        // The folder: which of the files in it are bricks may have changed just when the kill came.
        let bricks = self.bricks().display().to_string();
        let mut command = self.command(&["mount", "pool", &dir, &bricks, "--foreground"]);
        command.args(&self.mounted_with);
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let mut process = process.context("starting the server")?;
        let until = Instant::now() + Duration::from_secs(MOUNT_SECONDS);
        while !is_mounted(&self.dir)? {
            if let Some(status) = process.try_wait()? {
                bail!(
                    "the server ended while mounting: {status}; see {}",
                    self.folder.join("log").display()
                );
            }
            ensure!(
                Instant::now() < until,
                "the volume is not mounted after {MOUNT_SECONDS} seconds"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process = Some(process);
        Ok(())
    }

    /// Has jobs move no more than `speed` in a second, until the kill.
    pub fn slow_down(&self, speed: &str) -> Result<()> {
        self.volume(&["jobs", "pool", "--speed", speed])
    }

    /// Kills the server and takes the dead mount away. True if that was needed for the server to come to its end: its guard has
    /// not ended the mount.
    pub fn kill(&mut self) -> Result<bool> {
        let Some(mut process) = self.process.take() else {
            bail!("there is no server to be killed")
        };
        process.kill().context("killing the server")?;
        let until = Instant::now() + Duration::from_secs(END_SECONDS);
        let mut hung = false;
        while process.try_wait().context("waiting for the killed server")?.is_none() {
            ensure!(
                Instant::now() < until + Duration::from_secs(MOUNT_SECONDS),
                "the killed server does not end"
            );
            if !hung && Instant::now() > until {
                hung = true;
                take_away(&self.dir)?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        take_away(&self.dir)?;
        Ok(hung)
    }

    /// True while the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Unmounts in order.
    pub fn end(&mut self) -> Result<()> {
        self.volume(&["unmount", "pool"])?;
        if let Some(mut process) = self.process.take() {
            let status = process.wait()?;
            ensure!(status.success(), "the server ended with {status}");
        }
        Ok(())
    }

    /// Gives what `braid volume status` says.
    pub fn says(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.status()?)?)
    }

    /// Waits until `is_so` holds of what the status says.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(WAIT_SECONDS);
        loop {
            let says = self.says()?;
            if is_so(&says) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "not {what} after {WAIT_SECONDS} seconds: {says}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> Result<String> {
        let output = self.output(&["status", "pool", "--json"])?;
        ensure!(output.status.success(), "status: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// True when a job is under way, or a check.
    pub fn has_job(&self) -> Result<bool> {
        let status = self.says()?;
        let is_there = |key| status.get(key).is_some_and(|job| !job.is_null());
        Ok(is_there("job") || is_there("check"))
    }

    /// True when the volume has the brick at `path`.
    pub fn has_brick(&self, path: &str) -> Result<bool> {
        Ok(self.status()?.contains(path))
    }

    /// Waits for the job that goes on after a mount, if there is one.
    pub fn wait_job(&self) -> Result<()> {
        self.volume(&["jobs", "pool", "--wait"])
    }

    /// `braid volume check` must find nothing; one that the kill has interrupted begins anew before.
    pub fn check(&self) -> Result<()> {
        self.volume(&["jobs", "pool", "--check", "--wait"])?;
        self.volume(&["check", "pool"])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // After an error: nothing more can be done about these.
            let _ = process.kill();
            let _ = take_away(&self.dir);
            let _ = process.wait();
        }
    }
}

/// Takes a mount out of the tree and ends it, whoever uses it. Asks nothing of its server.
fn take_away(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        // Invalid: nothing is mounted there.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).context("taking a dead mount away"),
    }
}

/// Looks for the mount point among the mounts of this process.
fn is_mounted(dir: &Path) -> Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    let dir = dir.display().to_string();
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(&dir)))
}
