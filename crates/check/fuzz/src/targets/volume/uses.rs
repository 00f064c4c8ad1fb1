//! All that can be done to a volume, whatever comes back.

use super::doing::doing;
use braid_filesystem::{
    Allocate, Caller, Errno, FileFlags, FileSystem, Ino, Kind, NewNode, ROOT, RenameFlags, Seek,
    SetAttr, Writing, XattrMode,
};
use braid_shard::Shard;
use braid_volume::{NewJob, Volume};
use std::rc::Rc;

/// Who makes everything.
pub const ME: Caller = Caller { uid: 7, gid: 8 };
/// What a repair gives a name may have counts to be repaired, and the name's directory too.
const REPAIRS_MAX: u32 = 3;
/// Directories in each other that are walked.
const DEPTH_MAX: u32 = 8;
/// Files that are looked at in one walk, and directories that are emptied: one may be in itself.
const FILES_MAX: u32 = 60;

/// Writes `len` bytes.
pub async fn write(
    shard: &Shard,
    volume: &Volume,
    ino: Ino,
    offset: u64,
    len: usize,
) -> Result<(), Errno> {
    let buf = shard.pool().copy_of(&vec![7; len]).freeze();
    volume.write(ino, offset, buf, Writing::default()).await
}

/// Everything.
///
/// # Errors
/// When a repair leaves what the next one repairs.
pub async fn all(shard: &Shard, volume: &Rc<Volume>) -> Result<(), String> {
    doing("checking");
    let _ = volume.check(false).await;
    let mut left = FILES_MAX;
    walk(shard, volume, ROOT, 0, &mut left).await;
    for job in [NewJob::Balance, NewJob::Defrag, NewJob::Remove { brick: 1 }] {
        doing(format!("starting {job:?}"));
        if volume.start_job(job).await.is_ok() {
            doing(format!("waiting for {job:?}"));
            let _ = volume.wait_job().await;
        }
    }
    repair(volume).await?;
    let (mut left, mut to_remove) = (FILES_MAX, FILES_MAX);
    walk(shard, volume, ROOT, 0, &mut left).await;
    remove(volume, ROOT, 0, &mut to_remove).await;
    doing("closing");
    let _ = volume.status();
    let _ = volume.close().await;
    Ok(())
}

/// Repairs it, and then there is nothing to be repaired.
async fn repair(volume: &Rc<Volume>) -> Result<(), String> {
    for time in 0..REPAIRS_MAX {
        doing("repairing");
        let Ok(report) = volume.check(true).await else { return Ok(()) };
        if report.repaired == 0 {
            return Ok(());
        }
        if time + 1 == REPAIRS_MAX {
            return Err(format!("repaired {REPAIRS_MAX} times, and still: {:?}", report.problems));
        }
    }
    Ok(())
}

/// Does everything to a file and to what is below it.
async fn walk(shard: &Shard, volume: &Volume, ino: Ino, depth: u32, left: &mut u32) {
    if depth > DEPTH_MAX || *left == 0 {
        return;
    }
    *left -= 1;
    doing(format!("looking at {ino}"));
    let Ok(attr) = volume.attr(ino).await else { return };
    let _ = volume.parent(ino).await;
    let _ = volume.read_link(ino).await;
    for name in volume.xattrs(ino).await.unwrap_or_default() {
        let _ = volume.xattr(ino, &name).await;
    }
    let _ = volume.set_xattr(ino, b"user.new", b"x", XattrMode::Any).await;
    doing(format!("reading {ino}"));
    for at in [0, 4096, 100_000, 3 << 20, attr.size.saturating_sub(5000), u64::MAX >> 1] {
        let _ = volume.read(ino, at, 70_000).await;
        let _ = volume.seek(ino, at, Seek::Data).await;
        let _ = volume.seek(ino, at, Seek::Hole).await;
    }
    doing(format!("writing {ino}"));
    let _ = write(shard, volume, ino, 60_000, 70_000).await;
    let _ = volume.allocate(ino, Allocate::PunchHole, 10_000, 60_000).await;
    let _ = volume.allocate(ino, Allocate::Reserve { keep_size: false }, 0, 200_000).await;
    let mut cookie = 0;
    for _ in 0..20 {
        doing(format!("listing {ino}"));
        let entries = volume.read_dir(ino, cookie, 100).await.unwrap_or_default();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in entries {
            doing(format!("looking up in {ino}"));
            let _ = volume.lookup(ino, &entry.name).await;
            Box::pin(walk(shard, volume, entry.ino, depth + 1, left)).await;
        }
    }
    doing(format!("making and renaming in {ino}"));
    for (name, kind) in [(b"new".as_slice(), Kind::File), (b"newer", Kind::Directory)] {
        let _ = volume
            .make(ME, ino, name, NewNode { kind, perm: 0o644, umask: 0, rdev: 0, target: b"" })
            .await;
    }
    let node = NewNode { kind: Kind::File, perm: 0o644, umask: 0, rdev: 0, target: b"" };
    if let Ok(made) = volume.make_unnamed(ME, ino, node).await {
        let _ = volume.link(made.attr.ino, ino, b"named").await;
    }
    let _ = volume.link(ino, ROOT, b"linked").await;
    let _ = volume.rename(ino, b"new", ROOT, b"renamed", RenameFlags::default()).await;
    doing(format!("truncating {ino}"));
    let set = SetAttr { size: Some(70_000), perm: Some(0o640), ..SetAttr::default() };
    let _ = volume.set_attr(ME, ino, set).await;
    let _ = volume.fsync(ino, false).await;
}

/// Removes what can be removed.
async fn remove(volume: &Volume, dir: Ino, depth: u32, left: &mut u32) {
    if depth > DEPTH_MAX || *left == 0 {
        return;
    }
    *left -= 1;
    doing(format!("listing {dir}, to remove what is there"));
    for entry in volume.read_dir(dir, 0, 100).await.unwrap_or_default() {
        Box::pin(remove(volume, entry.ino, depth + 1, left)).await;
        doing(format!("removing {} from {dir}", entry.ino));
        // Damage may have made it immutable.
        for ino in [dir, entry.ino] {
            let _ = volume.set_flags(ino, FileFlags::default()).await;
        }
        let _ = volume.unlink(dir, &entry.name).await;
        let _ = volume.remove_dir(dir, &entry.name).await;
    }
}
