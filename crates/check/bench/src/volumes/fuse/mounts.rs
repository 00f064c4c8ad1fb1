//! What is mounted to be measured, and taken down again: servers of FUSE as children of this process, ext4 on a loop
//! device.

use super::servers::FILE;
use super::way::{Switched, Way};
use crate::programs::{braid, installed, processor_seconds, tool};
use crate::tables::Missing;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that is mounted; gone when it is dropped.
pub struct Mounted {
    /// Its name in tables.
    pub name: &'static str,
    /// Where it is.
    pub dir: PathBuf,
    /// The file in it that fio works on.
    pub file: PathBuf,
    server: Option<Server>,
    /// To be unmounted from here.
    unmount: Option<PathBuf>,
}

struct Server {
    child: Child,
    /// Its end is the server's.
    stdin: Option<ChildStdin>,
}

impl Mounted {
    /// A volume on `brick`, stripes of 128 KiB, in a folder of its own in `folder`, called `name`; its requests come
    /// that `way`.
    ///
    /// # Errors
    /// What the program says.
    pub fn volume(
        folder: &Path,
        name: &'static str,
        brick: &str,
        way: Way,
    ) -> anyhow::Result<Mounted> {
        let folder = new_dir(folder, name)?;
        let dir = new_dir(&folder, "mounted")?;
        let mut braid = Command::new(braid()?);
        braid.args(["volume", "mount", "bench"]).arg(&dir).args(["--create", "--foreground"]);
        braid.arg("--control").arg(folder.join("control.sock"));
        braid.arg("--state-dir").arg(folder.join("state")).arg(brick);
        let _switched = Switched::to(way)?;
        Mounted::served(name, dir, braid)
    }

    /// A file in memory that fuser alone answers.
    ///
    /// # Errors
    /// What the server says.
    pub fn memory_file(folder: &Path, size: u64) -> anyhow::Result<Mounted> {
        let dir = new_dir(folder, "memory-file")?;
        let mut own = Command::new(std::env::current_exe().context("finding this program")?);
        own.args(["mount", "memory"]).arg(&dir).arg(size.to_string());
        Mounted::served("bare file", dir, own)
    }

    /// `below` passed through.
    ///
    /// # Errors
    /// What the server says.
    pub fn passthrough(folder: &Path, below: &Path) -> anyhow::Result<Mounted> {
        let dir = new_dir(folder, "passthrough")?;
        let mut own = Command::new(std::env::current_exe().context("finding this program")?);
        own.args(["mount", "through"]).arg(&dir).arg(below);
        Mounted::served("passthrough", dir, own)
    }

    /// ext4, made on a device.
    ///
    /// # Errors
    /// What the programs say.
    pub fn ext4(folder: &Path, device: &Loop) -> anyhow::Result<Mounted> {
        let dir = new_dir(folder, "ext4")?;
        let text = dir.to_str().context("a path that is not text")?;
        // Nothing is left to be done in the background while it is measured.
        let now = "lazy_itable_init=0,lazy_journal_init=0";
        tool("mkfs.ext4", &["-q", "-F", "-E", now, &device.path])?;
        tool("mount", &["-t", "ext4", &device.path, text])?;
        let file = dir.join(FILE);
        Ok(Mounted { name: "ext4", unmount: Some(dir.clone()), dir, file, server: None })
    }

    /// A directory of one that is mounted, which is not taken down with it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn directory(&self, name: &str) -> anyhow::Result<Mounted> {
        let dir = new_dir(&self.dir, name)?;
        let file = dir.join(FILE);
        Ok(Mounted { name: self.name, dir, file, server: None, unmount: None })
    }

    fn served(name: &'static str, dir: PathBuf, mut server: Command) -> anyhow::Result<Mounted> {
        let doing = || format!("starting the server of {name}");
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = server.spawn().with_context(doing)?;
        let stdin = child.stdin.take();
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).with_context(doing)?;
        }
        if said.is_empty() {
            let mut why = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut why);
            }
            let _ = child.wait();
            bail!("{}: {}", doing(), why.trim());
        }
        let (file, unmount) = (dir.join(FILE), Some(dir.clone()));
        Ok(Mounted { name, dir, file, server: Some(Server { child, stdin }), unmount })
    }

    /// Processor time of the server since it started; `None` where the kernel is alone.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn processor_seconds(&self) -> anyhow::Result<Option<f64>> {
        let Some(server) = &self.server else { return Ok(None) };
        processor_seconds(self.name, &server.child).map(Some)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(dir) = &self.unmount {
            let _ = tool("umount", &[&dir.to_string_lossy()]);
        }
        let Some(mut server) = self.server.take() else { return };
        drop(server.stdin.take());
        let id = rustix::process::Pid::from_child(&server.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let since = std::time::Instant::now();
        while matches!(server.child.try_wait(), Ok(None)) {
            if since.elapsed() > PATIENCE {
                let _ = server.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn new_dir(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let dir = folder.join(name);
    std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

/// A loop device over a file of `size` bytes; gone when it is dropped.
pub struct Loop {
    /// The device.
    pub path: String,
}

impl Loop {
    /// Over a new file.
    ///
    /// # Errors
    /// When there are no loop devices, or none is free.
    pub fn new(folder: &Path, name: &str, size: u64) -> anyhow::Result<Loop> {
        let path = folder.join(name);
        let made = std::fs::File::create(&path).and_then(|made| made.set_len(size));
        made.with_context(|| format!("making {}", path.display()))?;
        let file = path.to_str().context("a path that is not text")?;
        let path = tool("losetup", &["--find", "--show", file])
            .map_err(|error| Missing(format!("no loop device: {error:#}")))?;
        Ok(Loop { path })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tool("losetup", &["--detach", &self.path]);
    }
}

/// Why nothing can be mounted here, or that a program is not there.
pub fn missing(programs: &[&str]) -> Result<(), Missing> {
    if !rustix::process::geteuid().is_root() {
        return Err(Missing("mounting and loop devices are root's".to_owned()));
    }
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = fuse {
        return Err(Missing(format!("opening /dev/fuse: {error}")));
    }
    installed(programs)?;
    braid().map(|_| ())
}
