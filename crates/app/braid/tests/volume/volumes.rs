//! Logical volumes with a real mount: made, mounted, filled, changed under way, killed, mounted again, over exports of
//! other servers; and what is refused.
//!
//! Without /dev/fuse, or the right to mount, the tests that mount say so and end.

use crate::support::{Place, Ran, Server};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const BRICK: u64 = 256 << 20;

/// A folder with bricks and a mount point, whose server ends with it.
pub struct Scene {
    /// Where everything lies.
    pub place: Place,
}

impl Scene {
    /// With these bricks; `None` where nothing can be mounted.
    pub fn new(bricks: &[&str]) -> Option<Scene> {
        let can = rustix::process::geteuid().is_root()
            && File::options().read(true).write(true).open("/dev/fuse").is_ok();
        if !can {
            // Passing there would say that volumes work.
            let must = rustix::process::geteuid().is_root() || std::env::var_os("CI").is_some();
            assert!(
                !must,
                "mounting needs root and /dev/fuse: load the module, or leave these tests out by name"
            );
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let place = Place::new();
        for brick in bricks {
            new_brick(&place, brick, BRICK);
        }
        fs::create_dir(place.path("mnt")).unwrap();
        Some(Scene { place })
    }

    pub fn run(&self, line: &str) -> Ran {
        self.place.run(&format!("volume {line}"))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.place.path("mnt").join(name)
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.run("status pool --json").ok()).unwrap()
    }

    /// Writes a file that is durable afterwards, and that the kernel has to ask for when it is read.
    fn write_through(&self, name: &str, bytes: &[u8]) {
        fs::write(self.file(name), bytes).unwrap();
        File::open(self.file(name)).unwrap().sync_all().unwrap();
        self.forget(name);
    }

    /// Writes a file from another process, so that nothing holds the mount afterwards. What this process opens is open
    /// for a moment in each child that a test beside this one starts, until that child runs its program.
    pub fn write_by_child(&self, name: &str, bytes: &[u8]) {
        let from = self.place.path("written");
        fs::write(&from, bytes).unwrap();
        let copied = Command::new("cp").arg(&from).arg(self.file(name)).status().unwrap();
        assert!(copied.success(), "{copied}");
    }

    /// Unmounts; again while children of other tests hold for a moment what this process had open, as above.
    #[track_caller]
    pub fn unmount(&self, volume: &str) {
        wait_until("nothing holds the mount", || {
            let ran = self.run(&format!("unmount {volume}"));
            let held = ran.code == 2 && ran.err.contains("in use");
            if !held {
                ran.ok();
            }
            !held
        });
    }

    pub fn forget(&self, name: &str) {
        fadvise(File::open(self.file(name)).unwrap(), 0, None, Advice::DontNeed).unwrap();
    }

    fn used(&self, brick: usize) -> u64 {
        self.status()["bricks"][brick]["used"].as_u64().unwrap()
    }

    /// The server that `mount` started.
    pub fn server(&self) -> rustix::process::Pid {
        self.place.server_pid()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let ran = self.place.run("volume unmount pool --lazy");
        if ran.code != 0 {
            // Nothing was mounted, or its server is gone.
            let _ =
                rustix::mount::unmount(self.place.path("mnt"), rustix::mount::UnmountFlags::DETACH);
        }
        wait_until("the server has ended", || {
            !self.place.path("control.sock").exists() || ran.code != 0
        });
    }
}

/// Another machine, as far as can be told: a server with control socket and folder of its own that exports a mirror.
pub struct Far {
    place: Place,
}

impl Far {
    pub fn new() -> Far {
        let place = Place::new();
        new_brick(&place, "b0", BRICK);
        new_brick(&place, "b1", BRICK);
        place.run("create m0 -l 1 -n 2 --assume-clean b0 b1").ok();
        Far { place }
    }

    /// Serves it until what comes back is dropped, which kills the server.
    pub fn serve(&self) -> Server {
        self.place.serve("b0 b1 --nbd tcp:127.0.0.1:0")
    }

    pub fn uri(&self) -> String {
        self.place.uri("m0")
    }

    /// The same export by another name.
    fn tcp_uri(&self, server: &Server) -> String {
        let uri = |line: &str| Some(line[line.find("nbd://127")?..].trim().to_string());
        let found = server.said.lines().find_map(uri);
        found.unwrap_or_else(|| panic!("no URI in: {}", server.said))
    }
}

