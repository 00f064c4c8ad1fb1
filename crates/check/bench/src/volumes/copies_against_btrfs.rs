//! Files with two copies, rot, a device that is replaced, and snapshots: a volume and btrfs in turn on the same loop devices,
//! slowed down alike. Root only.

use super::loops::{Devices, Mounted, tool};
use super::rig::{Clock, Medium, REQUEST, Rig, Step, first_words, payload_bytes};
use super::verdict::{measured, verdict};
use crate::tables::{Effort, Row, Table};
use anyhow::{Context, bail};
use braid_load::{Report, Spread, megabytes};
use braid_volume::NewJob;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Of the blocks of the file on one device every so many are garbled.
const ROT_EVERY: usize = 64;
/// Empty files in folders, besides the one large file.
const FILES: u64 = 20_000;
/// A block of either, in bytes.
const BLOCK: u64 = 4096;

/// A step and the bytes that its rate is of; 0: its time is told.
type Steps = Vec<(&'static str, u64, Step)>;

fn braid(size: u64) -> anyhow::Result<Steps> {
    let devices = Devices::new()?;
    let path = |nr: usize| anyhow::Ok(Medium::Path(PathBuf::from(devices.path(nr)?)));
    let mut rig = Rig::with_copies(Clock::Wall, vec![path(0)?, path(1)?], size, 2)?;
    let mut steps = Vec::new();
    steps.push(("write", size, devices.step(|| rig.write().map(drop))?));
    steps.push(("read", size, devices.step(|| rig.read().map(drop))?));
    let garbled = devices.rot(0, &first_words(), ROT_EVERY)?;
    let mut mended = 0;
    let step = devices.step(|| {
        mended = rig.scrub()?;
        Ok(())
    })?;
    if garbled == 0 || mended != garbled * BLOCK {
        bail!("a scrub mended {mended} bytes where {garbled} blocks had rotten");
    }
    steps.push(("scrub that mends rot", size * 2, step));
    rig.verify()?;
    let step = devices.step(|| {
        rig.add_in_place_of(path(2)?, false, Some(0))?;
        rig.job(NewJob::Remove { brick: 0 }).map(drop)
    })?;
    steps.push(("replace a device", size, step));
    rig.verify()?;
    rig.make_tree(FILES)?;
    steps.push(("snapshot of the tree", 0, devices.step(|| rig.snapshot("one"))?));
    steps.push(("write after it", size, devices.step(|| rig.write().map(drop))?));
    steps.push(("write again", size, devices.step(|| rig.write().map(drop))?));
    rig.verify()?;
    rig.end()?;
    Ok(steps)
}

/// Writes the file, as a volume's has it, and makes it durable.
fn write(path: &Path, size: u64) -> anyhow::Result<()> {
    let doing = || format!("writing {}", path.display());
    let mut file = std::fs::File::options().create(true).truncate(false).write(true).open(path);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: {error}", doing()))?;
    for nr in 0..size / REQUEST {
        file.write_all(&payload_bytes(nr)).with_context(doing)?;
    }
    file.sync_all().with_context(doing)
}

/// Reads the file past what the kernel has of it in memory: it is mounted anew.
fn read(path: &Path, compare: bool) -> anyhow::Result<()> {
    let doing = || format!("reading {}", path.display());
    let mut file = std::fs::File::open(path).with_context(doing)?;
    let mut buf = vec![0; REQUEST as usize];
    for nr in 0u64.. {
        match std::io::Read::read_exact(&mut file, &mut buf) {
            Ok(()) if compare && buf != payload_bytes(nr) => bail!("{}: it differs", doing()),
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error).with_context(doing),
        }
    }
    Ok(())
}

