//! `braid daemon`: a server by a configuration, which takes arrays in and lets them go while it runs.

use crate::support::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon, which ends with the test.
struct Daemon {
    child: Child,
}

impl Daemon {
    fn start(mut command: Command) -> Daemon {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut daemon = Daemon { child };
        let mut out = BufReader::new(daemon.child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.lines().any(|line| line.starts_with("control socket")) {
            if out.read_line(&mut said).unwrap() == 0 {
                panic!("it has ended: {said}{}", daemon.rest());
            }
        }
        // Nobody waits for it to read what comes later.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        daemon
    }

    fn of(place: &Place) -> Daemon {
        Daemon::start(place.command(&["daemon", "--config", "braid.toml"]))
    }

    fn rest(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    fn end(mut self) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, self.rest())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A RAID5 of a to c and a mirror of e and f, in a folder that the configuration scans.
fn scene(more: &str) -> Place {
    let place = Place::new();
    place.members(&["a", "b", "c", "e", "f"]);
    place.run("create data -l 5 -n 3 -c 64K --assume-clean --bitmap internal a b c").ok();
    place.run("create mirror -l 1 -n 2 --assume-clean e f").ok();
    configure(&place, more);
    place
}

fn configure(place: &Place, more: &str) {
    let folder = place.path("").display().to_string();
    let text = format!(
        "[serve]\nnbd = \"unix:nbd.sock\"\nshards = 2\n[scan]\ndevices = \"{folder}?\"\n{more}\n"
    );
    fs::write(place.path("braid.toml"), text).unwrap();
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}: it did not come to it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn arrays_of_the_configuration_come_and_go_while_it_runs() {
    let place = scene("[[array]]\nname = \"data\"");
    let checked = place.run("config check --config braid.toml").ok();
    assert!(checked.contains("it starts 1 array of 3 members"), "{checked}");
    let daemon = Daemon::of(&place);
    assert_eq!(place.run("detail --test data").code, 0);
    place.run("detail mirror").refused(4, &["no array \"mirror\""]);
    // By members, by name, and by what the configuration wants.
    let said = place.run("start e f").ok();
    assert!(
        said.contains("array mirror: ") && said.contains("nbd+unix:///mirror?socket=/"),
        "{said}"
    );
    assert!(place.run("start e").ok().contains("is a member of array mirror, which runs"));
    place.run("stop mirror").ok();
    place.run("stop").ok();
    place.run("detail data").refused(4, &["no array \"data\""]);
    place.run("stop").refused(2, &["no array is running"]);
    let said = place.run("assemble --scan").ok();
    assert!(said.contains("array data: ") && !said.contains("mirror"), "{said}");
    place.run("start mirror").ok();
    place.run("start nothing").refused(2, &["\"nothing\" was found"]);
    place.run("stop").refused(2, &["say which", "data", "mirror"]);
    // A new one, run at once.
    place.members(&["new0", "new1"]);
    place.run("create new -l 1 -n 2 --assume-clean --start new0 new1").ok();
    assert_eq!(place.run("detail --test new").code, 0);
    place.run("stop --all").ok();
    assert!(place.run("start --scan --json").ok().contains("array data"));
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("array data: clean"), "{said}");
}

#[test]
fn a_member_that_is_late_is_waited_for_and_not_for_ever() {
    let place = scene("degraded-after = 1\n[[array]]\nname = \"data\"");
    fs::rename(place.path("c"), place.path("away")).unwrap();
    let daemon = Daemon::of(&place);
    until("degraded start", || place.run("detail --test data").code == 1);
    fs::rename(place.path("away"), place.path("c")).unwrap();
    // As udev says that it is there.
    assert_eq!(place.run("incremental --config braid.toml e").code, 1);
    let said = place.run("incremental --config braid.toml c").ok();
    assert!(said.contains("re-added to array data"), "{said}");
    until("whole", || place.run("detail --test data").code == 0);
    assert!(
        place.run("incremental --config braid.toml --export c").ok().contains("BRAID_MEMBER=1")
    );
    assert_eq!(daemon.end().0, Some(0));
}

#[test]
fn a_mistake_is_named_by_line_and_column() {
    let place = scene("");
    configure(&place, "auto = \"+2\"");
    for command in ["daemon --config braid.toml", "config check --config braid.toml"] {
        place.run(command).refused(2, &["braid.toml:6:8: \"+2\" is no word of auto"]);
    }
    place
        .run("daemon --config none.toml")
        .refused(2, &["none.toml: No such file", "detail --toml"]);
    fs::write(place.path("mdadm.conf"), "CREATE owner=root\nARRAY /dev/md0 name=mirror\n").unwrap();
    fs::write(place.path("other.toml"), "mdadm-conf = \"mdadm.conf\"\n[serve]\nnbd = \"unix:n\"\n")
        .unwrap();
    let said = place.run("config check --config other.toml").ok();
    assert!(said.contains("ignored: mdadm.conf:1: the CREATE line"), "{said}");
}

/// An HTTP server that gives the body of each POST.
pub fn webhook() -> (String, std::sync::mpsc::Receiver<serde_json::Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let (send, bodies) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut len = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    len = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; len];
            stream.read_exact(&mut body).unwrap();
            stream
                .get_mut()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .unwrap();
            if send.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, bodies)
}

