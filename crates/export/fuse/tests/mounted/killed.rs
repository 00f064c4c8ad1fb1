//! A server that is killed while a thread of it is in the kernel for its own mount: the thread does not come back by itself, and
//! keeps /dev/fuse open.

use crate::lifecycle::{LONG, is_gone};
use crate::support::{cannot_mount, open};
use braid_fuse::{Mount, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Not a test of its own: the guard that [`server_in_its_own_mount`] has its mount started with.
#[test]
fn guard_of_a_server() {
    let words: Vec<String> = std::env::args().collect();
    let [.., server, thread, connection] = &words[..] else { return };
    let (Ok(server), Ok(thread), Ok(connection)) =
        (server.parse(), thread.parse(), connection.parse())
    else {
        return;
    };
    braid_fuse::guard(server, thread, connection).unwrap();
}

/// Not a test of its own: the server that the others kill. It does not answer a write that it waits for itself.
#[test]
fn server_in_its_own_mount() {
    let Some(dir) = std::env::var_os("BRAID_FUSE_TEST_WAITS_IN").map(PathBuf::from) else { return };
    let shards = braid_shard::threads::start(1).unwrap();
    let mut options = MountOptions::new(&dir, "test");
    let words = ["/proc/self/exe", "--exact", "killed::guard_of_a_server", "--nocapture"];
    options.guard = words.map(Into::into).to_vec();
    let remote = shards.remotes()[0].clone();
    let _mount = Mount::start(options, remote.clone(), open, |_| {}).unwrap();
    // Closing it would write it out.
    let mut dirty = File::create(dir.join("f")).unwrap();
    dirty.write_all(b"x").unwrap();
    let own = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let (_never, waits) = channel::<()>();
    let (begins, begun) = channel();
    remote.run(move |_| {
        begins.send(()).unwrap();
        let _ = waits.recv();
    });
    // Else it might answer the write first.
    begun.recv().unwrap();
    let (send_thread, thread) = channel();
    std::thread::spawn(move || {
        send_thread.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
        rustix::fs::syncfs(own).unwrap();
    });
    let stat = format!("/proc/self/task/{}/stat", thread.recv().unwrap());
    // In a wait that no signal ends.
    while !fs::read_to_string(&stat).unwrap().contains(") D ") {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("mounted");
    std::thread::sleep(LONG);
}

fn serve(dir: &Path) -> Child {
    let mut server = Command::new("/proc/self/exe")
        .args(["--exact", "killed::server_in_its_own_mount", "--nocapture"])
        .env("BRAID_FUSE_TEST_WAITS_IN", dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let said = BufReader::new(server.stdout.take().expect("it is a pipe"));
    assert!(said.lines().any(|line| line.is_ok_and(|line| line.contains("mounted"))));
    server
}

/// The answer that a user of the mount gets who asks the server.
fn error_within(dir: &Path, most: Duration) -> Option<i32> {
    let (send, asked) = channel();
    let file = dir.join("another");
    std::thread::spawn(move || send.send(fs::write(file, "x")));
    let Ok(answer) = asked.recv_timeout(most) else {
        // Else nothing here would end.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(dir, flags);
        panic!("the mount of a dead server hangs");
    };
    answer.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_server_that_is_killed_in_its_own_mount_leaves_no_hanging_one() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path());
    server.kill().unwrap();
    let code = error_within(dir.path(), LONG);
    assert!(is_gone(code), "{code:?}");
    let since = Instant::now();
    while server.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < LONG, "the killed server does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::mount::unmount(dir.path(), UnmountFlags::DETACH).unwrap();
}
