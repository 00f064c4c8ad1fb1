//! How much memory there is, and whether it is short: of the machine, and of the control group (version 2)
//! that this process is in.
//!
//! Owns what /proc/meminfo and the files of the control group mean. What cannot be read is no limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Short: less than this part of the machine's memory is available, or of the group's is left.
const SHORT_PERCENT: u64 = 5;

/// Where the kernel says it.
#[derive(Clone, Debug)]
pub struct Memory {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { proc: PathBuf::from("/proc"), cgroup: PathBuf::from("/sys/fs/cgroup") }
    }
}

impl Memory {
    /// What caches may take in all, in bytes: half of what this process can have.
    pub fn for_caches(&self) -> u64 {
        let machine = self.meminfo("MemTotal:").unwrap_or(u64::MAX);
        let groups = self.groups();
        let group = groups.iter().filter_map(|group| number(&group.join("memory.max"))).min();
        machine.min(group.unwrap_or(u64::MAX)) / 2
    }

    /// Others need the memory that caches take.
    pub fn is_short(&self) -> bool {
        let machine = match (self.meminfo("MemTotal:"), self.meminfo("MemAvailable:")) {
            (Some(total), Some(available)) => is_short(total, available),
            _ => false,
        };
        machine || self.groups().iter().any(|group| group_is_short(group))
    }

    /// A field of /proc/meminfo, in bytes.
    fn meminfo(&self, field: &str) -> Option<u64> {
        value(&fs::read_to_string(self.proc.join("meminfo")).ok()?, field)?.checked_mul(1024)
    }

    /// The control group of this process and those around it: each may have a limit.
    fn groups(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.proc.join("self/cgroup")).unwrap_or_default();
        let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
            return Vec::new();
        };
        let own = self.cgroup.join(own);
        own.ancestors()
            .take_while(|at| at.starts_with(&self.cgroup))
            .map(Path::to_path_buf)
            .collect()
    }
}

fn is_short(total: u64, left: u64) -> bool {
    u128::from(left) * 100 < u128::from(total) * u128::from(SHORT_PERCENT)
}

fn group_is_short(group: &Path) -> bool {
    let (Some(max), Some(current)) =
        (number(&group.join("memory.max")), number(&group.join("memory.current")))
    else {
        return false;
    };
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Pages of files count as used, and are given back by the kernel before anything is short.
    let files = ["inactive_file", "active_file"].iter().filter_map(|field| value(&stat, field));
    let used = current.saturating_sub(files.fold(0, u64::saturating_add));
    is_short(max, max.saturating_sub(used))
}

/// A file with one number; `None` also for "max".
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a word at the beginning of a line.
fn value(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine of 1000 MiB, with these available, and this process in the group a/b.
    fn machine(available: u64) -> (tempfile::TempDir, Memory) {
        let folder = tempfile::tempdir().unwrap();
        let memory =
            Memory { proc: folder.path().join("proc"), cgroup: folder.path().join("cgroup") };
        fs::create_dir_all(memory.proc.join("self")).unwrap();
        fs::create_dir_all(memory.cgroup.join("a/b")).unwrap();
        let text = format!(
            "MemTotal:     {} kB\nMemFree:  1 kB\nMemAvailable:   {} kB\n",
            1000 * 1024,
            available * 1024
        );
        fs::write(memory.proc.join("meminfo"), text).unwrap();
        fs::write(memory.proc.join("self/cgroup"), "1:cpu:/x\n0::/a/b\n").unwrap();
        (folder, memory)
    }

    fn group(memory: &Memory, name: &str, max: &str, current: u64, files: u64) {
        let at = memory.cgroup.join(name);
        fs::write(at.join("memory.max"), format!("{max}\n")).unwrap();
        fs::write(at.join("memory.current"), format!("{}\n", current * MIB)).unwrap();
        let stat = format!("anon 1\ninactive_file {}\nactive_file 0\n", files * MIB);
        fs::write(at.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn caches_may_take_half_of_the_tightest_limit() {
        let (_folder, memory) = machine(500);
        assert_eq!(memory.for_caches(), 500 * MIB);
        group(&memory, "a/b", "max", 10, 0);
        assert_eq!(memory.for_caches(), 500 * MIB);
        group(&memory, "a", &(100 * MIB).to_string(), 10, 0);
        assert_eq!(memory.for_caches(), 50 * MIB);
    }

    #[test]
    fn memory_is_short_when_the_machine_or_a_group_around_has_little_left() {
        assert!(!machine(50).1.is_short());
        assert!(machine(49).1.is_short());
        let (_folder, memory) = machine(500);
        group(&memory, "a", &(100 * MIB).to_string(), 95, 0);
        assert!(!memory.is_short());
        group(&memory, "a", &(100 * MIB).to_string(), 96, 0);
        assert!(memory.is_short());
        // Pages of files are not missing to anybody.
        group(&memory, "a", &(100 * MIB).to_string(), 100, 20);
        assert!(!memory.is_short());
    }

    #[test]
    fn where_nothing_is_known_nothing_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().to_path_buf();
        let memory = Memory { proc: nowhere.clone(), cgroup: nowhere.clone() };
        assert!(!memory.is_short() && memory.for_caches() > 1 << 40);
        fs::write(nowhere.join("meminfo"), "MemTotal: many\nMemAvailable:\n\n").unwrap();
        assert!(!memory.is_short());
    }
}