#[test]
fn a_lost_member_is_told_by_mail_program_and_webhook_within_seconds() {
    let (url, bodies) = webhook();
    let place = scene("");
    for (name, script) in
        [("mailed", "cat >> mails; echo >> mails"), ("told", "echo \"$@\" >> program")]
    {
        let path = place.path(name);
        fs::write(&path, format!("#!/bin/sh\ncd {}\n{script}\n", place.path("").display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (sendmail, program) = (place.path("mailed"), place.path("told"));
    configure(
        &place,
        &format!(
            "auto = \"homehost\"\n[monitor]\nmail = \"admin@example.org\"\nsendmail = {sendmail:?}\nprogram = {program:?}\n\
             webhook = \"{url}\"\n"
        ),
    );
    let daemon = Daemon::of(&place);
    let event = |name: &str| {
        let wait = Duration::from_secs(30);
        loop {
            let body = bodies.recv_timeout(wait).unwrap_or_else(|_| panic!("no event {name}"));
            if body["event"] == name {
                return body;
            }
        }
    };
    event("NewArray");
    let lost = Instant::now();
    place.run("fail data b").ok();
    let told = event("Fail");
    assert!(lost.elapsed() < Duration::from_secs(5), "{:?}", lost.elapsed());
    assert_eq!(
        (told["array"].as_str(), told["uuid"].as_str().map(str::len)),
        (Some("data"), Some(35))
    );
    assert!(told["member"].as_str().unwrap().ends_with("/b"), "{told}");
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap_or_default();
    until("a mail", || read("mails").contains("Subject: Fail event on data:"));
    assert!(read("mails").contains("To: admin@example.org"));
    assert!(read("program").contains("Fail data /"), "{}", read("program"));
    place.members(&["spare"]);
    place.run("set data sync_speed_min=1000 sync_speed_max=4000").ok();
    place.run("add data spare").ok();
    event("RebuildFinished");
    // The same, asked from outside.
    let said = place.run("monitor --oneshot --test --scan --config braid.toml").ok();
    assert!(
        said.contains("TestMessage: ") && said.contains("NewArray: array data is running"),
        "{said}"
    );
    assert_eq!(event("TestMessage")["event"], "TestMessage");
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "NewArray: array data",
        "Fail: member",
        "RebuildStarted: recover of array data",
        "RebuildFinished: recover of array data has ended, done: ",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
}

#[test]
fn the_service_manager_hears_of_readiness_status_and_the_process_that_takes_over() {
    let place = scene("[[array]]\nname = \"data\"");
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = place.command(&["daemon", "--config", "braid.toml"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    let daemon = Daemon::start(command);
    let mut heard = String::new();
    let mut hear = |words: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        while !heard.contains(words) {
            assert!(Instant::now() < end, "{words:?} is not in {heard}");
            let mut bytes = [0; 4096];
            let len = socket.recv(&mut bytes).unwrap();
            heard.push_str(&String::from_utf8_lossy(&bytes[..len]));
            heard.push('\n');
        }
        std::mem::take(&mut heard)
    };
    let own = daemon.child.id();
    let ready = hear("READY=1");
    assert!(ready.contains(&format!("MAINPID={own}\n")), "{ready}");
    hear("STATUS=1 array");
    hear("WATCHDOG=1");
    place.run("fail data b").ok();
    hear("STATUS=1 array; degraded: data");
    // The program is started anew, and is the main process before this one ends.
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    let told = hear("READY=1");
    let main: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("MAINPID=")).collect();
    assert!(main.iter().all(|pid| *pid != own.to_string()) && !main.is_empty(), "{told}");
    assert!(!told.contains("STOPPING=1"), "{told}");
    assert_eq!(place.run("detail --test data").code, 1);
    let successor = main.last().and_then(|pid| Pid::from_raw(pid.parse().ok()?)).unwrap();
    kill_process(successor, Signal::TERM).unwrap();
    hear("STOPPING=1");
    until("its end", || place.run("detail").code == 4);
}

#[test]
fn serve_goes_on_in_the_background() {
    let place = scene("");
    let said = place.run("serve a b c --nbd unix:nbd.sock --shards 2 --detach").ok();
    assert!(said.contains("array data: ") && said.contains("control.log"), "{said}");
    assert_eq!(place.run("detail --test data").code, 0);
    kill_process(place.server_pid(), Signal::TERM).unwrap();
    let log = || fs::read_to_string(place.path("control.log")).unwrap();
    until("its end", || log().contains("array data: clean"));
    until("no socket", || place.run("detail").code == 4);
    place
        .run("serve none --nbd unix:nbd.sock --detach")
        .refused(2, &["No such file", "nothing to serve"]);
}

/// A daemon that is started as systemd does by braid.socket.
fn activated(place: &Place, socket: &UnixListener) -> Daemon {
    let mut command = Command::new("bash");
    // The number of the process is not known before it is there.
    let script =
        "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_FDNAMES=control LISTEN_PID=$$ exec \"$@\"";
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_braid")]);
    command.args(["daemon", "--config", "braid.toml"]);
    let like = place.command(&[]);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(place.path("")).env("NOTIFY_SOCKET", place.path("notify"));
    command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
    Daemon::start(command)
}

/// The process that is ready next.
pub fn main_process(notify: &UnixDatagram) -> Pid {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "no process is ready");
        let mut bytes = [0; 4096];
        let len = notify.recv(&mut bytes).unwrap();
        let told = String::from_utf8_lossy(&bytes[..len]);
        if told.contains("READY=1") {
            let number = told.lines().find_map(|line| line.strip_prefix("MAINPID="));
            return Pid::from_raw(number.unwrap().parse().unwrap()).unwrap();
        }
    }
}

#[test]
fn a_control_socket_that_systemd_has_made_is_used_and_stays() {
    let place = scene("[[array]]\nname = \"data\"");
    let socket = UnixListener::bind(place.path("control.sock")).unwrap();
    // A command that comes before there is a server waits for it.
    let waits = place.command(&["detail", "--test", "data"]).stdout(Stdio::null()).spawn();
    let mut waits = waits.unwrap();
    let notify = UnixDatagram::bind(place.path("notify")).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let daemon = activated(&place, &socket);
    assert!(waits.wait().unwrap().success());
    let first = Pid::from_child(&daemon.child);
    assert_eq!(main_process(&notify), first);
    // As at an upgrade: the successor knows whose socket it is.
    kill_process(first, Signal::HUP).unwrap();
    let second = main_process(&notify);
    assert_ne!(second, first);
    assert_eq!(place.run("detail --test data").code, 0);
    kill_process(second, Signal::TERM).unwrap();
    let status = format!("/proc/{}/status", second.as_raw_nonzero());
    let has_ended = || fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
    until("the end", has_ended);
    assert!(place.path("control.sock").exists());
    let daemon = activated(&place, &socket);
    assert_eq!(place.run("detail --test data").code, 0);
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(place.path("control.sock").exists());
}
