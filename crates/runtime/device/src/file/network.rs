//! Members that come over a network, so that other hosts may reach them, too, as far as the system says.
//!
//! It knows sysfs and types of file systems, and nothing of what is done about it.

use super::sysfs;
use rustix::fs::fstatfs;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// `f_type` of file systems whose server is another machine: NFS, SMB (two), Ceph, 9p, AFS (the kernel's linux/magic.h).
pub(super) const SERVERS: [u64; 6] =
    [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997, 0x5346_414f];
/// The same of those that lie on disks which several hosts share: OCFS2, GFS2 (their own headers).
const CLUSTERS: [u64; 2] = [0x7461_636f, 0x0116_1970];
/// NVMe transports that are no network.
const LOCAL_NVME: [&str; 2] = ["pcie", "loop"];
/// Devices below a device-mapper or md device are looked at this deep.
const DEPTH: usize = 8;

/// `f_type` of the file system that the file `fd` is on; 0 when it does not say.
pub(super) fn filesystem(fd: &OwnedFd) -> u64 {
    // The type of `f_type` differs between architectures; the magic numbers have 32 bits.
    fstatfs(fd).map_or(0, |filesystem| (filesystem.f_type as u32).into())
}

/// The file or block device `fd` comes over a network.
pub(super) fn is_remote(fd: &OwnedFd, block_device: bool) -> bool {
    if !block_device {
        let filesystem = filesystem(fd);
        return SERVERS.contains(&filesystem) || CLUSTERS.contains(&filesystem);
    }
    sysfs::folder(fd).is_some_and(|disk| is_remote_disk(&disk, DEPTH))
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
    if names().any(network)
        || nvme_transports(disk).iter().any(|way| !LOCAL_NVME.contains(&way.as_str()))
    {
        return true;
    }
    let Ok(below) = fs::read_dir(disk.join("slaves")) else { return false };
    let below = below.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok());
    depth > 0 && below.into_iter().any(|disk| is_remote_disk(&disk, depth - 1))
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
}