/// A server that is not ours: `nbdkit` over the file `far` of a place.
struct Nbdkit(Child);

impl Nbdkit {
    /// With these options, and with these parameters of filters.
    fn start(place: &Place, options: &[&str], parameters: &[&str]) -> Nbdkit {
        let socket = place.path("kit.sock");
        // What a server that was killed has left.
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.arg("--foreground").arg("--unix").arg(&socket).args(options);
        command.arg("file").arg(place.path("far")).args(parameters);
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("nbdkit: {error}; install it: scripts/setup-packages test")
        });
        while !socket.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "nbdkit ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        Nbdkit(child)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn new_brick(place: &Place, name: &str, size: u64) {
    File::create_new(place.path(name)).unwrap().set_len(size).unwrap();
}

#[track_caller]
pub fn wait_until(what: &str, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that tell one place from another.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mixed = |at: u64| (at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..len as u64).map(|at| mixed(at) as u8).collect()
}

#[test]
fn a_volume_lives_through_all_that_is_done_to_it() {
    let Some(scene) = Scene::new(&["a", "b", "c", "fast"]) else { return };
    let planned = scene.run("create pool a b --dry-run").ok();
    assert!(planned.contains("would be made"), "{planned}");
    scene.run("create pool a b --stripe 64K").ok();
    let mounted = scene.run("mount pool mnt").ok();
    assert!(mounted.contains("braid volume unmount pool"), "{mounted}");
    let large = bytes(24 << 20, 1);
    fs::write(scene.file("large"), &large).unwrap();
    fs::create_dir(scene.file("dir")).unwrap();
    fs::write(scene.file("dir/small"), b"small").unwrap();
    File::open(scene.file("large")).unwrap().sync_all().unwrap();
    let status = scene.status();
    assert_eq!(status["metadata_on"].as_array().unwrap().len(), 2, "{status}");

    let added = scene.run("add pool c").ok();
    assert!(added.contains("added to volume pool") && added.contains("has ended"), "{added}");
    wait_until("it has a copy of the metadata", || {
        scene.status()["metadata_on"].as_array().unwrap().len() == 3
    });
    let parts: Vec<u64> = (0..3).map(|brick| scene.used(brick)).collect();
    assert!(parts.iter().all(|part| *part > 6 << 20), "{parts:?}");
    assert_eq!(fs::read(scene.file("large")).unwrap(), large);

    scene.run("remove pool a --dry-run").ok();
    scene.run("remove pool a").ok();
    assert_eq!(scene.status()["bricks"].as_array().unwrap().len(), 2);
    scene.run("examine a").refused(4, &["not a brick"]);
    assert_eq!(fs::read(scene.file("large")).unwrap(), large);

    scene.run("migrate pool mnt/large --to b").ok();
    let started = scene.run("migrate pool mnt/large mnt/dir/small --to b --detach").ok();
    assert!(started.contains("migration of 2 files to"), "{started}");
    scene.run("jobs pool --wait").ok();
    scene.run("pin pool mnt/large dir/small").ok();
    let of_b = scene.status()["bricks"][0]["used"].as_u64().unwrap();
    assert!(of_b >= 24 << 20, "{of_b}");
    scene.run("balance pool").ok();
    assert_eq!(scene.used(0), of_b);
    scene.run("unpin pool mnt/large").ok();
    scene.run("weight pool c 4 --no-balance").ok();

    scene.run("add pool fast --proxy").ok();
    let second = bytes(8 << 20, 2);
    fs::write(scene.file("second"), &second).unwrap();
    File::open(scene.file("second")).unwrap().sync_all().unwrap();
    assert!(scene.used(2) >= 8 << 20);
    scene.run("flush pool").ok();
    assert_eq!(scene.used(2), 0);
    scene.run("proxy pool --off").ok();
    scene.run("defrag pool").ok();
    scene.run("check pool").ok();
    let started = scene.run("check pool --repair --detach").ok();
    assert!(started.contains("check pool --last"), "{started}");
    scene.run("jobs pool --check --wait").ok();
    let last = scene.run("check pool --last --json").ok();
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["found"], &last["files"]), (&0.into(), &5.into()), "{last}");
    assert_eq!(scene.run("jobs pool --json").ok().trim(), "[]");

    scene.unmount("./mnt");
    assert!(!scene.file("large").exists());
    let written = || {
        let when = |brick| fs::metadata(scene.place.path(brick)).unwrap().modified().unwrap();
        ["b", "c", "fast"].map(when)
    };
    let before = written();
    scene.run("mount pool mnt fast c b --read-only").ok();
    assert_eq!(fs::read(scene.file("large")).unwrap(), large);
    assert!(fs::write(scene.file("new"), b"x").is_err());
    scene.run("check pool").ok();
    scene.unmount("pool");
    assert_eq!(written(), before, "a mount that only reads has written");
    scene.run("mount pool mnt fast c b").ok();
    assert_eq!(fs::read(scene.file("large")).unwrap(), large);
    assert_eq!(fs::read(scene.file("second")).unwrap(), second);
    assert_eq!(fs::read(scene.file("dir/small")).unwrap(), b"small");
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
}

