//! Volumes under a lease of etcd: of two hosts that reach the same bricks one mounts at a time.

use crate::support::Place;
use crate::support::etcd::Etcd;
use crate::volumes::{BRICK, Scene, new_brick, wait_until};
use rustix::process::{Signal, kill_process, test_kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

/// The bricks, on a machine that both hosts reach.
struct Store {
    place: Place,
    uris: Vec<String>,
}

/// Exports of two arrays of a server of their own, which goes on whatever happens to the hosts.
fn store() -> (Store, crate::support::Server) {
    let place = Place::new();
    for name in ["a", "b", "c", "d"] {
        new_brick(&place, name, BRICK);
    }
    place.run("create one -l 1 -n 2 --assume-clean a b").ok();
    place.run("create two -l 1 -n 2 --assume-clean c d").ok();
    let server = place.serve("a b c d");
    let uris = vec![place.uri("one"), place.uri("two")];
    (Store { place, uris }, server)
}

/// Mounted here: a file can be written and is durable.
fn write_through(scene: &Scene, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(scene.file(name))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[test]
fn a_volume_is_mounted_by_the_holder_of_its_lease_alone_and_taken_over() {
    let (Some(one), Some(other)) = (Scene::new(&[]), Scene::new(&[])) else { return };
    let (store, _server) = store();
    let etcd = Etcd::start(&store.place);
    let bricks = store.uris.join(" ");
    one.run(&format!("create pool {bricks}")).ok();
    let mount = |scene: &Scene| {
        let dir = scene.place.path("mnt").display().to_string();
        scene.run(&format!("mount pool {dir} {bricks} --lease {} --lease-ttl 3", etcd.place()))
    };
    mount(&one).ok();
    let lease = |scene: &Scene| scene.status()["lease"]["token"].as_i64();
    let first = lease(&one).unwrap();
    assert!(one.run("status pool").ok().contains(&format!("token {first}, ")));
    let refused = mount(&other).refused(2, &["holds the lease of volume pool: unmount it there"]);
    assert!(refused.contains("host "), "{refused}");
    // Longer than it lasts.
    std::thread::sleep(Duration::from_secs(4));
    write_through(&one, "kept", b"kept").unwrap();
    mount(&other).refused(2, &["holds the lease"]);

    // Unmounted in order: the other has it at once.
    one.unmount("pool");
    mount(&other).ok();
    let second = lease(&other).unwrap();
    assert!(second > first);
    assert_eq!(fs::read(other.file("kept")).unwrap(), b"kept");

    // Stopped in the middle: the lease runs out, and what goes on later writes nothing any more.
    let stopped = other.server();
    kill_process(stopped, Signal::STOP).unwrap();
    let since = Instant::now();
    wait_until("the lease has run out", || mount(&one).code == 0);
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
    assert!(lease(&one).unwrap() > second);
    write_through(&one, "newer", b"newer").unwrap();
    kill_process(stopped, Signal::CONT).unwrap();
    wait_until("it ends by itself", || test_kill_process(stopped).is_err() || is_zombie(stopped));
    assert!(write_through(&other, "late", b"late").is_err());
    write_through(&one, "newest", b"newest").unwrap();
    one.run("check pool").ok();

    // etcd is silent: the holder ends before another could have it.
    let holder = one.server();
    etcd.signal(Signal::STOP);
    let since = Instant::now();
    wait_until("it ends by itself", || test_kill_process(holder).is_err() || is_zombie(holder));
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    etcd.signal(Signal::CONT);
    wait_until("the other mounts it", || mount(&other).code == 0);
    assert_eq!(fs::read(other.file("newest")).unwrap(), b"newest");
    other.run("check pool").ok();
    other.unmount("pool");
}

fn is_zombie(pid: rustix::process::Pid) -> bool {
    let status = format!("/proc/{}/status", pid.as_raw_nonzero());
    fs::read_to_string(status).map_or(true, |text| text.contains("State:\tZ"))
}

#[test]
fn a_server_without_the_lease_mounts_nothing_under_it() {
    let Some(scene) = Scene::new(&["b0"]) else { return };
    scene.run("create pool b0").ok();
    let other = scene.place.path("mnt2");
    fs::create_dir(&other).unwrap();
    scene.run("mount pool mnt b0").ok();
    new_brick(&scene.place, "b1", BRICK);
    scene.run("create more b1").ok();
    let line = format!("mount more {} b1 --lease etcd://127.0.0.1:1", other.display());
    scene.run(&line).refused(2, &["the running server has no lease", "--lease"]);
    scene.unmount("pool");
    scene.run(&line).refused(4, &["etcd does not answer at 127.0.0.1:1"]);
}
