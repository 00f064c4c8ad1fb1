//! This host as others see it, and members that other hosts may reach, too: those that come over a network.

use braid_array::options::{DEFAULT_HEARTBEAT_MS, Host};
use braid_device::Opener;
use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Identifies the running kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// `f_type` of NFS, SMB (two), Ceph, 9p, AFS, OCFS2 and GFS2: the kernel's linux/magic.h, and headers of those file systems.
const NETWORK_FILESYSTEMS: [u32; 8] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x7461_636f,
    0x0116_1970,
];
/// NVMe transports that are no network.
const LOCAL_NVME: [&str; 2] = ["pcie", "loop"];
/// Devices below a device-mapper or md device are looked at this deep.
const DEPTH: usize = 8;

/// Whether arrays have a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// Where a member is reached over a network.
    Auto,
    /// None does.
    Off,
    /// All do, every so many seconds.
    Seconds(u32),
}

impl FromStr for Heartbeat {
    type Err = String;

    fn from_str(text: &str) -> Result<Heartbeat, String> {
        match text {
            "auto" => Ok(Heartbeat::Auto),
            "off" | "0" => Ok(Heartbeat::Off),
            seconds => match seconds.parse() {
                Ok(seconds @ 1..=60) => Ok(Heartbeat::Seconds(seconds)),
                _ => Err("auto, off, or 1 to 60 seconds".to_string()),
            },
        }
    }
}

/// The name of this host, and what tells its kernel from others.
pub fn this() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = fs::read_to_string(BOOT_ID).ok();
    let boot = boot.and_then(|text| uuid::Uuid::parse_str(text.trim()).ok());
    Host { name, boot: boot.map(uuid::Uuid::into_bytes).unwrap_or_default() }
}

/// Milliseconds between two beats for an array of these members; `None`: it has no heartbeat.
pub fn beat_every(wanted: Heartbeat, openers: &[Arc<dyn Opener>]) -> Option<u32> {
    match wanted {
        Heartbeat::Off => None,
        Heartbeat::Seconds(seconds) => Some(seconds.saturating_mul(1000)),
        Heartbeat::Auto => {
            let remote = openers.iter().any(|opener| is_remote(Path::new(opener.name())));
            remote.then_some(DEFAULT_HEARTBEAT_MS)
        }
    }
}

/// The file or block device at `path` comes over a network, as far as the system says.
fn is_remote(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    if found.file_type().is_block_device() {
        let (major, minor) = (major(found.rdev()), minor(found.rdev()));
        let disk = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
        return disk.is_ok_and(|disk| is_remote_disk(&disk, DEPTH));
    }
    // The type of `f_type` differs between architectures; the magic numbers have 32 bits.
    let filesystem = rustix::fs::statfs(path).map(|filesystem| filesystem.f_type as u32);
    filesystem.is_ok_and(|magic| NETWORK_FILESYSTEMS.contains(&magic))
}

/// The same of a disk or partition by its folder in sysfs.
fn is_remote_disk(disk: &Path, depth: usize) -> bool {
    let names = || disk.iter().filter_map(|name| name.to_str());
    let network = |name: &str| {
        // nbd3, rbd0; the session of an iSCSI initiator, the remote port of Fibre Channel.
        let numbered = |prefix: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|nr| nr.starts_with(|first: char| first.is_ascii_digit()))
        };
        numbered("nbd") || numbered("rbd") || numbered("session") || name.starts_with("rport-")
    };
    if names().any(network) || nvme_transports(disk).iter().any(|way| !is_local_nvme(way)) {
        return true;
    }
    let Ok(below) = fs::read_dir(disk.join("slaves")) else { return false };
    let below = below.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok());
    depth > 0 && below.into_iter().any(|disk| is_remote_disk(&disk, depth - 1))
}

fn is_local_nvme(transport: &str) -> bool {
    LOCAL_NVME.contains(&transport)
}

/// The transports of the controllers behind a disk: its own, or those of its subsystem, where the kernel joins several paths.
fn nvme_transports(disk: &Path) -> Vec<String> {
    let folders: Vec<PathBuf> = disk.ancestors().take(4).map(Path::to_path_buf).collect();
    let controllers = folders.iter().filter_map(|folder| fs::read_dir(folder).ok());
    let controllers = controllers
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("nvme")));
    let controllers = controllers.map(|entry| entry.path()).chain(folders.iter().cloned());
    let transport = |folder: PathBuf| fs::read_to_string(folder.join("transport")).ok();
    controllers.filter_map(transport).map(|text| text.trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of a sysfs that has these files.
    fn disk(path: &str, files: &[(&str, &str)]) -> bool {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join(path);
        fs::create_dir_all(&disk).unwrap();
        for (name, content) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        is_remote_disk(&disk, DEPTH)
    }

    #[test]
    fn disks_that_come_over_a_network_are_told_from_others() {
        let iscsi = "devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdb";
        assert!(disk(iscsi, &[]));
        assert!(disk(
            "devices/pci0/0000:03:00.0/host1/rport-1:0-0/target1:0:0/1:0:0:0/block/sdc/sdc1",
            &[]
        ));
        assert!(disk("devices/virtual/block/nbd3", &[]));
        assert!(!disk("devices/pci0/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", &[]));
        assert!(!disk("devices/virtual/block/loop0", &[]));
        let local = [("devices/pci0/nvme/nvme0/transport", "pcie\n")];
        assert!(!disk("devices/pci0/nvme/nvme0/nvme0n1", &local));
        let fabric = [("devices/virtual/nvme-fabrics/ctl/nvme1/transport", "tcp\n")];
        assert!(disk("devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1", &fabric));
        let joined = [("devices/virtual/nvme-subsystem/nvme-subsys0/nvme2/transport", "rdma\n")];
        assert!(disk("devices/virtual/nvme-subsystem/nvme-subsys0/nvme2n1/nvme2n1p1", &joined));
    }

    #[test]
    fn what_a_mapped_device_lies_on_counts() {
        let root = tempfile::tempdir().unwrap();
        let far = root.path().join("devices/host3/session1/block/sdb");
        let mapped = root.path().join("devices/virtual/block/dm-0");
        fs::create_dir_all(&far).unwrap();
        fs::create_dir_all(mapped.join("slaves")).unwrap();
        assert!(!is_remote_disk(&mapped, DEPTH));
        std::os::unix::fs::symlink(&far, mapped.join("slaves/sdb")).unwrap();
        assert!(is_remote_disk(&mapped, DEPTH));
    }

    #[test]
    fn a_heartbeat_is_a_word_or_seconds() {
        assert_eq!("auto".parse(), Ok(Heartbeat::Auto));
        assert_eq!("off".parse(), Ok(Heartbeat::Off));
        assert_eq!("60".parse(), Ok(Heartbeat::Seconds(60)));
        for wrong in ["61", "-1", "2s", "on", ""] {
            let refused = wrong.parse::<Heartbeat>();
            assert!(refused.is_err_and(|why| why.contains("1 to 60")), "{wrong:?}");
        }
    }

    #[test]
    fn this_host_has_a_name_and_a_boot() {
        let host = this();
        assert!(!host.name.is_empty());
        assert_eq!(host, this());
        assert_ne!(host.boot, [0; 16]);
    }
}