#[test]
fn what_was_synced_is_there_after_the_server_was_killed() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    let data = bytes(3 << 20, 3);
    fs::write(scene.file("synced"), &data).unwrap();
    File::open(scene.file("synced")).unwrap().sync_all().unwrap();
    File::open(scene.place.path("mnt")).unwrap().sync_all().unwrap();
    fs::write(scene.file("not-synced"), &data).unwrap();
    let server = scene.server();
    rustix::process::kill_process(server, Signal::KILL).unwrap();
    wait_until("the files are closed", || {
        scene.run("examine a").code == 0 && fs::metadata(scene.file("synced")).is_err()
    });
    // The dead mount is cleared away, the stale socket replaced.
    wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
    assert_eq!(fs::read(scene.file("synced")).unwrap(), data);
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
}

#[test]
fn what_was_written_with_o_sync_past_the_page_cache_is_there_after_the_server_was_killed() {
    const BLOCK: usize = 4096;
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    scene.run("mount pool mnt").ok();
    // A write past the page cache takes its bytes from where blocks begin.
    let data = bytes(64 * BLOCK, 5);
    let mut aligned = vec![0; data.len() + BLOCK];
    let from = aligned.as_ptr().align_offset(BLOCK);
    let aligned = &mut aligned[from..from + data.len()];
    aligned.copy_from_slice(&data);
    for (name, sync) in [("o-sync", OFlags::SYNC), ("o-dsync", OFlags::DSYNC)] {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT | sync;
        let file = rustix::fs::open(scene.file(name), flags, Mode::from(0o644)).unwrap();
        // Its name is durable; what is in it is left to the writes.
        File::open(scene.place.path("mnt")).unwrap().sync_all().unwrap();
        for (nr, block) in aligned.chunks(BLOCK).enumerate() {
            let done = rustix::io::pwrite(&file, block, (nr * BLOCK) as u64).unwrap();
            assert_eq!(done, BLOCK);
        }
        // It is closed only when nobody is there to hear of it.
        rustix::process::kill_process(scene.server(), Signal::KILL).unwrap();
        wait_until("the server is gone", || {
            scene.run("examine a").code == 0 && fs::metadata(scene.file(name)).is_err()
        });
        drop(file);
        wait_until("the locks are gone", || scene.run("mount pool mnt").code == 0);
        assert!(fs::read(scene.file(name)).unwrap() == data, "{name}");
    }
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
}

#[test]
fn an_unmount_from_outside_and_a_signal_end_it_in_order() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let created = scene.run("create pool a").ok();
    assert!(created.contains("was made"), "{created}");
    for end in 0..2 {
        scene.run("mount pool mnt").ok();
        let server = scene.server();
        scene.write_by_child(&format!("file{end}"), b"written");
        if end == 0 {
            rustix::mount::unmount(scene.place.path("mnt"), rustix::mount::UnmountFlags::empty())
                .unwrap();
        } else {
            rustix::process::kill_process(server, Signal::TERM).unwrap();
        }
        wait_until("the server has ended", || !scene.place.path("control.sock").exists());
        assert!(!scene.file(&format!("file{end}")).exists());
    }
    let mounted = scene.run("mount pool mnt").ok();
    assert!(!mounted.contains("not unmounted in order"), "{mounted}");
    assert_eq!(fs::read(scene.file("file0")).unwrap(), b"written");
    assert_eq!(fs::read(scene.file("file1")).unwrap(), b"written");
}

