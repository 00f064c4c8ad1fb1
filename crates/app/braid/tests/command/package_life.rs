//! From the installation of the package to its upgrade, as an administrator has it: an array is made, is there after a boot, loses a
//! disk, which a mail, a webhook, a metric and an alert tell of, gets a spare, and is upgraded while clients write.

use crate::daemon::{main_process, webhook};
use crate::package::{bare_root, inside, made, ran, repository};
use crate::seeing::{metric, scrape};
use crate::support::{MEMBER, Place};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time within which a lost disk is told of.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn until(what: &str, end: Instant, mut is: impl FnMut() -> bool) {
    while !is() {
        assert!(Instant::now() < end, "{what}: it did not come to it in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A bare system, with as much of a service manager as packages ask for, and the daemon that it runs.
struct Machine {
    root: PathBuf,
    notify: UnixDatagram,
    main: Option<Pid>,
    started: Option<Child>,
}

impl Machine {
    fn new(place: &Place) -> Machine {
        let root = place.path("root");
        bare_root(&root);
        std::os::unix::fs::symlink("busybox", root.join("bin/cat")).unwrap();
        fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        // Nothing is read from it, and what is written to it nobody misses.
        fs::create_dir(root.join("dev")).unwrap();
        fs::create_dir(root.join("proc")).unwrap();
        File::create(root.join("dev/null")).unwrap();
        script(&root.join("usr/sbin/sendmail"), "cat >> /srv/mails");
        // `is-active` and `reload` are what the package asks of it when it is upgraded.
        let manager = "read pid < /run/main\ncase $1 in\nis-active) kill -0 $pid ;;\nreload) kill -HUP $pid ;;\nesac";
        script(&root.join("bin/systemctl"), manager);
        let notify = UnixDatagram::bind(root.join("run/notify")).unwrap();
        notify.set_read_timeout(Some(PATIENCE)).unwrap();
        Machine { root, notify, main: None, started: None }
    }

    fn dpkg(&self, words: &[&str]) {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.root.display()));
        command.args(["--force-depends", "--force-not-root"]).args(words);
        ran(command.env("DPKG_MAINTSCRIPT_DEBUG", "0"));
    }

    fn run(&self, line: &str) -> String {
        ran(&mut inside(&self.root, &line.split_whitespace().collect::<Vec<_>>()))
    }

    /// Waits for the process that is ready next.
    fn hear(&mut self) {
        let main = main_process(&self.notify);
        fs::write(self.root.join("run/main"), format!("{}\n", main.as_raw_nonzero())).unwrap();
        self.main = Some(main);
    }

    fn boot(&mut self) {
        // /proc is there as on any system, for the daemon alone.
        let script = "mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" /usr/bin/braid daemon";
        let mut daemon = Command::new("unshare");
        daemon.args(["--mount", "sh", "-c", script]).arg(&self.root);
        daemon.env_remove("BRAID_CONTROL").env_remove("BRAID_STATE_DIR");
        daemon.env("NOTIFY_SOCKET", "/run/notify").stdin(Stdio::null()).stdout(Stdio::null());
        self.started = Some(daemon.spawn().unwrap());
        self.hear();
    }

    /// An orderly end of whichever process it is by now.
    fn shut_down(&mut self) {
        let main = self.main.take().unwrap();
        kill_process(main, Signal::TERM).unwrap();
        let status = format!("/proc/{}/status", main.as_raw_nonzero());
        let mut started = self.started.take().unwrap();
        until("the end of the daemon", Instant::now() + PATIENCE, || {
            // Where it is this process' child.
            let _ = started.try_wait();
            fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"))
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(main) = self.main {
            // It may have ended already.
            let _ = kill_process(main, Signal::KILL);
        }
        if let Some(mut started) = self.started.take() {
            let _ = started.kill();
            let _ = started.wait();
        }
    }
}

/// The same package as a later version.
fn later(place: &Place, package: &str) -> String {
    let (folder, later) = (place.path("later"), place.path("later.deb"));
    ran(Command::new("dpkg-deb").args(["-R", package]).arg(&folder));
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(version), "{text}");
    fs::write(&control, text.replace(version, "Version: 99.0")).unwrap();
    ran(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Znone", "--build"])
        .args([&folder, &later]));
    later.display().to_string()
}

/// The condition of an alert, of the form `METRIC > NUMBER`, as contrib/ has it.
fn condition(alert: &str) -> (String, f64) {
    let rules =
        fs::read_to_string(repository().join("contrib/prometheus/braid.rules.yml")).unwrap();
    let rule = rules.split("- alert: ").find(|rule| rule.starts_with(&format!("{alert}\n")));
    let rule = rule.unwrap_or_else(|| panic!("no alert {alert}"));
    assert!(!rule.contains("for:"), "it waits before it tells: {rule}");
    let expr = rule.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
    let (metric, bound) = expr.split_once(" > ").unwrap();
    (metric.to_string(), bound.parse().unwrap())
}

/// Writes and verifies again and again while `work` is done, which hears how often that was.
fn verified<T>(root: &Path, work: impl FnOnce(&dyn Fn() -> u32) -> T) -> T {
    let (ends, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let uri = format!("nbd+unix:///data?socket={}/run/braid/nbd.sock", root.display());
    let round = || {
        let mut fio = Command::new("fio");
        fio.args(["--name=v", "--ioengine=nbd", "--iodepth=16", "--rw=randwrite", "--bs=4k"]);
        fio.args(["--size=8m", "--verify=crc32c", "--verify_backlog=256", "--verify_state_save=0"]);
        fio.args(["--rate_iops=1500", "--verify_fatal=1"]).arg(format!("--uri={uri}"));
        ran(fio.current_dir(root));
        rounds.fetch_add(1, Ordering::SeqCst);
    };
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                round();
            }
        });
        // Also when the work has failed.
        let ended = Ends(&ends);
        let count = || {
            assert!(!load.is_finished(), "a client has met an error");
            rounds.load(Ordering::SeqCst)
        };
        let done = work(&count);
        drop(ended);
        load.join().unwrap();
        done
    })
}

