//! Volumes of the configuration: mounted by `braid daemon`, on paths and on its own arrays.

use crate::volumes::{BRICK, Scene, new_brick, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

/// `braid daemon`, which ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start(scene: &Scene) -> Daemon {
        let mut command = scene.place.command(&["daemon", "--config", "braid.toml"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut daemon = Daemon(child);
        let mut out = BufReader::new(daemon.0.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("control socket: ") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "it has ended: {}", daemon.rest());
        }
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        daemon
    }

    fn rest(&mut self) -> String {
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let code = self.0.wait().unwrap().code();
        let said = self.rest();
        assert_eq!(code, Some(0), "{said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn volumes_of_the_configuration_are_mounted_when_their_bricks_have_come() {
    let Some(scene) = Scene::new(&["b0", "b1", "m0", "m1"]) else { return };
    let place = &scene.place;
    fs::create_dir(place.path("mnt2")).unwrap();
    scene.run("create pool b0 b1").ok();
    place.run("create vault -l 1 -n 2 --assume-clean m0 m1").ok();
    let (path, folder) = (|name: &str| place.path(name).display().to_string(), place.path(""));
    let serve = format!(
        "[serve]\nnbd = \"unix:nbd.sock\"\nshards = 2\n[scan]\ndevices = \"{}m?\"\n[[array]]\nname = \"vault\"\n",
        folder.display()
    );
    let pool = format!(
        "[[volume]]\nname = \"pool\"\nmount = \"{}\"\nbricks = [\"{}\", \"{}\"]\n",
        path("mnt"),
        path("b0"),
        path("b1")
    );
    fs::write(place.path("braid.toml"), format!("{serve}{pool}")).unwrap();
    let checked = place.run("config check --config braid.toml").ok();
    assert!(checked.contains("it mounts 1 volume:\n  pool at "), "{checked}");
    assert!(checked.contains(": 2 bricks found"), "{checked}");

    fs::rename(place.path("b1"), place.path("away")).unwrap();
    let checked = place.run("config check --config braid.toml").ok();
    assert!(checked.contains("/mnt: not now: ") && checked.contains("b1"), "{checked}");
    let daemon = Daemon::start(&scene);
    // The array is served, whatever is with the volume.
    assert_eq!(place.run("detail --test vault").code, 0);
    let mounted = |name: &str| {
        let listed = scene.run("list --json").ok();
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        listed.iter().any(|volume| volume["name"] == name && volume["dir"].is_string())
    };
    assert!(!mounted("pool"));
    fs::rename(place.path("away"), place.path("b1")).unwrap();
    wait_until("the volume is mounted", || mounted("pool"));
    scene.write_by_child("file", b"kept");

    // Another, on an array of the server.
    scene.run("create big array:vault").ok();
    scene.run(&format!("mount big {} array:vault", path("mnt2"))).ok();
    let entries = place.run("detail --toml").ok();
    assert!(entries.starts_with("[[array]]\n") && entries.matches("[[volume]]").count() == 2);
    assert!(entries.contains("bricks = [\"array:vault\"]"), "{entries}");
    assert!(place.run("detail --toml big").ok().starts_with("[[volume]]\nuuid = "));
    let server = serve.split("[[array]]").next().unwrap();
    fs::write(place.path("braid.toml"), format!("{server}{entries}")).unwrap();
    let checked = place.run("config check --config braid.toml").ok();
    assert!(checked.contains("it mounts 2 volumes:"), "{checked}");
    assert!(checked.contains("/mnt2: on arrays, which have to run first"), "{checked}");

    // One that a user unmounts stays so, until the configuration is asked for.
    scene.unmount("pool");
    let said = place.run("start --scan").ok();
    assert!(said.contains("volume pool is mounted at "), "{said}");
    let said = daemon.end();
    assert!(said.contains("warning: volume pool is not mounted at "), "{said}");
    assert!(!scene.file("file").exists());

    // As after a boot.
    let daemon = Daemon::start(&scene);
    wait_until("both are mounted", || mounted("pool") && mounted("big"));
    assert_eq!(fs::read(scene.file("file")).unwrap(), b"kept");
    let refused = place.run("stop vault").refused(2, &["is a brick of volume big"]);
    assert!(refused.contains("unmount"), "{refused}");
    scene.unmount("pool");
    daemon.end();
    // A volume that is no longer there keeps nothing else from being served.
    fs::remove_dir(place.path("mnt2")).unwrap();
    new_brick(place, "other", BRICK);
    let text = fs::read_to_string(place.path("braid.toml")).unwrap();
    fs::write(place.path("braid.toml"), text.replace("/b0\"", "/other\"")).unwrap();
    let daemon = Daemon::start(&scene);
    assert_eq!(place.run("detail --test vault").code, 0);
    // A signal is looked at when both have been tried.
    let said = daemon.end();
    assert!(said.contains("no such directory; make it with mkdir -p"), "{said}");
    assert!(said.contains("other"), "{said}");
}
