//! Shared by the tests: a file system in memory, mounted on a shard in a folder of its own.

pub mod enabled;
pub mod memory;

use braid_fuse::{Ended, Mount, MountOptions};
use braid_shard::threads::Shards;
use enabled::{Enabled, skip};
use memory::Memory;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};

/// A mounted file system in memory. Unmounted at the drop.
pub struct Mounted {
    pub mount: Option<Mount>,
    pub ended: Receiver<Ended>,
    pub shards: Shards,
    dir: tempfile::TempDir,
    _enabled: Option<Enabled>,
}

/// Says why nothing is tested, and gives true, where FUSE is not to be had.
pub fn cannot_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let root = rustix::process::geteuid().is_root();
    if let Err(error) = &device {
        skip(&format!("/dev/fuse: {error}"));
    } else if !root {
        skip("only root mounts here");
    }
    device.is_err() || !root
}

/// Mounts with the defaults, or `None` where that is not possible.
pub fn mounted() -> Option<Mounted> {
    mounted_with(|_| {})
}

pub fn mounted_with(change: impl FnOnce(&mut MountOptions)) -> Option<Mounted> {
    if cannot_mount() {
        return None;
    }
    let enabled = if crate::OVER_IO_URING { Some(Enabled::new()?) } else { None };
    let dir = tempfile::tempdir().expect("a folder");
    let shards = braid_shard::threads::start(1).expect("a shard");
    let mut options = MountOptions::new(dir.path(), "test");
    options.io_uring = crate::OVER_IO_URING;
    change(&mut options);
    let (send, ended) = channel();
    let remote = shards.remotes()[0].clone();
    let mount = Mount::start(options, remote, open, move |end| {
        let _ = send.send(end);
    });
    let mount = mount.expect("it mounts");
    assert_eq!(mount.is_over_io_uring(), crate::OVER_IO_URING);
    Some(Mounted { mount: Some(mount), ended, shards, dir, _enabled: enabled })
}

/// The shard's file system, made when it is first asked for, so that it can be mounted again and looked into.
pub fn open(shard: &braid_shard::Shard) -> Rc<Memory> {
    #[derive(Default)]
    struct Slot(std::cell::OnceCell<Rc<Memory>>);
    let slot = shard.local::<Slot>();
    Rc::clone(slot.0.get_or_init(|| Memory::new(shard, 4 << 30)))
}

impl Mounted {
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Calls `look` with the file system, on its shard.
    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&Memory) -> T + Send + 'static) -> T {
        let looked = self.shards.remotes()[0].call(move |shard| look(&open(shard)));
        looked.expect("the shard runs")
    }
}
