//! A member that can be reached in two ways, as a file and through a loop device: who has it by one keeps all others off by
//! the other. As root, since loop devices are root's.

use crate::support::Place;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::File;
use std::os::fd::OwnedFd;

/// A loop device over a file of `place`, detached in the end.
struct Loop<'a> {
    place: &'a Place,
    node: String,
}

impl<'a> Loop<'a> {
    fn over(place: &'a Place, file: &str) -> Loop<'a> {
        let path = place.path(file).display().to_string();
        let node = place.tool("losetup", &["--find", "--show", &path]).ok().trim().to_string();
        Loop { place, node }
    }

    /// As md, a mount or LVM holds it.
    fn held(&self) -> Result<OwnedFd, Errno> {
        open(&self.node, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
    }
}

impl Drop for Loop<'_> {
    fn drop(&mut self) {
        self.place.tool("losetup", &["--detach", &self.node]);
    }
}

fn mirror(place: &Place) {
    place.members(&["a", "b"]);
    place.run("create mirror -l 1 -n 2 --assume-clean a b").ok();
}

#[test]
fn a_file_is_not_served_while_somebody_holds_its_loop_device() {
    let place = Place::new();
    mirror(&place);
    let device = Loop::over(&place, "b");
    let held = device.held().unwrap();
    let line = "serve a b --nbd unix:nbd.sock --strict";
    place.run(line).refused(2, &["in use through the loop device", &device.node, "losetup"]);
    place.run("examine b").ok();
    drop(held);
    let server = place.serve("a b --strict");
    assert_eq!(device.held().err(), Some(Errno::BUSY));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
    device.held().unwrap();
}

#[test]
fn a_loop_device_is_not_served_while_somebody_has_its_file_locked() {
    let place = Place::new();
    mirror(&place);
    let device = Loop::over(&place, "b");
    let file = File::open(place.path("b")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let line = format!("serve a {} --nbd unix:nbd.sock --strict", device.node);
    place.run(&line).refused(2, &["its file", "in use by another process"]);
    flock(&file, FlockOperation::Unlock).unwrap();
    let server = place.serve(&format!("a {} --strict", device.node));
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
    flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn one_member_given_by_both_ways_is_refused() {
    let place = Place::new();
    mirror(&place);
    let device = Loop::over(&place, "b");
    let line = format!("serve b {} --nbd unix:nbd.sock --strict", device.node);
    place.run(&line).refused(2, &["in use"]);
}
