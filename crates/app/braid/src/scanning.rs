//! The devices of this machine that belong to arrays which the configuration wants started.
//!
//! Looks at each device on a thread of its own and for so long only: one that does not answer keeps nothing else from being
//! found. Takes no lock and writes nothing.

use crate::configuration::Configuration;
use crate::configuration::domains;
use crate::discover;
use crate::members::same_device;
use crate::settings::group::SpareGroup;
use braid_format::superblock::Superblock;
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that devices get to answer, all together.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Where the kernel lists block devices.
const PARTITIONS: &str = "/proc/partitions";
/// Kinds of block devices that are no members unless a pattern names them: our own and other servers' exports, memory, media.
const NOT_ASKED: &[&str] = &["ublkb", "nbd", "sr", "fd", "zram", "ram", "md"];

/// See the module's documentation.
#[derive(Clone, Default)]
pub struct Scanner {
    /// Devices that have been asked and have not answered.
    silent: Arc<Mutex<HashSet<PathBuf>>>,
}

/// The finds of a scan.
#[derive(Debug, Default)]
pub struct Scanned {
    /// Members of arrays that are wanted.
    pub members: Vec<PathBuf>,
    /// UUIDs of those arrays.
    pub arrays: HashSet<[u8; 16]>,
    /// The spare groups that the configuration gives them.
    pub groups: BTreeMap<[u8; 16], SpareGroup>,
    /// Devices that could not be looked at, with the reason.
    pub notes: Vec<String>,
}

impl Scanner {
    /// Looks at all devices that the configuration names, but for those that `known` has. `wanted`: of a superblock, whether its
    /// array is.
    pub fn scan(
        &self,
        configuration: &Configuration,
        known: &[PathBuf],
        wanted: &dyn Fn(&Superblock) -> bool,
    ) -> Scanned {
        let candidates: Vec<PathBuf> = candidates(configuration)
            .into_iter()
            .filter(|path| !known.iter().any(|other| other == path || same_device(other, path)))
            .collect();
        let mut scanned = Scanned::default();
        let mut of_arrays: BTreeMap<[u8; 16], Vec<PathBuf>> = BTreeMap::new();
        for (path, superblock) in self.superblocks(candidates, &mut scanned.notes) {
            if !wanted(&superblock) {
                continue;
            }
            let entry = configuration.entry_of(&superblock);
            let elsewhere = entry.is_some_and(|entry| {
                !entry.devices.is_empty() && !matches_any(&path, &entry.devices)
            });
            if elsewhere {
                continue;
            }
            let uuid = superblock.set_uuid;
            if let Some(group) = entry.and_then(|entry| entry.spare_group) {
                scanned.groups.insert(uuid, group);
            }
            of_arrays.entry(uuid).or_default().push(path.clone());
            scanned.arrays.insert(uuid);
            scanned.members.push(path);
        }
        for (uuid, members) in of_arrays {
            let members: Vec<&Path> = members.iter().map(PathBuf::as_path).collect();
            if let Some(group) = domains::group_of(&configuration.domains, &members) {
                scanned.groups.entry(uuid).or_insert(group);
            }
        }
        scanned
    }

    fn silent(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // Every change is a single call.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn superblocks(
        &self,
        candidates: Vec<PathBuf>,
        notes: &mut Vec<String>,
    ) -> Vec<(PathBuf, Superblock)> {
        let (send, answers) = mpsc::channel();
        let mut asked = Vec::new();
        for path in candidates {
            // Nothing is asked twice of a device that has not answered the first time.
            if !self.silent().insert(path.clone()) {
                continue;
            }
            let (send, silent, device) = (send.clone(), self.clone(), path.clone());
            let look = move || {
                let found = discover::examine(&device);
                silent.silent().remove(&device);
                // The scan may be over.
                let _ = send.send((device, found));
            };
            match std::thread::Builder::new().name("scan".to_string()).spawn(look) {
                Ok(_) => asked.push(path),
                Err(error) => {
                    self.silent().remove(&path);
                    notes.push(format!(
                        "{}: starting a thread to look at it: {error}",
                        path.display()
                    ));
                }
            }
        }
        drop(send);
        let end = Instant::now() + ANSWER_WAIT;
        let (mut found, mut order) = (BTreeMap::new(), asked.clone());
        loop {
            match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((device, examined)) => {
                    order.retain(|path| *path != device);
                    // A damaged superblock, no superblock, or a medium that is not there: no member for a scan.
                    if let Ok(Some(superblock)) =
                        examined.map(|examined| examined.superblock.ok().flatten())
                    {
                        found.insert(device, superblock);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = ANSWER_WAIT.as_secs();
                    notes.extend(order.iter().map(|path| {
                        format!(
                            "{} has not answered for {seconds} seconds; it is left out",
                            path.display()
                        )
                    }));
                    break;
                }
            }
        }
        asked.into_iter().filter_map(|path| found.remove_entry(&path)).collect()
    }
}

/// The devices that the configuration names, each once.
fn candidates(configuration: &Configuration) -> Vec<PathBuf> {
    let of_arrays = configuration.arrays.iter().flat_map(|entry| &entry.devices);
    let mut all: Vec<PathBuf> = Vec::new();
    for word in configuration.devices.iter().chain(of_arrays) {
        let found = match word.as_str() {
            "partitions" => partitions(&std::fs::read_to_string(PARTITIONS).unwrap_or_default()),
            pattern => matching(pattern),
        };
        for path in found {
            if !all.iter().any(|known| *known == path || same_device(known, &path)) {
                all.push(path);
            }
        }
    }
    all
}

/// The files and block devices that a pattern has.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let is_device = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
    };
    let paths = glob::glob(pattern).into_iter().flatten().flatten();
    paths.filter(is_device).collect()
}

fn matches_any(path: &Path, patterns: &[String]) -> bool {
    let is = |pattern: &String| {
        matching(pattern).iter().any(|other| other == path || same_device(other, path))
    };
    patterns.iter().any(is)
}

fn partitions(table: &str) -> Vec<PathBuf> {
    let name = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let (blocks, name) = (words.next()?.parse::<u64>().ok()?, words.next()?);
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (blocks > 0 && !NOT_ASKED.contains(&kind)).then(|| Path::new("/dev").join(name))
    };
    table.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_partitions_are_looked_at_and_media_are_not() {
        let table = "major minor  #blocks  name\n\n   8        0  976762584 sda\n   8        1     524288 sda1\n\
                     \x20 11        0    1048575 sr0\n   9      127   1 md127\n   7        0          0 loop0\n\
                     \x20259        0  500107608 nvme0n1\n";
        let expected = ["/dev/sda", "/dev/sda1", "/dev/nvme0n1"].map(PathBuf::from);
        assert_eq!(partitions(table), expected);
    }

    #[test]
    fn a_device_is_a_candidate_once() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "x").unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let text = format!("[scan]\ndevices = [\"{0}/*\", \"{0}/one\"]\n", folder.path().display());
        let read = Configuration::parse(Path::new("x"), text).unwrap();
        assert_eq!(candidates(&read), [one]);
    }
}
