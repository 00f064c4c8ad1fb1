//! Mounting and unmounting: by us, by others, while busy, where it is not possible, and after the server has died.

use crate::support::{cannot_mount, mounted, open};
use braid_fuse::{EndedBy, Mount, MountError, MountOptions, UnmountError};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than anything here takes: what is waited for comes, or the test fails.
pub const LONG: Duration = Duration::from_secs(60);

/// True if an error says that nobody serves a mount any more, or that the request came just before the kernel knew:
/// it was aborted, or the ring that it was to come by was going.
pub fn is_gone(code: Option<i32>) -> bool {
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    gone.iter().any(|error| code == Some(error.raw_os_error()))
}

fn start(shards: &braid_shard::threads::Shards, dir: &Path) -> Result<Mount, MountError> {
    let remote = shards.remotes()[0].clone();
    Mount::start(MountOptions::new(dir, "test"), remote, open, |_| {})
}

#[test]
fn a_busy_mount_stays_and_can_be_unmounted_later() {
    let Some(mut m) = mounted() else { return };
    let file = File::create(m.path("f")).unwrap();
    let (error, mount) = m.mount.take().unwrap().unmount().expect_err("it is in use");
    assert!(matches!(error, UnmountError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    let mount = mount.expect("it is given back");
    fs::write(m.path("g"), "still works").unwrap();
    drop(file);
    mount.unmount().map_err(|(error, _)| error).unwrap();
    assert!(!m.path("g").exists());
    let ended = m.ended.recv_timeout(LONG).unwrap();
    assert!(matches!(ended.by, EndedBy::Us) && ended.durable.is_ok(), "{ended:?}");
    assert_eq!(m.look(|fs| fs.syncs.get()), 1, "synced once, at the end");
    assert_eq!(m.look(|fs| fs.counts()), (3, 0), "the kernel holds nothing any more");
}

#[test]
fn a_lazy_unmount_lets_its_last_user_finish() {
    let Some(mut m) = mounted() else { return };
    fs::write(m.path("f"), "content").unwrap();
    let file = File::open(m.path("f")).unwrap();
    m.mount.take().unwrap().unmount_lazily().map_err(|(error, _)| error).unwrap();
    assert!(!m.path("f").exists(), "it is gone from the tree");
    assert_eq!(std::io::read_to_string(&file).unwrap(), "content");
    assert!(m.ended.try_recv().is_err(), "and in use");
    drop(file);
    assert!(matches!(m.ended.recv_timeout(LONG).unwrap().by, EndedBy::Us));
    assert_eq!(m.look(|fs| fs.counts().1), 0);
}

#[test]
fn an_unmount_from_outside_is_noticed() {
    let Some(mut m) = mounted() else { return };
    fs::write(m.path("f"), "x").unwrap();
    assert!(Command::new("umount").arg(m.dir()).status().unwrap().success());
    let ended = m.ended.recv_timeout(LONG).unwrap();
    assert!(matches!(ended.by, EndedBy::Outside) && ended.durable.is_ok(), "{ended:?}");
    // Ours then is nothing, also when another is mounted there meanwhile.
    let again = start(&m.shards, m.dir()).unwrap();
    m.mount.take().unwrap().unmount().map_err(|(error, _)| error).unwrap();
    assert!(m.path("f").exists(), "the other mount is left alone, and has the same files");
    again.unmount().map_err(|(error, _)| error).unwrap();
}

#[test]
fn a_shard_that_ends_leaves_nobody_waiting() {
    let Some(mut m) = mounted() else { return };
    fs::write(m.path("f"), "x").unwrap();
    m.shards = braid_shard::threads::start(1).unwrap();
    let ended = m.ended.recv_timeout(LONG).unwrap();
    assert!(matches!(ended.by, EndedBy::Failed(_)), "{ended:?}");
    let code = fs::metadata(m.path("new")).err().and_then(|error| error.raw_os_error());
    assert!(is_gone(code), "{code:?}");
    m.mount.take().unwrap().unmount().map_err(|(error, _)| error).unwrap();
    assert_eq!(fs::read_dir(m.dir()).unwrap().count(), 0, "nothing is mounted any more");
}

#[test]
fn the_table_of_mounts_shows_what_it_is() {
    let Some(m) = mounted() else { return };
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = m.dir().to_str().unwrap().to_owned();
    let line = table.lines().find(|line| line.contains(&dir)).expect("it is mounted");
    assert!(line.starts_with(&format!("braid:test {dir} fuse.braid rw")), "{line}");
    assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
    let device = fs::metadata(&dir).map(|m| std::os::unix::fs::MetadataExt::dev(&m)).unwrap();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    assert_eq!(ahead.unwrap().trim(), "8192");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let read_only = crate::support::mounted_with(|options| options.read_only = true);
    let Some(m) = read_only else { return };
    let code = fs::write(m.path("f"), "").err().and_then(|error| error.raw_os_error());
    assert_eq!(code, Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn places_where_nothing_can_be_mounted_are_named() {
    let Some(m) = mounted() else { return };
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("file"), "").unwrap();
    let at = |dir: &Path| start(&m.shards, dir).err().expect("refused").to_string();
    assert!(at(m.dir()).contains("braid:test is mounted there"), "{}", at(m.dir()));
    assert!(at(&other.path().join("file")).contains("not a directory"));
    assert!(at(&other.path().join("none")).contains("mkdir"));
    for change in [
        (|options: &mut MountOptions| options.max_write = 5000) as fn(&mut MountOptions),
        |options| options.name = "a\nb".to_owned(),
    ] {
        let mut options = MountOptions::new(other.path(), "test");
        change(&mut options);
        let mount = Mount::start(options, m.shards.remotes()[0].clone(), open, |_| {});
        assert!(matches!(mount, Err(MountError::Option { .. })));
    }
}

/// Not a test of its own: the server that [`a_dead_server_leaves_a_mount_that_the_next_one_cleans_up`] kills.
#[test]
fn server_to_be_killed() {
    let Some(dir) = std::env::var_os("BRAID_FUSE_TEST_SERVE") else { return };
    let shards = braid_shard::threads::start(1).unwrap();
    let _mount = start(&shards, Path::new(&dir)).unwrap();
    println!("mounted");
    // Until it is killed, or whoever started it is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_dead_server_leaves_a_mount_that_the_next_one_cleans_up() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::server_to_be_killed", "--nocapture"])
        .env("BRAID_FUSE_TEST_SERVE", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(server.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap().contains("mounted")));
    fs::write(dir.path().join("f"), "x").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let code = fs::metadata(dir.path().join("f")).err().and_then(|error| error.raw_os_error());
    assert!(is_gone(code), "{code:?}");
    let shards = braid_shard::threads::start(1).unwrap();
    let mount = start(&shards, dir.path()).unwrap();
    fs::write(dir.path().join("g"), "x").unwrap();
    mount.unmount().map_err(|(error, _)| error).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing of either is left");
}
