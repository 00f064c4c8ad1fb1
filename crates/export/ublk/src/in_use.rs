//! The users of a device that is open: mounts, swap, devices upon it, processes.
//!
//! The kernel tells only that somebody has claimed a device, and not who; so the usual places are looked through. A disk
//! that somebody has open without a claim is found by the open files of all processes, as far as this one may see them.
//! There may be many, so they are gone through for all devices in one pass, and its result serves for a while.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a pass over all processes serves.
const SERVES: Duration = Duration::from_secs(1);
/// Processes that look at each new or changed device for a moment, as the first fifteen letters of their programs' names.
const UDEV: [&str; 4] = ["(udev-worker)", "systemd-udevd", "udevd", "mdev"];

/// A file of a process that is a device of ours, or one of its partitions.
#[derive(Clone, Debug)]
struct Open {
    /// `/proc/PID/fd/N`.
    file: PathBuf,
    process: u32,
    program: String,
}

/// The last pass over all processes.
type Seen = Option<(Instant, Vec<Open>)>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct InUse(Mutex<Seen>);

impl InUse {
    /// The users of `/dev/ublkbN` and of its partitions, in words. Whoever has opened it without a claim within the last
    /// second may not be among them, unless `surely`.
    pub fn users(&self, number: u32, surely: bool) -> Vec<String> {
        let names = names(number);
        // One at a time: a pass must not meet the device that another call has opened to see whether it is claimed.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = mounts(&names);
        all.extend(swaps(&names));
        all.extend(names.iter().flat_map(|name| holders(name)));
        if all.is_empty() && is_claimed(number) {
            all.push("claimed by somebody".to_string());
        }
        // What was open may be closed by now.
        let mut open = open_files(&mut seen, surely);
        open.retain(|open| is_device(&open.file, &names));
        open.dedup_by_key(|open| open.process);
        all.extend(open.iter().map(|open| format!("process {} ({})", open.process, open.program)));
        all
    }
}

fn open_files(seen: &mut Seen, surely: bool) -> Vec<Open> {
    match seen {
        Some((when, open)) if !surely && when.elapsed() < SERVES => open.clone(),
        _ => {
            let open = pass(Path::new("/proc"));
            *seen = Some((Instant::now(), open.clone()));
            open
        }
    }
}

/// The open files of all processes that are devices of ublk's.
fn pass(processes: &Path) -> Vec<Open> {
    let all = std::fs::read_dir(processes).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let files = std::fs::read_dir(entry.path().join("fd")).ok()?;
        let files = files.flatten().map(|file| file.path());
        let mut files = files.filter(|file| device(file).is_some()).peekable();
        files.peek()?;
        let program = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let program = program.trim().to_string();
        let open = |file| Open { file, process, program: program.clone() };
        (!UDEV.contains(&program.as_str())).then(|| files.map(open).collect::<Vec<Open>>())
    };
    all.filter_map(of).flatten().collect()
}

/// The name of the device that is open as `file`, if it is one of ublk's.
fn device(file: &Path) -> Option<String> {
    let path = std::fs::read_link(file).ok()?;
    let name = path.to_str()?.strip_prefix("/dev/")?;
    name.starts_with("ublkb").then(|| name.to_string())
}

fn is_device(file: &Path, names: &[String]) -> bool {
    device(file).is_some_and(|device| names.contains(&device))
}

/// The disk and its partitions.
fn names(number: u32) -> Vec<String> {
    let disk = format!("ublkb{number}");
    let within = std::fs::read_dir(format!("/sys/class/block/{disk}")).into_iter().flatten();
    let partition = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix(&disk)?.starts_with('p').then_some(name)
    };
    let mut all: Vec<String> = within.flatten().filter_map(partition).collect();
    all.insert(0, disk);
    all
}

/// As `mdadm --stop` asks: opening it for oneself alone fails.
fn is_claimed(number: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(format!("/dev/ublkb{number}"), flags, Mode::empty());
    matches!(opened, Err(Errno::BUSY))
}

fn mounts(names: &[String]) -> Vec<String> {
    let numbers: Vec<String> = names
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok())
        .map(|number| number.trim().to_string())
        .collect();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounted(&table, &numbers, names)
}

/// `table` is proc_pid_mountinfo(5): the third field is the device's number, the fifth the place, and behind a dash stand
/// kind and source. btrfs has a number of its own, so sources count too.
fn mounted(table: &str, numbers: &[String], names: &[String]) -> Vec<String> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (number, place) = (fields.get(2)?, fields.get(4)?);
        let dash = fields.iter().position(|field| *field == "-")?;
        let source = fields.get(dash + 2)?.strip_prefix("/dev/").unwrap_or_default();
        let ours =
            numbers.iter().any(|ours| ours == number) || names.iter().any(|name| name == source);
        ours.then(|| format!("mounted on {place}"))
    };
    table.lines().filter_map(of).collect()
}

fn swaps(names: &[String]) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_ours = |line: &&str| {
        let device = line.split_whitespace().next().and_then(|path| path.strip_prefix("/dev/"));
        device.is_some_and(|device| names.iter().any(|name| name == device))
    };
    table.lines().filter(is_ours).map(|_| "used as swap".to_string()).collect()
}

fn holders(name: &str) -> Vec<String> {
    let all = std::fs::read_dir(format!("/sys/class/block/{name}/holders")).into_iter().flatten();
    all.flatten().map(|entry| format!("held by {}", entry.file_name().to_string_lossy())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let table = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                     30 22 259:3 / /mnt/a rw - ext4 /dev/braid/vault rw\n\
                     31 22 0:41 / /mnt/b rw - btrfs /dev/ublkb0p1 rw\n\
                     broken\n";
        let names = ["ublkb0", "ublkb0p1"].map(String::from);
        let found = mounted(table, &["259:3".to_string()], &names);
        assert_eq!(found, ["mounted on /mnt/a", "mounted on /mnt/b"]);
        assert!(mounted(table, &[], &["ublkb1".to_string()]).is_empty());
    }

    #[test]
    fn a_process_that_has_a_device_open_is_found_and_udev_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let process = |number: &str, program: &str, files: &[&str]| {
            let fds = folder.path().join(number).join("fd");
            std::fs::create_dir_all(&fds).unwrap();
            std::fs::write(folder.path().join(number).join("comm"), format!("{program}\n"))
                .unwrap();
            for (nr, file) in files.iter().enumerate() {
                std::os::unix::fs::symlink(file, fds.join(nr.to_string())).unwrap();
            }
        };
        process("7", "dd", &["/dev/null", "/dev/ublkb4", "/dev/ublkb4p1"]);
        process("8", "(udev-worker)", &["/dev/ublkb4"]);
        process("10", "cat", &["/dev/ublkc4", "/home/ublkb4"]);
        process("self", "dd", &["/dev/ublkb4"]);
        let open = pass(folder.path());
        let found: Vec<(u32, &str)> =
            open.iter().map(|open| (open.process, open.program.as_str())).collect();
        assert_eq!(found, [(7, "dd"), (7, "dd")]);
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
            open.iter().filter(|open| is_device(&open.file, &names)).count()
        };
        assert_eq!((of(&["ublkb4"]), of(&["ublkb4", "ublkb4p1"]), of(&["ublkb40"])), (1, 2, 0));
    }
}
