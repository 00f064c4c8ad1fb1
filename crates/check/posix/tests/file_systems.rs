//! The suites against Linux's own file systems: a case that fails there is wrong, or says in `case::known` why.
//!
//! Each test mounts a file system of its own on a file by a loop device; without the right to do so it says that it
//! did not run. tmpfs needs none.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_braid-posix");

/// A file system that is there while this value is.
struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    /// Makes a file system of `bytes` with `mkfs` and its options and mounts it; none where that is not allowed here.
    fn new(mkfs: &[&str], bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        std::fs::create_dir(dir.path().join("mount")).unwrap();
        let made = run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image))?;
        assert!(made.status.success(), "{}", said(&made));
        let this = Self { dir };
        let mounted = run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(this.path()))?;
        if !mounted.status.success() {
            eprintln!("not run: {}", said(&mounted));
            return None;
        }
        Some(this)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(self.path()));
    }
}

fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("not run: {command:?}: {error}");
            None
        }
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs the program with these words and fails with what it said unless all went as it should.
fn passes(words: &[&str], dir: &Path) -> String {
    let output = run(Command::new(PROGRAM).args(words).arg("--dir").arg(dir)).unwrap();
    assert!(output.status.success(), "{words:?} in {}: {}", dir.display(), said(&output));
    assert_eq!(std::fs::read_dir(dir).unwrap().filter(is_ours).count(), 0, "leftovers in {dir:?}");
    said(&output)
}

fn is_ours(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("braid-posix"))
}

#[test]
fn tmpfs_passes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    // Below it cases act as other users.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    passes(&[], dir.path());
}

#[test]
fn ext4_passes() {
    let Some(mounted) = Mounted::new(&["mkfs.ext4", "-q", "-F"], 1 << 30) else { return };
    reach(&mounted);
    passes(&[], &mounted.path());
    loads_pass(&mounted.path());
}

#[test]
fn a_file_system_is_filled_and_survives() {
    let Some(mounted) = Mounted::new(&["mkfs.ext4", "-q", "-F"], 128 << 20) else { return };
    let said = passes(&["fill"], &mounted.path());
    assert!(said.contains("found intact"), "{said}");
    // The guard against the wrong disk.
    let words = ["fill", "--at-most", "1000", "--dir"];
    let output = run(Command::new(PROGRAM).args(words).arg(mounted.path())).unwrap();
    assert!(!output.status.success() && said_of_guard(&output), "{}", self::said(&output));
}

#[test]
fn a_file_system_without_room_for_names_survives() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-N", "2000"];
    let Some(mounted) = Mounted::new(&mkfs, 128 << 20) else { return };
    let (dir, image) = (mounted.path(), mounted.dir.path().join("image"));
    let between = format!("umount {0} && mount -o loop {1} {0}", dir.display(), image.display());
    let said = passes(&["names", "--between", &between], &dir);
    assert!(said.contains("all found"), "{said}");
    let words = ["names", "--at-most", "10", "--dir"];
    let output = run(Command::new(PROGRAM).args(words).arg(&dir)).unwrap();
    assert!(!output.status.success() && said_of_guard(&output), "{}", self::said(&output));
}

fn said_of_guard(output: &Output) -> bool {
    said(output).contains("--at-most")
}

fn loads_pass(dir: &Path) {
    passes(&["fsx", "--operations", "2000", "--files", "2"], dir);
    passes(&["stress", "--operations", "3000", "--threads", "2"], dir);
    let json = passes(&["tree", "--files", "2000", "--json"], dir);
    assert!(json.contains("files_per_s"), "{json}");
}

#[test]
fn xfs_passes() {
    let Some(mounted) = Mounted::new(&["mkfs.xfs", "-q", "-f"], 1 << 30) else { return };
    reach(&mounted);
    passes(&[], &mounted.path());
    loads_pass(&mounted.path());
}

/// Lets other users reach the mount point.
fn reach(mounted: &Mounted) {
    use std::os::unix::fs::PermissionsExt;
    for dir in [mounted.dir.path(), &mounted.path()] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_case_that_fails_fails_the_run() {
    // A directory that cannot be written to, and a case that does not exist.
    for words in [&["--dir", "/proc/self"][..], &["no-such-case", "--dir", "/tmp"]] {
        let output = run(Command::new(PROGRAM).args(words)).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("braid-posix: "), "{words:?}");
    }
}
