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

/// The start of a script: it is in the folder, and has functions about md0, in which `looks` bounds how often one of them
/// looks, twenty times a second. To start a program takes 30 ms in a guest, so that none of them does while it waits.
pub fn preamble(looks: u32) -> String {
    format!("cd {}\nlooks={looks}\n{}", uml::SHARED, FUNCTIONS)
}

/// See [`preamble`].
const FUNCTIONS: &str = r#"
echo 1000000 > /proc/sys/dev/raid/speed_limit_min
echo 1000000 > /proc/sys/dev/raid/speed_limit_max
md=/sys/block/md0/md
exec 9<> <(:)
pause() { read -r -t 0.05 -u 9; }
# await COMMAND...: until it succeeds; says so when it never does
await() { local look; for ((look = 0; look < looks; look++)); do "$@" && return; pause; done; echo "waited in vain: $*"; return 1; }
# is ATTRIBUTE PATTERN: false when there is no such attribute
is() { local value; { read -r value < $md/$1; } 2> /dev/null; [[ $value == $2 ]]; }
# differs ATTRIBUTE PATTERN: true when there is no such attribute
differs() { ! is "$@"; }
# idle: md does nothing (levels without redundancy never do anything)
idle() { [ ! -e $md/sync_action ] || is sync_action idle; }
settle() { await idle; }
# whole: nothing is to be resynced, rebuilt, replaced or moved any more
whole() {
  local member state
  [ -e $md/sync_action ] || return 0
  is resync_start none && is reshape_position none && idle || return 1
  for member in $md/dev-*; do
    { read -r state < $member/state; } 2> /dev/null
    case $state in
      *faulty*) ;;
      *replacement*) return 1 ;;
      *spare*) is degraded 0 || return 1 ;;
    esac
  done
}
check_begun() { echo check > $md/sync_action; } 2> /dev/null
check_ended() { [ ! -e $md/sync_action ] || { check_begun && settle && is last_sync_action check; }; }
# check: of the redundancy, to its end
check() { await check_ended; }
# freeze: md stops what it does, for good, and says on the members how far that has come
recorded() { is sync_action frozen && differs array_state write-pending; }
freeze() { echo frozen > $md/sync_action; await recorded; sync; }
# stop: also while a job has yet to end
stop() { await mdadm --stop --quiet /dev/md0; losetup -D; }
# synced SECTORS: a job has come so far
synced() { local done rest; { read -r done rest < $md/sync_completed; } 2> /dev/null; [[ $done != none ]] && ((done >= $1)); }
# clean: nothing has been written for a while, and the members say so
clean() { is array_state clean || is array_state broken || is array_state readonly; }
"#;

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
        "mdadm --assemble --run --quiet /dev/md0 {devices}\nmdadm --readwrite --quiet /dev/md0\nawait whole\n\
         echo {name}: $(blockdev --getsize64 /dev/md0) bytes\n\
         check\n\
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
