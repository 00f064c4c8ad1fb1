//! The packages: what is in them, that a bare system has arrays at boot by Debian's, and nothing of it after a purge; and that the
//! RPM has the same, and can be installed, upgraded and erased.

use crate::support::{MEMBER, Place};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_path_buf()
}

#[track_caller]
pub fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

/// A system with a shell and the C library, and nothing else.
pub fn bare_root(root: &Path) {
    for folder in ["bin", "var/lib/dpkg/info", "var/lib/dpkg/updates", "srv", "run", "tmp", "etc"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in ["sh", "rm", "rmdir"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let libraries = ran(Command::new("ldd").arg(env!("CARGO_BIN_EXE_braid")));
    for word in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(word.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(word, to).unwrap();
    }
}

/// As root, in the system.
pub fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command.arg(root).arg("/usr/bin/braid").args(words).stdin(Stdio::null());
    command.env_remove("BRAID_CONTROL").env_remove("BRAID_STATE_DIR");
    command
}

/// The path of a package that a script makes.
pub fn made(script: &str, place: &Place) -> String {
    let mut make = Command::new(repository().join("scripts").join(script));
    make.arg(env!("CARGO_BIN_EXE_braid")).arg(place.path("")).env("COMPRESSION", "none");
    ran(&mut make).trim().to_string()
}

#[test]
fn a_bare_system_has_arrays_at_boot_and_nothing_after_a_purge() {
    let place = Place::new();
    let package = made("make-deb", &place);
    let listed = ran(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for file in [
        "./usr/bin/braid",
        "./lib/systemd/system/braid.service",
        "./lib/systemd/system/braid.socket",
        "./lib/udev/rules.d/63-braid.rules",
        "./etc/braid/braid.toml",
        "./sbin/mount.fuse.braid",
        "./sbin/fsck.fuse.braid",
        "./usr/share/man/man8/braid-daemon.8.gz",
        "./usr/share/bash-completion/completions/braid",
        "./usr/share/doc/braid/THIRD-PARTY.gz",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{file} is not in {listed}");
    }
    let root = place.path("root");
    bare_root(&root);
    let dpkg = |words: &[&str]| {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", root.display()))
            .args(["--force-depends", "--force-not-root"]);
        ran(command.args(words).env("DPKG_MAINTSCRIPT_DEBUG", "0"));
    };
    dpkg(&["-i", &package]);
    let notices = root.join("usr/share/doc/braid/THIRD-PARTY.gz");
    let notices = ran(Command::new("zcat").arg(notices));
    for words in ["\nrustls ", "\nio-uring ", "Apache-2.0", "Permission is hereby granted"] {
        assert!(notices.contains(words), "{words} is not in the notices");
    }
    for name in ["a", "b"] {
        File::create(root.join("srv").join(name)).unwrap().set_len(MEMBER).unwrap();
    }
    ran(&mut inside(
        &root,
        &["create", "data", "-l", "1", "-n", "2", "--assume-clean", "/srv/a", "/srv/b"],
    ));
    let config = root.join("etc/braid/braid.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(ran(&mut inside(&root, &["config", "check"])).contains("no mistake"));
    let text = text.replace("devices = \"partitions\"", "devices = \"/srv/*\"");
    fs::write(&config, text.replace("auto = [\"-all\"]", "auto = \"homehost\"")).unwrap();
    for boot in ["the first boot", "the second"] {
        let mut daemon = inside(&root, &["daemon"]).stdout(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !inside(&root, &["detail", "--test", "data"]).output().unwrap().status.success() {
            assert!(Instant::now() < end, "{boot}: the array is not there");
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(daemon.wait().unwrap().success(), "{boot}");
    }
    dpkg(&["--purge", "braid"]);
    for gone in ["usr/bin/braid", "etc/braid", "lib/systemd/system/braid.service", "var/lib/braid"]
    {
        assert!(!root.join(gone).exists(), "{gone} is still there");
    }
    assert!(root.join("srv/a").exists());
}

/// The files of a package, where Debian and others have them.
fn files(listed: &str) -> BTreeSet<String> {
    let path =
        |line: &str| line.split_whitespace().last().unwrap().trim_start_matches('.').to_string();
    let mut paths: BTreeSet<String> = listed.lines().map(path).collect();
    // A list of Debian's has folders, each with a slash at its end; an RPM's has those that are its own.
    paths.retain(|path| !path.ends_with('/'));
    paths
}

#[test]
fn an_rpm_has_what_the_debian_package_has_and_can_be_installed() {
    let place = Place::new();
    let package = made("make-rpm", &place);
    let listed = files(&ran(Command::new("rpm").args(["-qp", "--list"]).arg(&package)));
    let debian = made("make-deb", &place);
    let debian = files(&ran(Command::new("dpkg-deb").arg("--contents").arg(&debian)));
    let moved = debian.iter().filter(|path| !path.ends_with("/copyright")).map(|path| {
        let path = path.replace("/vendor-completions/", "/site-functions/");
        let is_at_root = ["/lib/", "/sbin/"].iter().any(|folder| path.starts_with(folder));
        if is_at_root { format!("/usr{path}") } else { path }
    });
    let mut expected: BTreeSet<String> = moved.collect();
    expected.extend(["/etc/braid", "/usr/share/doc/braid"].map(str::to_string));
    assert_eq!(listed, expected);

    let root = place.path("root");
    bare_root(&root);
    let rpm = |words: &[&str]| {
        // Libraries are not known to its database, in a system that has no other package.
        ran(Command::new("rpm").arg("--root").arg(&root).arg("--nodeps").args(words))
    };
    rpm(&["--install", &package]);
    let version = ran(&mut inside(&root, &["--version"]));
    assert_eq!(version.trim(), concat!("braid ", env!("CARGO_PKG_VERSION")));
    assert!(ran(&mut inside(&root, &["config", "check"])).contains("no mistake"));
    assert_eq!(rpm(&["--verify", "braid"]), "");
    let config = root.join("etc/braid/braid.toml");
    let text = format!("{}# of this host\n", fs::read_to_string(&config).unwrap());
    fs::write(&config, &text).unwrap();
    rpm(&["--upgrade", "--force", &package]);
    assert_eq!(fs::read_to_string(&config).unwrap(), text, "an upgrade keeps the configuration");
    rpm(&["--erase", "braid"]);
    for gone in ["usr/bin/braid", "usr/lib/systemd/system/braid.service", "etc/braid/braid.toml"] {
        assert!(!root.join(gone).exists(), "{gone} is still there");
    }
    assert_eq!(fs::read_to_string(root.join("etc/braid/braid.toml.rpmsave")).unwrap(), text);
}

#[test]
fn a_line_of_fstab_is_a_mount_of_a_volume() {
    let helper = repository().join("packaging/mount.fuse.braid");
    let run = |words: &[&str]| {
        Command::new(&helper).args(words).env("BRAID", "/bin/echo").output().unwrap()
    };
    let said = run(&[
        "pool",
        "/srv/pool",
        "-n",
        "-o",
        "rw,_netdev,x-systemd.requires=a.service,ro",
        "-obrick=/dev/a b,nofail",
    ]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, "volume mount pool /srv/pool --read-only /dev/a b\n");
    let said = run(&["pool", "/srv/pool", "-o", "nosuid,user,exec,nodev"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, "volume mount pool /srv/pool --no-suid --no-dev\n");
    let refused = run(&["pool", "/srv/pool", "-o", "compress=zstd"]);
    assert!(
        !refused.status.success()
            && String::from_utf8_lossy(&refused.stderr).contains("compress=zstd")
    );
}

/// The codes of fsck(8), of what `volume check` says and ends with.
#[test]
fn the_helper_of_fsck_ends_as_fsck_does() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (helper, program) = (repository().join("packaging/fsck.fuse.braid"), place.path("braid"));
    let run = |said: &str, code: u32, words: &[&str]| {
        let script = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >&2\necho '{said}'\nexit {code}\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let ran = Command::new(&helper).args(words).env("BRAID", &program).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        (ran.status.code().unwrap(), String::from_utf8(ran.stderr).unwrap(), said)
    };
    let report = |found: u32, repaired: u32, lost: &str| {
        format!(
            r#"{{"name":"pool","files":2,"problems":[],"found":{found},"repaired":{repaired},"leaked":0,"lost":{lost}}}"#
        )
    };
    let (code, asked, said) = run(&report(0, 0, "[]"), 0, &["-a", "-C0", "pool"]);
    assert_eq!(said, "volume pool: found 0 problems, corrected 0\n");
    assert_eq!((code, &*asked), (0, "volume check pool --offline --repair --json\n"));
    assert_eq!(run(&report(3, 3, "[]"), 0, &["pool"]).0, 1);
    assert_eq!(run(&report(3, 2, "[]"), 1, &["pool"]).0, 4);
    let lost =
        r#"[{"file":"/a b","ranges":[[0,4096],[8192,4096]]},{"file":"/c","ranges":[[0,1]]}]"#;
    let and_more = format!(r#"{lost},"scrub":false,"rotten":[{{"file":"/d","ranges":[[0,1]]}}]"#);
    for lost in [lost, &and_more] {
        let (code, _, said) = run(&report(0, 0, lost), 1, &["pool"]);
        assert_eq!(code, 4);
        for part in ["lost: parts of /a b\n", "lost: parts of /c\n", "parts of 2 files are lost"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("/d"), "{said}");
    }
    let (code, asked, _) = run(&report(1, 0, "[]"), 1, &["-n", "pool"]);
    assert_eq!((code, &*asked), (4, "volume check pool --offline --json\n"));
    assert_eq!(run("", 2, &["pool"]).0, 8);
    assert_eq!(run("", 0, &["-x", "pool"]).0, 16);
}
