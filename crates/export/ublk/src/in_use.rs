//! Who has a device open: mounts, swap, devices upon it, processes.
//!
//! The kernel tells only that somebody has claimed a device, and not who; so the usual places are looked through. A disk
//! that somebody has open without a claim is found by the open files of all processes, as far as this one may see them.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// The users of `/dev/ublkbN` and of its partitions, in words.
pub fn users(number: u32) -> Vec<String> {
    let names = names(number);
    let mut all: Vec<String> = Vec::new();
    let mut claims = mounts(&names);
    claims.extend(swaps(&names));
    claims.extend(names.iter().flat_map(|name| holders(name)));
    if claims.is_empty() && is_claimed(number) {
        claims.push("claimed by somebody".to_string());
    }
    all.append(&mut claims);
    all.extend(processes(&names));
    all
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

fn processes(names: &[String]) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let files = std::fs::read_dir(entry.path().join("fd")).ok()?;
        let has = files.flatten().any(|file| is_device(&file.path(), names));
        let name = || std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        has.then(|| format!("process {number} ({})", name().trim()))
    };
    all.filter_map(of).collect()
}

fn is_device(file: &Path, names: &[String]) -> bool {
    let Ok(path) = std::fs::read_link(file) else { return false };
    let device = path.to_str().and_then(|path| path.strip_prefix("/dev/"));
    device.is_some_and(|device| names.iter().any(|name| name == device))
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
    fn a_process_that_has_a_file_open_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("3");
        std::os::unix::fs::symlink("/dev/ublkb4", &link).unwrap();
        assert!(is_device(&link, &["ublkb4".to_string()]));
        assert!(!is_device(&link, &["ublkb".to_string(), "ublkb40".to_string()]));
        assert_eq!(processes(&["null-of-no-process".to_string()]), Vec::<String>::new());
    }
}
