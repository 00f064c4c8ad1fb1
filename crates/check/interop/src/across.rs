//! Arrays whose members are files of one folder, which go from braid's hands into those of a guest's md and back.
//!
//! Member `NR` of array `NAME` is the file `NAME.NR`. What the guest is told assumes that it is in that folder.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use crate::uml;
use braid_array::array::Array;
use braid_array::control::Control;
use braid_device::file::{FileMember, Mode};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_shard::Shard;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a member.
pub fn path(folder: &Path, name: &str, nr: usize) -> PathBuf {
    folder.join(format!("{name}.{nr}"))
}

/// The first `members` members of an array, to be read and written.
///
/// # Panics
/// When one of the files cannot be opened.
pub fn openers(folder: &Path, name: &str, members: usize) -> Vec<Arc<dyn Opener>> {
    (0..members).map(|nr| opener(folder, name, nr)).collect()
}

/// One member of an array, to be read and written.
///
/// # Panics
/// When the file cannot be opened.
pub fn opener(folder: &Path, name: &str, nr: usize) -> Arc<dyn Opener> {
    let member = FileMember::open(path(folder, name, nr), Mode::ReadWrite);
    Arc::new(member.expect("a member opens"))
}

/// Copies the members as they are now to those of another array: so a death leaves them.
///
/// # Panics
/// When one of the files cannot be copied.
pub fn die(folder: &Path, name: &str, as_name: &str, members: usize) {
    for nr in 0..members {
        std::fs::copy(path(folder, name, nr), path(folder, as_name, nr)).expect("it is copied");
    }
}

/// Bytes in which no two places look alike.
pub fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Writes `bytes` to the start of a running array.
///
/// # Panics
/// When they are not written.
pub async fn write(shard: &Shard, array: &Array, bytes: &[u8]) {
    let device = array.open(shard).expect("it runs");
    let bytes = shard.pool().copy_of(bytes).freeze();
    let written = IoSets::new(shard).one(&*device, Request::write(0, bytes, true)).await;
    written.result.expect("it is written");
}

/// What an array is found to hold.
pub struct Found {
    /// Bytes of the array.
    pub size: u64,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Sectors in which a check found redundancy that does not match.
    pub mismatch_cnt: u64,
}

/// Waits for the jobs of a running array, checks it, reads its first `len` bytes, and stops it.
///
/// # Panics
/// When it does not run, or no check starts.
pub async fn check(shard: &Shard, array: &Array, len: usize) -> Found {
    let control = Control::find(shard, array.id()).expect("it runs");
    control.jobs().wait_idle().await;
    control.jobs().start_check().expect("a check starts");
    control.jobs().wait_idle().await;
    read(shard, array, len).await
}

/// Reads the first `len` bytes of a running array, and stops it.
///
/// # Panics
/// When it does not run.
pub async fn read(shard: &Shard, array: &Array, len: usize) -> Found {
    let control = Control::find(shard, array.id()).expect("it runs");
    let device = array.open(shard).expect("it runs");
    let read = Request::read(0, shard.pool().get(len));
    let bytes = match IoSets::new(shard).one(&*device, read).await.op {
        Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.to_vec()).collect(),
        _ => Vec::new(),
    };
    let mismatch_cnt = control.status().await.mismatch_cnt;
    drop(device);
    control.stop().await;
    Found { size: array.info().device.size, bytes, mismatch_cnt }
}

/// The start of a script: it is in the folder, and `settle` waits until md0 does nothing (level 0 never does anything), looking
/// so often at most, twenty times a second.
pub fn preamble(looks: u32) -> String {
    format!(
        "cd {}\nsettle() {{ for i in $(seq {looks}); do [ -e /sys/block/md0/md/sync_action ] || break; \
         [ \"$(cat /sys/block/md0/md/sync_action)\" = idle ] && break; sleep 0.05; done; }}\n",
        uml::SHARED
    )
}

/// Adds to a script: each member is a loop device. Gives those, separated by spaces.
pub fn losetup(script: &mut String, name: &str, members: usize) -> String {
    let mut devices = Vec::new();
    for nr in 0..members {
        let _ = writeln!(script, "losetup /dev/loop{nr} {name}.{nr}");
        devices.push(format!("/dev/loop{nr}"));
    }
    devices.join(" ")
}

/// Adds to a script: md runs the array, goes on with what it finds to be done, and checks it. Says lines that
/// [`md_found`] tells, about the start of the array compared with the first `compared` bytes of the file `content`.
pub fn md_checks(script: &mut String, name: &str, devices: &str, compared: usize) {
    let _ = writeln!(
        script,
        "mdadm --assemble --run --quiet /dev/md0 {devices}\nmdadm --readwrite --quiet /dev/md0\nsleep 0.5; settle\n\
         echo {name}: $(blockdev --getsize64 /dev/md0) bytes\n\
         echo check > /sys/block/md0/md/sync_action; sleep 0.2; settle\n\
         echo {name}: mismatch_cnt $(cat /sys/block/md0/md/mismatch_cnt) degraded $(cat /sys/block/md0/md/degraded)\n\
         cmp -n {compared} /dev/md0 content && echo {name}: same\n\
         mdadm --stop --quiet /dev/md0; losetup -D"
    );
}

/// The lines that [`md_checks`] has md say of an array of `size` bytes with which all is well.
pub fn md_found(name: &str, size: u64) -> [String; 3] {
    [
        format!("{name}: {size} bytes"),
        format!("{name}: mismatch_cnt 0 degraded 0"),
        format!("{name}: same"),
    ]
}
