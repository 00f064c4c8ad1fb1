//! What goes wrong around a server under fio's load: a member truncated to nothing, a filesystem
//! that fills up under the members, a client that is killed while it writes. What is hit gives a
//! failed member or an error, or waits for room; every other export goes on.

use crate::common::fio;
use crate::common::{MIB, Served, Steered, World, open_member};
use braid_array::array::Array;
use braid_array::options::CreateOptions;
use braid_array::status::{ArrayState, Ended, MemberState};
use braid_device::Opener;
use braid_layout::Level;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

const CHUNK: u64 = 64 << 10;
const MEMBER: u64 = 40 * MIB;
/// Looks at the state of things this often; nothing depends on it.
const GLANCE: Duration = Duration::from_millis(5);

fn array(world: &World, name: &str, level: Level, members: &[Arc<dyn Opener>]) -> Arc<Array> {
    let chunk_size = (level != Level::Raid1).then_some(CHUNK);
    let options = CreateOptions { chunk_size, ..CreateOptions::new(name, level, members.len()) };
    let array = world.create(members, options);
    array.sync_speed(u64::MAX);
    array.wait_idle();
    array
}

fn members(world: &World, name: &str, count: usize) -> Vec<Arc<dyn Opener>> {
    (0..count).map(|nr| world.new_member(&format!("{name}-{nr}"), MEMBER)).collect()
}

fn truncate(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(len)).expect("the member can be truncated");
}

/// Waits until clients of `array`, of which `client` is one, have written `more` bytes.
fn wait_written(array: &Arc<Array>, client: &mut fio::Running, more: u64) {
    let written = || array.status().counters.written_bytes;
    let before = written();
    while written() < before + more {
        // A client that has ended writes no more, and this would wait for ever.
        assert!(client.is_running(), "fio ended after {} bytes", written());
        sleep(GLANCE);
    }
}

/// Starts a writer that goes on until it is stopped or meets an error.
fn start_writing(world: &World, served: &Served, array: &Arc<Array>) -> fio::Running {
    fio::start(world.folder(), &fio::writing_on(&served.uri(array)))
}

/// A client can still write all over `array` and read the same back.
fn assert_serves(world: &World, served: &Served, array: &Arc<Array>, seed: u64) {
    fio::run(world.folder(), &fio::verifying(&served.uri(array), seed));
}

#[test]
fn a_member_that_vanishes_under_load_degrades_its_array_and_no_other() {
    let world = World::new();
    let hit = array(&world, "hit", Level::Raid5, &members(&world, "hit", 3));
    let other = array(
        &world,
        "other",
        Level::Raid1,
        &[world.new_member("other-0", 80 * MIB), world.new_member("other-1", 80 * MIB)],
    );
    let served = world.serve(&[&hit, &other]);
    let jobs = fio::verifying(&served.uri(&hit), 1);
    let mut on_hit = fio::start(world.folder(), &jobs);
    let on_other = fio::start(world.folder(), &fio::verifying(&served.uri(&other), 2));
    wait_written(&hit, &mut on_hit, 4 * MIB);
    truncate(&world.folder().join("hit-1"), 0);
    on_hit.verified();
    on_other.verified();
    // Writes find out at the latest.
    assert_serves(&world, &served, &hit, 3);
    let status = hit.status();
    assert_eq!(status.degraded, 1, "{}", status.state_line());
    let gone = status.members.iter().find(|member| member.name.ends_with("hit-1"));
    let gone = gone.expect("it stays listed");
    assert_eq!(gone.state, MemberState::Faulty);
    assert!(gone.fault.is_some());
    assert_eq!(other.status().degraded, 0);

    hit.remove_faulty();
    hit.add(world.new_member("hit-3", MEMBER));
    hit.assert_redundant("after the rebuild");
    fio::run(world.folder(), &fio::verifying_again(&served.uri(&hit), 3));
    drop(served);
    hit.stop();
    other.stop();
}

#[test]
fn when_all_that_held_the_data_is_gone_clients_get_errors_and_other_exports_go_on() {
    let world = World::new();
    let hit = array(&world, "hit", Level::Raid0, &members(&world, "hit", 2));
    let other = array(&world, "other", Level::Raid0, &members(&world, "other", 2));
    let served = world.serve(&[&hit, &other]);
    let mut on_hit = start_writing(&world, &served, &hit);
    wait_written(&hit, &mut on_hit, 4 * MIB);
    truncate(&world.folder().join("hit-0"), 0);
    truncate(&world.folder().join("hit-1"), 0);
    let (ok, said) = on_hit.ended();
    assert!(!ok && said.contains("Input/output error"), "{said}");
    assert_serves(&world, &served, &other, 4);
    drop(served);
    hit.stop();
    other.stop();
}