#[test]
fn a_package_is_installed_tells_of_a_lost_disk_and_is_upgraded_under_load() {
    let (url, bodies) = webhook();
    let place = Place::new();
    let package = made("make-deb", &place);
    let mut machine = Machine::new(&place);
    let root = machine.root.clone();
    machine.dpkg(&["-i", &package]);
    let config = root.join("etc/braid/braid.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("devices = \"partitions\"", "devices = \"/srv/disk*\"");
    let text = text.replace("# mail = \"root\"", &format!("mail = \"root\"\nwebhook = \"{url}\""));
    let text = text.replace("[serve]\n", "[serve]\nmetrics = \"unix:/run/braid/metrics.sock\"\n");
    fs::write(&config, &text).unwrap();
    machine.boot();
    for name in ["disk0", "disk1", "disk2", "disk3"] {
        File::create(root.join("srv").join(name)).unwrap().set_len(MEMBER).unwrap();
    }
    machine.run("create data -l 5 -n 3 -x 1 --start /srv/disk0 /srv/disk1 /srv/disk2 /srv/disk3");
    let entry = machine.run("detail --toml data");
    fs::write(&config, format!("{text}\n{entry}")).unwrap();
    assert!(machine.run("config check").contains("it starts 1 array of 4 members"));
    machine.run("wait data");

    machine.shut_down();
    machine.boot();
    machine.run("detail --test data");
    let event = |name: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let body = bodies.recv_timeout(left).unwrap_or_else(|_| panic!("no event {name}"));
            if body["event"] == name {
                return body;
            }
        }
    };
    let metrics = || scrape(UnixStream::connect(root.join("run/braid/metrics.sock")).unwrap());
    let (degraded, bound) = condition("BraidArrayDegraded");
    assert!(metric(&metrics(), &[&degraded, "array=\"data\""]) <= bound);

    verified(&root, |rounds| {
        // The rebuild takes as long as all of this may.
        machine.run("speed data --min 1 --max 200");
        let lost = Instant::now();
        fs::remove_file(root.join("srv/disk1")).unwrap();
        machine.run("incremental --fail /srv/disk1");
        let told = event("Fail");
        assert_eq!(told["member"], "/srv/disk1");
        let mails = || fs::read_to_string(root.join("srv/mails")).unwrap_or_default();
        let end = lost + TOLD_WITHIN;
        until("a mail", end, || mails().contains("Subject: Fail event on data:"));
        until("the alert", end, || metric(&metrics(), &[&degraded, "array=\"data\""]) > bound);
        assert!(lost.elapsed() < TOLD_WITHIN, "{:?}", lost.elapsed());
        event("RebuildStarted");
        machine.run("speed data --max 1000000");
        event("SpareActive");
        machine.run("detail --test data");
        assert!(metric(&metrics(), &[&degraded, "array=\"data\""]) <= bound);

        let (before, first) = (rounds(), machine.main);
        machine.dpkg(&["-i", &later(&place, &package)]);
        machine.hear();
        assert_ne!(machine.main, first, "the program that was installed has taken over");
        // The round that was under way meanwhile, and one more.
        until("clients go on", Instant::now() + PATIENCE, || rounds() >= before + 2);
    });
    assert_eq!(fs::read_to_string(&config).unwrap(), format!("{text}\n{entry}"));
    machine.run("check data --wait");
    machine.run("detail --test data");
    machine.shut_down();
    assert!(machine.run("examine /srv/disk0").contains("State : clean"));
}
