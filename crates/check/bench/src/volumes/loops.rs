//! Loop devices that are held to a rate, what the kernel counts for them, and a btrfs that is mounted on some.
//!
//! The devices are files in memory, which the kernel holds to a rate (`blkio.throttle` of the first version of control
//! groups). Root only.

use super::rig::{Clock, Step};
use anyhow::{Context, bail};
use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle";
/// Loop devices of a measurement.
const DEVICES: usize = 4;
/// Bytes of each.
const DEVICE: u64 = 768 << 20;

/// Runs a program to its end and gives what it says.
pub fn tool(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let doing = || format!("running {program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().with_context(doing)?;
    if !output.status.success() {
        bail!("{}: {}", doing(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device that is held to a rate; gone when it is dropped.
struct Loop {
    path: String,
    number: String,
}

impl Loop {
    fn new(file: &Path) -> anyhow::Result<Loop> {
        let made = std::fs::File::create(file).and_then(|made| made.set_len(DEVICE));
        made.with_context(|| format!("making {}", file.display()))?;
        let file = file.to_str().context("a path that is not text")?;
        let path = tool("losetup", &["--find", "--show", file])?;
        let number = std::fs::read_to_string(format!("/sys/block/{}/dev", name(&path)));
        let mut made = Loop { path, number: String::new() };
        made.number = number.context("finding the loop device's number")?.trim().to_owned();
        made.hold_to(Clock::Wall.read_rate(), Clock::Wall.write_rate())?;
        Ok(made)
    }

    fn hold_to(&self, read: u64, write: u64) -> anyhow::Result<()> {
        for (direction, rate) in [("read", read), ("write", write)] {
            let file = format!("{THROTTLE}.{direction}_bps_device");
            let line = format!("{} {rate}", self.number);
            std::fs::write(&file, line).with_context(|| format!("writing to {file}"))?;
        }
        Ok(())
    }

    /// Bytes read and written since it was made.
    fn counts(&self) -> anyhow::Result<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/sys/block/{}/stat", name(&self.path)));
        let text = text.context("reading what a loop device has done")?;
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied().map(|sectors| sectors * 512);
        field(2).zip(field(6)).context("a loop device without counts")
    }
}

fn name(path: &str) -> &str {
    path.trim_start_matches("/dev/")
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.hold_to(0, 0);
        let _ = tool("losetup", &["--detach", &self.path]);
    }
}

/// Loop devices over files of a folder, all zero.
pub struct Devices {
    loops: Vec<Loop>,
    /// Holds the files behind them.
    pub folder: tempfile::TempDir,
}

impl Devices {
    /// They are held to the rates of a modelled SSD on the wall clock.
    pub fn new() -> anyhow::Result<Devices> {
        let folder = tempfile::tempdir_in("/dev/shm").context("making a folder in memory")?;
        let loops = (0..DEVICES).map(|nr| Loop::new(&folder.path().join(format!("device{nr}"))));
        Ok(Devices { loops: loops.collect::<anyhow::Result<_>>()?, folder })
    }

    /// The path of one, by its number from 0.
    pub fn path(&self, nr: usize) -> anyhow::Result<&str> {
        Ok(&self.loops.get(nr).context("no such device")?.path)
    }

    /// Measures by what the kernel counts for the devices.
    pub fn step(&self, doing: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Step> {
        let counts = || self.loops.iter().map(Loop::counts).collect::<anyhow::Result<Vec<_>>>();
        let (before, start) = (counts()?, Instant::now());
        doing()?;
        let seconds = start.elapsed().as_secs_f64();
        let (mut written, mut busiest) = (0, 0.0f64);
        for (after, before) in counts()?.iter().zip(before) {
            let (reads, writes) = (after.0 - before.0, after.1 - before.1);
            written += writes;
            busiest = busiest
                .max(reads as f64 / Clock::Wall.read_rate() as f64)
                .max(writes as f64 / Clock::Wall.write_rate() as f64);
        }
        Ok(Step { seconds, written, busiest })
    }
}

impl Devices {
    /// Garbles every `every`th block of 4096 bytes of a device that begins with one of these words, behind the kernel's back. Gives
    /// their number.
    pub fn rot(&self, nr: usize, words: &HashSet<[u8; 8]>, every: usize) -> anyhow::Result<u64> {
        let path = self.folder.path().join(format!("device{nr}"));
        let doing = || format!("garbling {}", path.display());
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let file = file.with_context(doing)?;
        let mut block = vec![0; 4096];
        let (mut met, mut garbled) = (0usize, 0);
        for at in (0..DEVICE).step_by(4096) {
            file.read_exact_at(&mut block, at).with_context(doing)?;
            if !block.first_chunk().is_some_and(|word| words.contains(word)) {
                continue;
            }
            met += 1;
            if met.is_multiple_of(every) {
                file.write_all_at(&[0x5a; 512], at + 1024).with_context(doing)?;
                garbled += 1;
            }
        }
        Ok(garbled)
    }
}

/// A mounted btrfs; gone when it is dropped.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("umount", &[&self.0.to_string_lossy()]);
    }
}