fn btrfs(size: u64) -> anyhow::Result<Steps> {
    let devices = Devices::new()?;
    let (first, second) = (devices.path(0)?, devices.path(1)?);
    tool("mkfs.btrfs", &["-q", "-f", "-m", "raid1", "-d", "raid1", first, second])?;
    let place = devices.folder.path().join("mount");
    std::fs::create_dir(&place).context("making a mount point")?;
    let dir = place.to_str().context("a path that is not text")?;
    let mount = |device: &str| -> anyhow::Result<Mounted> {
        tool("btrfs", &["device", "scan"])?;
        tool("mount", &["-t", "btrfs", device, dir])?;
        Ok(Mounted(place.clone()))
    };
    let sync = || tool("sync", &["--file-system", dir]).map(drop);
    let path = place.join("file");
    let mut steps = Vec::new();
    let mounted = mount(first)?;
    steps.push(("write", size, devices.step(|| write(&path, size))?));
    drop(mounted);
    let mounted = mount(first)?;
    steps.push(("read", size, devices.step(|| read(&path, false))?));
    drop(mounted);
    let garbled = devices.rot(0, &first_words(), ROT_EVERY)?;
    let mounted = mount(first)?;
    let mut said = String::new();
    let step = devices.step(|| {
        said = tool("btrfs", &["scrub", "start", "-B", dir])?;
        Ok(())
    });
    steps.push(("scrub that mends rot", size * 2, step?));
    let mended = said.lines().find_map(|line| line.trim().strip_prefix("Corrected:"));
    let mended: u64 = mended.unwrap_or("0").trim().parse().context("what a scrub has mended")?;
    if garbled == 0 || mended != garbled {
        bail!("a scrub of btrfs mended {mended} where {garbled} blocks had rotten: {said}");
    }
    let third = devices.path(2)?;
    let step = devices.step(|| {
        tool("btrfs", &["replace", "start", "-B", "-f", first, third, dir])?;
        sync()
    });
    steps.push(("replace a device", size, step?));
    drop(mounted);
    let mounted = mount(second)?;
    read(&path, true)?;
    for file in 0..FILES {
        let folder = place.join(format!("d{}", file / 100 * 100));
        if file % 100 == 0 {
            std::fs::create_dir(&folder).context("making a folder")?;
        }
        std::fs::File::create(folder.join(format!("f{file}"))).context("making a file")?;
    }
    sync()?;
    let snapshot = format!("{dir}/.one");
    let step = devices.step(|| {
        tool("btrfs", &["subvolume", "snapshot", "-r", dir, &snapshot])?;
        sync()
    });
    steps.push(("snapshot of the tree", 0, step?));
    steps.push(("write after it", size, devices.step(|| write(&path, size))?));
    steps.push(("write again", size, devices.step(|| write(&path, size))?));
    drop(mounted);
    Ok(steps)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size: u64 = if effort.quick { 64 << 20 } else { 128 << 20 };
    let rounds = if effort.quick { 1 } else { 3 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(braid(size).context("a volume on loop devices")?);
        theirs.push(btrfs(size).context("btrfs on loop devices")?);
    }
    let mut rows = Vec::new();
    for (nr, (step, bytes, _)) in ours.first().context("no round")?.iter().enumerate() {
        let seconds = |all: &[Steps]| -> Vec<f64> {
            all.iter().filter_map(|steps| Some(steps.get(nr)?.2.seconds)).collect()
        };
        let (ours, theirs) = (seconds(&ours), seconds(&theirs));
        let median = |all: &[f64]| Spread::of(all.iter().copied()).median;
        let told = |all: &[f64]| match bytes {
            0 => format!("{:.1} ms", median(all) * 1e3),
            bytes => format!("{} MB/s", megabytes(*bytes as f64 / median(all))),
        };
        let faster = median(&theirs) / median(&ours).max(1e-9);
        let cells = vec![
            told(&ours),
            told(&theirs),
            format!("{faster:.2}"),
            verdict(faster >= 1.0).to_owned(),
        ];
        let all = [
            measured("braid", *bytes, ours.iter().copied()),
            measured("btrfs", *bytes, theirs.iter().copied()),
        ];
        let report = Report::of((*step).to_owned(), rounds, &all, Vec::new());
        rows.push(Row { load: (*step).to_owned(), cells, report });
    }
    Ok(Table {
        title: "Volumes: two copies, rot, a replaced device and snapshots, beside btrfs".to_owned(),
        about: format!(
            "One file of {} MiB with two copies on two loop devices over files in memory, which the kernel holds to {} MB/s of reads \
             and {} of writes each: a volume (two copies, checksums, metadata in a model of the store) and btrfs (data and metadata \
             raid1) in turn. A write ends when it is durable; a read is of one reader, of what is not in memory; a scrub reads both copies, \
             finds one of {ROT_EVERY} blocks of one device garbled and has to mend all of them; a third device replaces one (a volume: \
             `replace`; btrfs: `replace start`); a snapshot is taken of everything, with {FILES} files more; then the file is written \
             over, and once more. The time of a snapshot of btrfs has that of starting its program in it.",
            size >> 20,
            megabytes(Clock::Wall.read_rate() as f64),
            megabytes(Clock::Wall.write_rate() as f64),
        ),
        headings: vec!["step", "braid", "btrfs", "braid ÷ btrfs", "≥ 1.0"],
        rows,
        plots: Vec::new(),
    })
}