#[test]
fn a_volume_is_mounted_again_right_after_umount() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    scene.run("create pool a").ok();
    for round in 0..5 {
        scene.run("mount pool mnt").ok();
        scene.write_by_child("file", &vec![round; 1 << 20]);
        // Waits for nothing that the server does after it.
        let none = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(scene.place.path("mnt"), none).unwrap();
    }
    scene.run("mount pool mnt").ok();
    assert_eq!(fs::read(scene.file("file")).unwrap(), vec![4; 1 << 20]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let Some(scene) = Scene::new(&["a", "b", "c", "other"]) else { return };
    scene.run("create pool a a").refused(2, &["given twice"]);
    scene.run("create pool a --weight b=2").refused(2, &["none of the bricks"]);
    scene.run("create pool a --weight a=0").refused(2, &["leave the brick empty"]);
    scene.run("create pool ram:1G").refused(2, &["--create"]);
    scene.run("create pool a --stripe 100K").refused(2, &["power of two"]);
    scene.run("create pool missing").refused(2, &["missing"]);
    scene.run("mount pool mnt").refused(2, &["no brick of a volume pool"]);
    scene.run("create pool a b").ok();
    scene.run("create again a").refused(2, &["--force", "braid volume"]);
    scene.run("create elsewhere other").ok();
    scene.run("mount pool nowhere").refused(2, &["mkdir -p"]);
    scene.run("mount pool a").refused(2, &["not a directory"]);
    scene.run("mount pool mnt a other").refused(2, &["volume elsewhere"]);
    scene.run("mount pool mnt a").refused(2, &["--degraded"]);
    scene.run("status").refused(4, &["braid volume mount"]);
    scene.run("mount pool mnt").ok();
    scene.run("mount pool mnt").refused(2, &["mounted already"]);
    fs::create_dir(scene.place.path("second")).unwrap();
    scene.run("mount elsewhere mnt").refused(2, &["mnt"]);
    scene.run("status nobody").refused(2, &["there is: pool"]);
    scene.run("add pool a").refused(2, &["in use"]);
    scene.run("add pool other").refused(2, &["--force"]);
    scene.run("weight pool a 0").refused(2, &["braid volume remove"]);
    scene.run("weight pool c 2").refused(2, &["no brick"]);
    scene.run("remove pool nobody").refused(2, &["no brick nobody"]);
    scene.run("migrate pool none --to a").refused(2, &["/none"]);
    scene.run("proxy pool --off").refused(2, &["no proxy"]);
    scene.run("flush pool").refused(2, &["no proxy"]);
    scene.run("jobs pool --pause").refused(2, &["no job"]);
    scene.run("export pool none --nbd unix:x.sock").refused(2, &["/none"]);
    new_brick(&scene.place, "tiny", 64 << 10);
    scene.run("add pool tiny --proxy").refused(2, &["tiny"]);
    // What is refused for another reason keeps what is on it, whatever --force gives up.
    let mut content = vec![0; 64 << 10];
    content[1080..1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(scene.place.path("tiny"), &content).unwrap();
    scene.run("add pool tiny").refused(2, &["ext", "--force"]);
    scene.run("add pool tiny --force").refused(2, &["too small"]);
    assert_eq!(fs::read(scene.place.path("tiny")).unwrap(), content);
    scene.run("remove pool a").ok();
    scene.run("remove pool b").refused(2, &["last"]);
    let open = File::create(scene.file("open")).unwrap();
    scene.run("unmount pool").refused(2, &["in use"]);
    drop(open);
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
    scene.unmount("pool");
    scene.run("unmount pool").refused(4, &["no volume is mounted"]);
}

#[test]
fn a_brick_that_is_missing_is_named_and_the_rest_can_be_read() {
    let Some(scene) = Scene::new(&["a", "b", "c"]) else { return };
    scene.run("create pool a b c").ok();
    scene.run("mount pool mnt").ok();
    fs::write(scene.file("large"), bytes(4 << 20, 5)).unwrap();
    fs::write(scene.file("empty"), b"").unwrap();
    scene.unmount("pool");
    fs::rename(scene.place.path("c"), scene.place.path("away")).unwrap();
    scene.run("mount pool mnt").refused(2, &["--degraded"]);
    let mounted = scene.run("mount pool mnt --degraded").ok();
    assert!(mounted.contains("degraded"), "{mounted}");
    assert!(fs::read(scene.file("large")).is_err());
    assert!(fs::read(scene.file("empty")).unwrap().is_empty());
    let checked = scene.run("check pool");
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert!(checked.out.contains("lost: /large"), "{}", checked.out);
    scene.unmount("pool");
    // Where it was is remembered.
    fs::rename(scene.place.path("away"), scene.place.path("c")).unwrap();
    let mounted = scene.run("mount pool mnt --take-back").ok();
    assert!(mounted.contains("3 bricks"), "{mounted}");
    assert_eq!(fs::read(scene.file("large")).unwrap(), bytes(4 << 20, 5));
}

#[test]
fn a_file_is_a_block_device() {
    let Some(scene) = Scene::new(&[]) else { return };
    scene.run("mount pool mnt --create ram:256M ram:256M").ok();
    let data = bytes(4 << 20, 7);
    fs::write(scene.file("disk"), &data).unwrap();
    let exported = scene.run("export pool mnt/disk --nbd unix:nbd.sock").ok();
    assert!(exported.contains(&scene.place.uri("disk")), "{exported}");
    scene.run("unmount pool").refused(2, &["--off"]);
    assert_eq!(scene.place.copy_out("disk"), data);
    // Nobody writes beside its clients, and who tries is told at once.
    let busy = rustix::io::Errno::BUSY.raw_os_error();
    for open in [File::options().write(true), File::options().append(true).create(true)] {
        assert_eq!(open.open(scene.file("disk")).unwrap_err().raw_os_error(), Some(busy));
    }
    let reader = File::open(scene.file("disk")).unwrap();
    let mut seen = vec![0; 4096];
    reader.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(seen, data[4096..8192]);
    let new = scene.place.data("new", 4 << 20);
    scene.place.copy_in("new", "disk");
    // Readers see the clients' writes, also through descriptors that were open before.
    reader.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(seen, new[4096..8192]);
    assert_eq!(fs::read(scene.file("disk")).unwrap(), new);
    scene.run("export pool mnt/disk --off").ok();
    let writer = File::options().write(true).open(scene.file("disk")).unwrap();
    scene.run("export pool mnt/disk --nbd unix:nbd.sock").refused(2, &["open to write"]);
    drop((reader, writer));
    assert_eq!(fs::read(scene.file("disk")).unwrap(), new);
    scene.unmount("pool");
}

#[test]
fn arrays_of_the_server_are_bricks_and_come_back_when_they_are_not() {
    let Some(scene) = Scene::new(&["a0", "a1", "b0", "b1"]) else { return };
    let place = &scene.place;
    place.run("create m0 -l 1 -n 2 --assume-clean a0 a1").ok();
    place.run("create m1 -l 1 -n 2 --assume-clean b0 b1").ok();
    let server = place.serve("a0 a1 b0 b1");
    let exports = |array: &str| place.detail(array)["exports"].as_array().map_or(0, Vec::len);
    scene.run("create pool array:m0 array:m1").ok();
    assert_eq!((exports("m0"), exports("m1")), (1, 1));
    scene.run("mount pool mnt").ok();
    assert_eq!((exports("m0"), exports("m1")), (0, 0));
    let data = bytes(6 << 20, 11);
    fs::write(scene.file("file"), &data).unwrap();
    place.run("stop m0").refused(2, &["brick of volume pool"]);
    place.run("create top -l 1 -n 2 array:m0 array:m1").refused(2, &["brick of volume pool"]);
    place.run("fail m0 a0").ok();
    scene.run("remove pool array:m1").ok();
    assert_eq!((exports("m0"), exports("m1")), (0, 1));
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    server.signal(Signal::TERM);
    server.ended().ok();
    assert!(!scene.file("file").exists());
    let server = place.serve("a0 a1 b0 b1 --run");
    scene.run("mount pool mnt").ok();
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    place.run("stop --all").ok();
    server.ended().ok();
}

#[test]
fn an_export_of_another_server_is_a_brick_like_others() {
    let Some(scene) = Scene::new(&["a", "c"]) else { return };
    let far = Far::new();
    let server = far.serve();
    let uri = far.uri();
    let created = scene.run(&format!("create pool a {uri} --weight {uri}=2.5")).ok();
    assert!(created.contains(&uri) && created.contains("2.5"), "{created}");
    scene.run("mount pool mnt").ok();
    let data = bytes(12 << 20, 21);
    scene.write_through("file", &data);
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    let status = scene.status();
    assert_eq!(status["bricks"][1]["name"], uri.as_str(), "{status}");
    assert_eq!(status["metadata_on"].as_array().unwrap().len(), 2, "{status}");
    assert!(scene.used(1) > scene.used(0));
    scene.run(&format!("add pool {uri} --force")).refused(2, &["in use as a brick of volume pool"]);
    scene.run(&format!("create q {uri} --force")).refused(2, &["in use as a brick of volume pool"]);
    let socket = far.place.path("other.sock");
    std::os::unix::fs::symlink(far.place.path("nbd.sock"), &socket).unwrap();
    let other = format!("nbd+unix:///m0?socket={}", socket.display());
    scene.run(&format!("add pool {other} --force")).refused(2, &[&other, "in use as a brick"]);
    scene.unmount("pool");
    wait_until("the server has ended", || !scene.place.path("control.sock").exists());

    let mounted = scene.run("mount pool mnt").ok();
    assert!(mounted.contains("2 bricks, clean"), "{mounted}");
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    scene.run(&format!("weight pool {uri} 0.01 --no-balance")).ok();
    scene.run("add pool c").ok();
    scene.run(&format!("remove pool {uri}")).ok();
    scene.run(&format!("examine {uri}")).refused(4, &["not a brick"]);
    let tcp = far.tcp_uri(&server);
    let words = [&tcp, "in use as a brick of volume pool", &format!("added before that: {uri}")];
    scene.run(&format!("add pool {uri} {tcp}")).refused(2, &words);
    scene.forget("file");
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
    scene.unmount("pool");
    let examined = scene.run(&format!("examine {uri}")).ok();
    assert!(examined.contains("Volume : pool"), "{examined}");
    server.signal(Signal::TERM);
    server.ended().ok();
}

#[test]
fn a_server_that_dies_takes_what_lies_there_until_it_is_back() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let far = Far::new();
    let server = far.serve();
    let uri = far.uri();
    scene.run(&format!("create pool a {uri}")).ok();
    scene.run("mount pool mnt").ok();
    let (near_data, far_data) = (bytes(3 << 20, 31), bytes(3 << 20, 32));
    for (name, data, brick) in [("near", &near_data, "a"), ("far", &far_data, uri.as_str())] {
        scene.write_through(name, data);
        scene.run(&format!("migrate pool mnt/{name} --to {brick}")).ok();
        assert_eq!(&fs::read(scene.file(name)).unwrap(), data);
        scene.forget(name);
    }
    drop(server);
    let error = fs::read(scene.file("far")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_eq!(fs::read(scene.file("near")).unwrap(), near_data);
    let new_data = bytes(2 << 20, 33);
    scene.write_through("new", &new_data);
    assert_eq!(fs::read(scene.file("new")).unwrap(), new_data);
    let status = scene.status();
    assert_eq!(status["bricks"][1]["state"], "missing", "{status}");
    assert_eq!(status["bricks"][1]["name"], uri.as_str(), "{status}");
    scene.unmount("pool");
    let words = ["--degraded", &uri, "check that a server listens there"];
    scene.run("mount pool mnt").refused(2, &words);

    let _server = far.serve();
    scene.run("mount pool mnt").refused(2, &["--take-back"]);
    scene.run("mount pool mnt --take-back").ok();
    for (name, data) in [("near", &near_data), ("far", &far_data), ("new", &new_data)] {
        assert_eq!(&fs::read(scene.file(name)).unwrap(), data, "{name}");
    }
    let checked = scene.run("check pool").ok();
    assert!(checked.contains("no problems"), "{checked}");
    scene.unmount("pool");
}

#[test]
fn servers_with_the_metadata_that_restart_while_nothing_is_under_way_lose_nothing() {
    let Some(scene) = Scene::new(&["a"]) else { return };
    let far = [Far::new(), Far::new()];
    let mut servers = far.each_ref().map(|far| Some(far.serve()));
    let uris = far.each_ref().map(Far::uri);
    scene.run(&format!("create pool {} {} a", uris[0], uris[1])).ok();
    scene.run("mount pool mnt").ok();
    let all_have_it = |status: &serde_json::Value| {
        let on = status["metadata_on"].as_array().unwrap();
        on.len() == 3 && uris.iter().all(|uri| on.contains(&serde_json::json!(uri)))
    };
    assert!(all_have_it(&scene.status()), "{}", scene.status());
    for (round, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        scene.write_through(&format!("before{round}"), &bytes(3 << 20, 51));
        File::open(scene.place.path("mnt")).unwrap().sync_all().unwrap();
        for nr in order {
            servers[nr] = None;
        }
        for nr in order {
            servers[nr] = Some(far[nr].serve());
        }
        // The superblocks are written to all bricks.
        scene.run(&format!("weight pool a {} --no-balance", round + 2)).ok();
        scene.write_through(&format!("after{round}"), &bytes(3 << 20, 52));
        let status = scene.status();
        assert!(all_have_it(&status), "{status}");
        scene.unmount("pool");
        // Nobody has to be taken back.
        let mounted = scene.run("mount pool mnt").ok();
        assert!(mounted.contains("3 bricks") && !mounted.contains("in order"), "{mounted}");
        for (name, seed) in [("before", 51), ("after", 52)] {
            let read = fs::read(scene.file(&format!("{name}{round}"))).unwrap();
            assert!(read == bytes(3 << 20, seed), "{name}{round}");
        }
        let checked = scene.run("check pool").ok();
        assert!(checked.contains("no problems"), "{checked}");
    }
    scene.unmount("pool");
}

#[test]
fn a_server_that_takes_little_at_once_will_do_and_one_that_is_read_only_to_read() {
    let Some(scene) = Scene::new(&["a", "far"]) else { return };
    let uri = format!("nbd+unix:///?socket={}", scene.place.path("kit.sock").display());
    let parameters = [
        "blocksize-minimum=4096",
        "blocksize-preferred=4096",
        "blocksize-maximum=65536",
        "blocksize-error-policy=error",
    ];
    let server = Nbdkit::start(&scene.place, &["--filter=blocksize-policy"], &parameters);
    scene.run(&format!("create pool a {uri} --stripe 1M")).ok();
    scene.run("mount pool mnt").ok();
    let data = bytes(5 << 20, 41);
    scene.write_through("file", &data);
    scene.unmount("pool");
    drop(server);
    let _server = Nbdkit::start(&scene.place, &["--readonly"], &[]);
    scene.run("mount pool mnt").refused(2, &[&uri, "--read-only"]);
    scene.run("mount pool mnt --read-only").ok();
    assert_eq!(fs::read(scene.file("file")).unwrap(), data);
    scene.unmount("pool");
    scene.run(&format!("create q {uri} --force")).refused(2, &["exports it read-only"]);
}

#[test]
fn what_cannot_be_a_brick_of_another_server_is_refused() {
    let place = Place::new();
    new_brick(&place, "a", BRICK);
    let volume = |line: &str| place.run(&format!("volume {line}"));
    let nowhere = place.uri("m0");
    volume(&format!("create pool a {nowhere}"))
        .refused(2, &[&nowhere, "check that a server listens"]);
    volume(&format!("examine {nowhere}")).refused(4, &["check that a server listens"]);
    volume("create pool nbd://").refused(2, &["is no host", "nbd+unix:///EXPORT?socket=PATH"]);
    volume("create pool nbds://host/x").refused(2, &["TLS"]);
    place
        .run(&format!("create m -l 1 -n 2 a {nowhere}"))
        .refused(2, &["check that a server listens there"]);
    place
        .run(&format!("serve a {nowhere} --nbd unix:x.sock"))
        .refused(2, &["check that a server listens there"]);

    let far = Far::new();
    let server = far.serve();
    let uri = far.uri();
    volume(&format!("create pool {uri} {uri}")).refused(2, &["given twice"]);
    volume(&format!("create pool {}", far.place.uri("none")))
        .refused(2, &["refused export \"none\""]);
    // What is on an export counts as what is on a disk.
    let mut content = vec![0; 64 << 10];
    content[1080..1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(far.place.path("ext"), &content).unwrap();
    far.place.copy_in("ext", "m0");
    volume(&format!("create pool a {uri}")).refused(2, &["ext", "--force"]);
    volume(&format!("create pool a {uri} --force")).ok();
    volume(&format!("create again {uri}")).refused(2, &["braid volume", "--force"]);
    // One export by two names, which only shows when it is written to.
    let tcp = far.tcp_uri(&server);
    volume(&format!("create pool {uri} {tcp} --force")).refused(2, &["are the same export"]);
}

#[test]
fn a_weight_counts_beside_default_ones_and_a_name_is_given_once() {
    let place = Place::new();
    for brick in ["a", "b", "c", "d"] {
        new_brick(&place, brick, BRICK);
    }
    let created = place.run("volume create pool a b c --weight a=2 --weight c=0.5 --json").ok();
    let created: serde_json::Value = serde_json::from_str(&created).unwrap();
    let weights: Vec<f64> =
        (0..3).map(|at| created["bricks"][at]["weight"].as_f64().unwrap()).collect();
    assert_eq!(weights, [2.0, 1.0, 0.5], "{created}");
    let uuid = created["uuid"].as_str().unwrap();
    let words = ["there is a volume pool already", uuid, "another name"];
    place.run("volume create pool d").refused(2, &words);
    place.run("volume create pool a b c --force").ok();
    place.run("volume create other d").ok();
    let examined = place.run("volume examine d").ok();
    assert!(examined.contains("Weight : 1\n"), "{examined}");
}

#[test]
fn what_is_typed_about_volumes_is_understood_and_shown() {
    let Some(scene) = Scene::new(&["a", "b"]) else { return };
    scene.run("create pool a b").ok();
    let is_off = || {
        let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
        switch.map(|switch| switch.trim() == "N")
    };
    let before = is_off().unwrap_or(false);
    let said = scene.run("mount pool mnt").ok();
    assert!(said.contains(" in 2 bricks, "), "{said}");
    let told = said.contains("note: FUSE over io_uring is switched off");
    match scene.status()["over_io_uring"].as_bool().unwrap() {
        true => assert!(!told, "{said}"),
        // Whoever measures beside this test may move the switch.
        false if before && is_off().unwrap() => assert!(told, "{said}"),
        false => {}
    }
    fs::create_dir_all(scene.file("dir/below")).unwrap();
    scene.write_by_child("dir/one", &[1; 100_000]);
    scene.write_by_child("dir/below/two", &[2; 100_000]);
    // A directory is all files below it.
    scene.run("migrate pool mnt/dir --to b").ok();
    scene.run("jobs pool --speed 20M").ok();
    let shown = scene.run("jobs pool").ok();
    assert!(shown.contains("no job") && shown.contains("at most 21.0 MB/s"), "{shown}");
    assert!(scene.run("status pool").ok().contains("jobs move at most"));
    assert_eq!(scene.status()["job_latency"], serde_json::Value::Null);
    scene.run("jobs pool --latency 0.5").ok();
    let shown = scene.run("jobs pool").ok();
    assert!(shown.contains("longer than 500 µs (--latency)"), "{shown}");
    assert_eq!(scene.status()["job_latency"], 500);
    let said = scene.run("jobs pool --latency auto").ok();
    assert!(said.contains("the kind of its bricks"), "{said}");
    assert!(!scene.run("status pool").ok().contains("longer than"));
    assert!(scene.place.run("status").ok().starts_with("pool  volume "));
    let uuid = scene.status()["uuid"].as_str().unwrap().to_string();
    assert!(scene.run("list").ok().contains(&uuid));
    scene.run("forget pool").refused(2, &["is mounted at", "unmount it first"]);
    // By the name of the directory, as it stands here.
    scene.unmount("mnt");
    for brick in ["a", "b"] {
        fs::remove_file(scene.place.path(brick)).unwrap();
    }
    assert!(scene.run("list --json").ok().contains("its bricks are gone"));
    scene.run("forget pool").ok();
    assert!(scene.run("list").ok().contains("no volume is known"));
    scene.run("forget pool").refused(2, &["no volume pool is known"]);
}
