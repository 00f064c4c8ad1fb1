//! All that a server does with members that it is given, whatever they hold.

use super::super::clock;
use super::super::target::{Verdict, must};
use super::disk::Disk;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::error::AssembleError;
use braid_array::metadata::superblock::examine;
use braid_array::options::{AssembleOptions, Context, SyncSpeed};
use braid_array::salvage::{cautions, freshest, salvage};
use braid_device::{IoSets, Opener, Request, Target};
use braid_format::superblock::Superblock;
use braid_shard::Shard;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Virtual time for which an array runs: its jobs start, an idle array is marked clean, bits are cleared.
const RUNS: u64 = 12_000_000_000;
/// Bytes that its caches may take.
const CACHES_MAX: u64 = 8 << 20;
/// Bytes of each request.
const PIECE: u64 = 12 << 10;

/// What arrays are assembled with.
pub fn context(shard: &Shard) -> Context {
    let made = AtomicU64::new(0);
    Context {
        shard: shard.clone(),
        remotes: vec![shard.remote()],
        wall_clock: Arc::new(|| 1_700_000_000),
        has_ended: Arc::new(|_| false),
        new_uuid: Arc::new(move || {
            let nr = made.fetch_add(1, Ordering::Relaxed);
            let mut uuid = [0x5a; 16];
            uuid[..8].copy_from_slice(&nr.to_le_bytes());
            uuid
        }),
    }
}

/// Everything. `force` and `run` are the options of `serve`.
///
/// # Errors
/// When what must hold does not.
pub fn all(disks: &[Disk], force: bool, run: bool) -> Result<Verdict, String> {
    let only_read: Vec<Disk> = disks.iter().map(|disk| disk.copy().read_only()).collect();
    let read =
        on_a_shard(&only_read, |shard, disks| async move { read_only(&shard, &disks).await });
    must(!only_read.iter().any(Disk::was_written), "what is only read is not written to")?;
    let written = on_a_shard(disks, move |shard, disks| async move {
        let mut accepted = false;
        for uuid in uuids(&shard, &disks).await {
            let options = AssembleOptions {
                uuid: Some(uuid),
                force,
                start_degraded: run,
                sync_speed: SyncSpeed { min_kib: 0, max_kib: 1 },
                memory_max: CACHES_MAX,
                ..AssembleOptions::default()
            };
            let Ok(array) = assembled(&context(&shard), openers(&disks), options).await else {
                continue;
            };
            accepted = true;
            read_and_write(&shard, &*array).await;
            shard.sleep(RUNS).await;
            read_and_write(&shard, &*array).await;
            stop(&shard, &array).await;
        }
        accepted
    });
    Ok(if written || read { Verdict::Accepted } else { Verdict::Refused })
}

/// Runs `work` on copies of the members, on a shard of its own.
fn on_a_shard<T: 'static, W: Future<Output = T> + 'static>(
    disks: &[Disk],
    work: impl FnOnce(Shard, Vec<Disk>) -> W,
) -> T {
    /// Tasks hold their shard and the shard its tasks: what an input leaves running would stay, with all its memory.
    struct Abandoned(Shard);
    impl Drop for Abandoned {
        fn drop(&mut self) {
            self.0.abandon();
        }
    }
    let shard = Abandoned(clock::shard());
    shard.0.block_on(work(shard.0.clone(), disks.to_vec()))
}

fn openers(disks: &[Disk]) -> Vec<Arc<dyn Opener>> {
    disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Opener>).collect()
}

/// The superblocks that can be read.
async fn superblocks(shard: &Shard, disks: &[Disk]) -> Vec<Superblock> {
    let mut found = Vec::new();
    for disk in disks {
        found.extend(examine(shard, disk).await.ok().and_then(|examined| examined.superblock));
    }
    found
}

/// The arrays that the members belong to.
async fn uuids(shard: &Shard, disks: &[Disk]) -> Vec<[u8; 16]> {
    let mut uuids: Vec<_> =
        superblocks(shard, disks).await.iter().map(|found| found.set_uuid).collect();
    uuids.sort_unstable();
    uuids.dedup();
    uuids
}

/// Assembles the array of those members that have a superblock, as a server does that was given others too.
pub async fn assembled(
    context: &Context,
    openers: Vec<Arc<dyn Opener>>,
    options: AssembleOptions,
) -> Result<Arc<Array>, AssembleError> {
    let mut members = Vec::new();
    for opener in openers {
        let examined = examine(&context.shard, &*opener).await;
        if examined.is_ok_and(|examined| examined.superblock.is_some()) {
            members.push(opener);
        }
    }
    assemble(context, members, options).await
}

/// As `serve --read-only`.
async fn read_only(shard: &Shard, disks: &[Disk]) -> bool {
    let mut accepted = false;
    for uuid in uuids(shard, disks).await {
        let context = context(shard);
        let options = AssembleOptions {
            uuid: Some(uuid),
            read_only: true,
            force: true,
            start_degraded: true,
            memory_max: CACHES_MAX,
            ..AssembleOptions::default()
        };
        if let Ok(array) = assembled(&context, openers(disks), options).await {
            accepted = true;
            read(shard, &*array).await;
            stop(shard, &array).await;
        }
        // The layers above are looked for through this, also where the array could be assembled.
        let mut members = Vec::new();
        for opener in openers(disks) {
            let examined = examine(shard, &*opener).await;
            if examined.is_ok_and(|examined| examined.superblock.is_some()) {
                members.push(opener);
            }
        }
        if let Ok(array) = salvage(&context, members, "looked at".to_string(), Some(uuid)).await {
            accepted = true;
            read(shard, &array).await;
            let _ = (array.degraded(), array.left_out(), array.warnings(), array.members().len());
            array.stop();
        }
    }
    if let Some(freshest) = freshest(&superblocks(shard, disks).await) {
        let _ = cautions(freshest, true);
    }
    accepted
}

/// Places in a device of `size` bytes: at its ends, and some between.
fn places(size: u64, block: u64) -> impl Iterator<Item = u64> {
    let last = size.saturating_sub(PIECE);
    [0, 60 << 10, 8 << 20, size / 3, size / 2, last]
        .into_iter()
        .map(move |place| place.min(last) / block * block)
}

async fn read(shard: &Shard, target: &dyn Target) {
    let Ok(device) = target.open(shard) else { return };
    let info = device.info().clone();
    let len = PIECE.min(info.size);
    for place in places(info.size, info.logical_block.into()) {
        let request = Request::read(place, shard.pool().get(len as usize));
        let _ = IoSets::new(shard).one(&*device, request).await;
    }
}

/// Reads and writes in some places.
pub async fn read_and_write(shard: &Shard, target: &dyn Target) {
    read(shard, target).await;
    let Ok(device) = target.open(shard) else { return };
    let info = device.info().clone();
    let len = PIECE.min(info.size);
    for place in places(info.size, info.logical_block.into()) {
        let bytes = shard.pool().copy_of(&vec![7; len as usize]).freeze();
        let _ = IoSets::new(shard).one(&*device, Request::write(place, bytes, false)).await;
    }
    let _ = IoSets::new(shard).one(&*device, Request::flush()).await;
}

/// Asks for all that there is to know, and stops the array.
pub async fn stop(shard: &Shard, array: &Array) {
    if let Some(control) = Control::find(shard, array.id()) {
        let status = control.status().await;
        let _ = status.state_line();
        control.stop().await;
    }
}