#[test]
fn clients_killed_while_they_write_leave_the_server_and_the_redundancy_whole() {
    let world = World::new();
    let array = array(&world, "data", Level::Raid5, &members(&world, "data", 3));
    let served = world.serve(&[&array]);
    for _ in 0..5 {
        let (first, mut second) =
            (start_writing(&world, &served, &array), start_writing(&world, &served, &array));
        wait_written(&array, &mut second, 8 * MIB);
        first.kill();
        wait_written(&array, &mut second, 2 * MIB);
        second.kill();
    }
    // Their last requests are carried out, then nothing of them is left.
    while served.connections() > 0 {
        sleep(GLANCE);
    }
    array.assert_redundant("after the clients were killed");
    assert_serves(&world, &served, &array, 5);
    array.assert_redundant("at the end");
    drop(served);
    array.stop();
}

/// Set in the process that has a small filesystem of its own: its mount point.
const SMALL: &str = "BRAID_TEST_SMALL_FILESYSTEM";

/// Runs the test `name` once more in a mount namespace of its own with a tmpfs of 48 MiB, and gives
/// its place to that run; `None` in the run that starts it.
fn on_a_small_filesystem(name: &str) -> Option<std::path::PathBuf> {
    if let Some(place) = std::env::var_os(SMALL) {
        return Some(place.into());
    }
    let place = tempfile::tempdir().expect("a folder to mount on");
    let test = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
        .arg("mount -t tmpfs -o size=48m small \"$1\"; exec \"$2\" --exact \"$3\" --nocapture")
        .arg("sh")
        .args([place.path(), &test, Path::new(name)])
        .env(SMALL, place.path())
        .output()
        .unwrap_or_else(|error| panic!("unshare: {error}; install it with: make setup"));
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "in a user and mount namespace:\n{said}");
    assert!(said.contains("1 passed"), "{name} did not run in its namespace:\n{said}");
    None
}

/// Waits until writes that `client` made wait for space, and gives the names of the members that lack it.
fn wait_until_full(array: &Arc<Array>, client: &mut fio::Running) -> Vec<String> {
    loop {
        let members = array.status().members;
        let full = members.iter().filter(|member| member.waiting_for_space > 0);
        let names: Vec<String> = full.map(|member| member.name.clone()).collect();
        if !names.is_empty() {
            return names;
        }
        assert!(client.is_running(), "fio ended: {:?}", array.status());
        sleep(GLANCE);
    }
}

#[test]
fn an_array_on_a_full_filesystem_waits_until_it_is_stopped_and_others_go_on() {
    let name =
        "bad_clients::an_array_on_a_full_filesystem_waits_until_it_is_stopped_and_others_go_on";
    let Some(small) = on_a_small_filesystem(name) else { return };
    let world = World::new();
    let on_small: Vec<_> = ["a", "b"].map(|name| small.join(name)).to_vec();
    for path in &on_small {
        braid_device::file::create_sparse(path, MEMBER).expect("a sparse file");
    }
    let open = || on_small.iter().map(|path| open_member(path)).collect::<Vec<_>>();
    let hit = array(&world, "hit", Level::Raid0, &open());
    let other = array(&world, "other", Level::Raid0, &members(&world, "other", 2));
    let served = world.serve(&[&hit, &other]);
    let mut on_hit = start_writing(&world, &served, &hit);
    wait_until_full(&hit, &mut on_hit);
    assert_serves(&world, &served, &other, 7);
    assert!(on_hit.is_running());
    // A stop does not wait for room.
    hit.stop();
    let (ok, said) = on_hit.ended();
    assert!(!ok && said.contains("No space left on device"), "{said}");
    drop(served);
    let hit = world.assemble(open());
    world.content(&hit);
    hit.stop();
    other.stop();
}

#[test]
fn an_array_whose_member_has_room_again_goes_on_and_fails_no_member() {
    let name = "bad_clients::an_array_whose_member_has_room_again_goes_on_and_fails_no_member";
    let Some(small) = on_a_small_filesystem(name) else { return };
    let world = World::new();
    let (on_small, other) = (small.join("a"), small.join("other"));
    std::fs::write(&other, vec![1; 32 << 20]).expect("room for another file");
    braid_device::file::create_sparse(&on_small, MEMBER).expect("a sparse file");
    let mut all = members(&world, "hit", 2);
    all.push(open_member(&on_small));
    let hit = array(&world, "hit", Level::Raid5, &all);
    let served = world.serve(&[&hit]);
    let mut on_hit = fio::start(world.folder(), &fio::verifying(&served.uri(&hit), 9));
    let full = wait_until_full(&hit, &mut on_hit);
    assert_eq!(full, [on_small.display().to_string()]);
    std::fs::remove_file(&other).expect("the other file goes");
    on_hit.verified();
    let status = hit.status();
    assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
    assert!(status.members.iter().all(|member| member.waiting_for_space == 0), "{status:?}");
    // It says so until the next look at the members, a moment later.
    while hit.status().state.contains(&ArrayState::NoSpace) {
        sleep(GLANCE);
    }
    hit.assert_redundant("after there was room again");
    drop(served);
    let left = hit.with(|control| async move { control.stop().await });
    assert!(left.is_well() && left.ended == Ended::Clean, "{left:?}");
}
