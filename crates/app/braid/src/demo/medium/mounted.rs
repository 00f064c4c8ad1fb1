//! An ext4 on the array, through programs that are not ours: nbdfuse makes a file of the export,
//! losetup a block device of the file.

use crate::demo::stage::{Stage, ended, run};
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Programs that it takes.
const TOOLS: [&str; 7] =
    ["nbdfuse", "fusermount3", "losetup", "blockdev", "mkfs.ext4", "mount", "umount"];
/// What nbdfuse gets to bring the file up.
const FUSE_TIME: Duration = Duration::from_secs(10);

/// See the module's documentation.
pub struct Mounted {
    folder: PathBuf,
    device: String,
    /// Steps of the clean-up that were there before.
    before: usize,
}

/// Why it cannot work on this machine; `None`: it may.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting takes root".to_string());
    }
    for node in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(node) {
            return Some(format!("{node}: {error}"));
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there =
        |tool: &&&str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing: Vec<&str> = TOOLS.iter().filter(|tool| !there(tool)).copied().collect();
    (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
}

/// Runs a tool of the clean-up, interrupted or not.
fn undo(program: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words);
    run(command, || Ok(()))
}

impl Mounted {
    /// Makes and mounts the file system on the export `uri`.
    ///
    /// # Errors
    /// The first tool that fails, in its own words.
    pub fn open(stage: &mut Stage, uri: &str) -> Result<Mounted> {
        let before = stage.cleanup.len();
        let file = fuse(stage, uri)?;
        let device = attach(stage, &file)?;
        output::line(format!("$ mkfs.ext4 {device}; mount {device} mnt"))?;
        stage.tool("mkfs.ext4", &["-q", "-F", "-m", "0", &device])?;
        let folder = stage.path("mnt");
        std::fs::create_dir(&folder).context("making the mount point")?;
        let mounted = Mounted { folder, device, before };
        let place = mounted.folder.display().to_string();
        stage.cleanup.push("unmounting the file system", move || {
            let still = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            if !still.lines().any(|line| line.split(' ').nth(1) == Some(place.as_str())) {
                return Ok(());
            }
            if undo("umount", &[&place]).is_err() {
                undo("umount", &["--lazy", &place])?;
            }
            Ok(())
        });
        mounted.mount(stage)?;
        Ok(mounted)
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn mount(&self, stage: &Stage) -> Result<()> {
        let place = self.folder.display().to_string();
        stage.tool("mount", &["-t", "ext4", "-o", "noatime", &self.device, &place])?;
        Ok(())
    }

    /// Unmounts and mounts it again, so that nothing is cached; the loop device passes the page cache by.
    ///
    /// # Errors
    /// When it is busy, or does not mount again.
    pub fn remount(&self, stage: &Stage) -> Result<()> {
        stage.tool("umount", &[&self.folder.display().to_string()])?;
        stage.tool("blockdev", &["--flushbufs", &self.device])?;
        self.mount(stage)
    }

    /// Unmounts it and ends everything below.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn close(self, stage: &mut Stage) -> Result<()> {
        stage.tool("umount", &[&self.folder.display().to_string()])?;
        stage.cleanup.undo_to(self.before)
    }
}

/// The export as a file.
fn fuse(stage: &mut Stage, uri: &str) -> Result<PathBuf> {
    let folder = stage.path("fuse");
    std::fs::create_dir(&folder).context("making the folder for nbdfuse")?;
    let place = folder.display().to_string();
    output::line("$ nbdfuse fuse nbd+unix:///vault?socket=nbd.sock")?;
    let mut command = Command::new("nbdfuse");
    command.args([&place, uri]);
    let child = stage.background(command, "nbdfuse")?;
    stage.cleanup.push("unmounting the FUSE file", move || {
        // nbdfuse unmounts by itself when it ends; this is for a file that is still in use then.
        undo("fusermount3", &["-u", "-z", &place]).map(drop).or(Ok(()))
    });
    let file = folder.join("nbd");
    let give_up = Instant::now() + FUSE_TIME;
    while !file.exists() {
        stage.go_on()?;
        if let Some(status) = ended(&child)? {
            bail!("nbdfuse ended with {status}");
        }
        if Instant::now() > give_up {
            bail!("nbdfuse brought up no file in {} s", FUSE_TIME.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(file)
}

/// A loop device on the file.
fn attach(stage: &mut Stage, file: &Path) -> Result<String> {
    let file = file.display().to_string();
    output::line("$ losetup --find --show --direct-io=on fuse/nbd")?;
    let direct = stage.tool("losetup", &["--find", "--show", "--direct-io=on", &file]);
    let shown = match direct {
        Ok(shown) => shown,
        Err(error) => {
            output::line(format!("without direct I/O, because: {error:#}"))?;
            stage.tool("losetup", &["--find", "--show", &file])?
        }
    };
    let device = shown.trim().to_string();
    let undone = device.clone();
    stage.cleanup.push(format!("detaching {device}"), move || {
        undo("losetup", &["--detach", &undone]).map(drop)
    });
    Ok(device)
}
