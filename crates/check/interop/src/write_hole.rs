//! Rows that a crash leaves half written (the write hole), and what the other members then say of one that is missing.
//!
//! An array is filled with one version of its content. After that only the first data chunk of each row is written, block
//! by block and many at a time, now with the one version and now with the other, until the power fails ([`crate::cut`]). Whichever member is missing
//! when the array starts again: what lies in the other chunks was written long before, and must be there. Without a
//! consistency policy that closes the hole it is not, where parity of a half-written row goes with other data.

use crate::across::{opener, openers, path};
use crate::by_braid::{Outcome, own_context, text};
use crate::cut::{Power, Powered};
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::options::AssembleOptions;
use braid_device::{Device, IoSets, Op, Opener, Request, Target};
use braid_layout::{Layout, Level, Parity, Spec, default_layout};
use braid_shard::Shard;
use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Members of the array, all in slots.
pub const MEMBERS: usize = 4;
/// Bytes of each member.
pub const MEMBER: u64 = 5 << 20;
/// Bytes of the device that a write journal is on, where an array has one: after the members.
pub const JOURNAL: u64 = 8 << 20;
/// Bytes of a chunk.
pub const CHUNK: u64 = 64 << 10;
/// Rows of the array.
pub const ROWS: u64 = 40;
/// Bytes that are written at once.
pub const BLOCK: usize = 4096;
/// The victim says that nothing is written any more.
const OFF: &str = "off";
/// Writes under way at the same time.
const DEPTH: usize = 16;
const BLOCKS_PER_CHUNK: u64 = CHUNK / BLOCK as u64;

/// An array of this page, of level 4, 5 or 6 and with its default layout.
#[derive(Clone)]
pub struct HalfWritten {
    shape: Parity,
}

/// One of the two versions of all bytes of an array of `blocks` blocks.
fn version(nr: u64, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|block| block_of(nr, block)).collect()
}

fn block_of(nr: u64, block: u64) -> Vec<u8> {
    let first = (block * 2 + nr + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = 0..BLOCK as u64 / 8;
    words.flat_map(|word| first.wrapping_add(word << 7).to_le_bytes()).collect()
}

impl HalfWritten {
    /// # Errors
    /// A level without parity.
    pub fn new(level: Level) -> Outcome<HalfWritten> {
        let spec = Spec {
            level,
            layout: default_layout(level),
            chunk_size: CHUNK,
            raid_disks: MEMBERS,
            component_size: ROWS * CHUNK,
            member_sizes: Vec::new(),
        };
        match Layout::new(&spec).map_err(text)? {
            Layout::Parity(shape) => Ok(HalfWritten { shape }),
            _ => Err(format!("{level} has no parity")),
        }
    }

    /// Bytes of the array.
    pub fn size(&self) -> u64 {
        self.shape.array_size()
    }

    /// All bytes of one of the two versions; the array is filled with version 0.
    pub fn version(&self, nr: u64) -> Vec<u8> {
        version(nr, self.size() / BLOCK as u64)
    }

    /// Blocks from the start of one row to that of the next.
    pub fn row_blocks(&self) -> u64 {
        self.shape.stripe_size() / BLOCK as u64
    }

    /// Compares what an array without the members in the slots of `missing` holds. Of the blocks that were being written,
    /// so many may be neither version where they were on a missing member: `torn_max`.
    ///
    /// # Errors
    /// The first block that is wrong.
    pub fn compare(&self, found: &[u8], missing: &[usize], torn_max: usize) -> Outcome<()> {
        if found.len() as u64 != self.size() {
            return Err(format!("{} bytes in place of {}", found.len(), self.size()));
        }
        let mut torn = 0;
        for (block, bytes) in found.chunks(BLOCK).enumerate() {
            let block = block as u64;
            let (row, chunk, _) = self.shape.locate(block * BLOCK as u64);
            let is_written = chunk == 0;
            if bytes == block_of(0, block) || is_written && bytes == block_of(1, block) {
                continue;
            }
            if !is_written {
                return Err(format!(
                    "block {block}, chunk {chunk} of row {row}, which nobody was writing, is lost"
                ));
            }
            torn += 1;
            if torn > torn_max || !missing.contains(&self.shape.data_slot(row, chunk)) {
                return Err(format!("block {block} of row {row} is neither the old nor the new"));
            }
        }
        Ok(())
    }
}

/// The members of array `name` but those of the slots `missing`, and its journal's device if it has one.
pub fn devices(folder: &Path, name: &str, missing: &[usize]) -> Vec<usize> {
    let journal = path(folder, name, MEMBERS).exists();
    (0..MEMBERS + usize::from(journal)).filter(|nr| !missing.contains(nr)).collect()
}

/// Assembles the members of array `name` but those of the slots `missing`, by force if asked to, waits for what is then to be done, and gives all
/// bytes of the array; with all members there, redundancy must match.
///
/// # Errors
/// What could not be done, or mismatches.
pub fn read(
    shard: &Shard,
    folder: &Path,
    name: &str,
    missing: &[usize],
    force: bool,
) -> Outcome<Vec<u8>> {
    let context = own_context(shard);
    let there = devices(folder, name, missing).into_iter();
    let given = there.map(|nr| opener(folder, name, nr)).collect();
    let (on, complete) = (shard.clone(), missing.is_empty());
    shard.block_on(async move {
        let options = AssembleOptions { force, ..AssembleOptions::default() };
        let array = assemble(&context, given, options).await.map_err(text)?;
        let control = Control::find(&on, array.id()).ok_or("the array has no control")?;
        let device = array.open(&on).map_err(text)?;
        let bytes = read_all(&on, &*device).await;
        if complete {
            control.jobs().wait_idle().await;
            control.jobs().start_check().map_err(text)?;
            control.jobs().wait_idle().await;
        }
        let mismatches = control.status().await.mismatch_cnt;
        drop(device);
        control.stop().await;
        match mismatches {
            0 => bytes,
            some => Err(format!("a check counts {some} mismatches")),
        }
    })
}

async fn read_all(shard: &Shard, device: &dyn Device) -> Outcome<Vec<u8>> {
    const STEP: u64 = 1 << 20;
    let (sets, size) = (IoSets::new(shard), device.info().size);
    let mut bytes = Vec::new();
    for at in (0..size).step_by(STEP as usize) {
        let buf = shard.pool().get(STEP.min(size - at) as usize);
        let outcome = sets.one(device, Request::read(at, buf)).await;
        outcome.result.map_err(|error| format!("reading at byte {at}: {error}"))?;
        let Op::Read(bufs) = outcome.op else { return Err("a read gave no bytes".to_owned()) };
        bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
    }
    Ok(bytes)
}

/// What the victim does: assembles the array, and writes to it as this page says. When so many writes were acknowledged, the
/// power of the members is cut; says "off" when nothing is written any more, and waits to be killed.
///
/// # Errors
/// What could not be done.
pub fn victim(folder: &Path, name: &str, level: Level, (seed, writes): (u64, u64)) -> Outcome<()> {
    let half = HalfWritten::new(level)?;
    let shard = Shard::with_ring(0).map_err(text)?;
    let (context, power) = (own_context(&shard), Power::on());
    let powered = |opener| Arc::new(Powered::new(opener, "", &power)) as Arc<dyn Opener>;
    let given = openers(folder, name, devices(folder, name, &[]).len());
    let given = given.into_iter().map(powered).collect();
    let watched = Arc::clone(&power);
    std::thread::spawn(move || {
        while !watched.fails() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Enough for all that waits for nobody; what waits for a write that did not get through waits for ever.
        std::thread::sleep(Duration::from_millis(100));
        watched.off();
        println!("{OFF}");
    });
    let on = shard.clone();
    shard.block_on(async move {
        let array = assemble(&context, given, AssembleOptions::default()).await.map_err(text)?;
        let device = array.open(&on).map_err(text)?;
        let left = Rc::new(Cell::new(writes));
        let acknowledge = move || {
            left.set(left.get().saturating_sub(1));
            if left.get() == 0 && left.replace(u64::MAX) == 0 {
                power.cut(seed);
            }
        };
        for nr in 1..DEPTH {
            let (half, on, device) = (half.clone(), on.clone(), Rc::clone(&device));
            let acknowledge = acknowledge.clone();
            on.clone().spawn(async move {
                // The other tasks fail in the same way, and the first says it.
                let _ = write_on(&half, &on, &*device, seed ^ nr as u64, acknowledge).await;
            });
        }
        write_on(&half, &on, &*device, seed, acknowledge).await
    })
}

async fn write_on(
    half: &HalfWritten,
    shard: &Shard,
    device: &dyn Device,
    seed: u64,
    acknowledge: impl Fn(),
) -> Outcome<()> {
    let (sets, mut random) = (IoSets::new(shard), fastrand::Rng::with_seed(seed));
    loop {
        let row = random.u64(..ROWS);
        let block = row * half.row_blocks() + random.u64(..BLOCKS_PER_CHUNK);
        let buf = shard.pool().copy_of(&block_of(random.u64(..2), block)).freeze();
        let written = sets.one(device, Request::write(block * BLOCK as u64, buf, false)).await;
        written.result.map_err(|error| format!("writing block {block}: {error}"))?;
        acknowledge();
    }
}

/// Has `program`, which is `braid-interop`, run the victim until the power was cut, and kills it.
///
/// # Errors
/// When it ended by itself.
pub fn write_until_cut(
    program: &Path,
    folder: &Path,
    name: &str,
    level: Level,
    (seed, writes): (u64, u64),
) -> Outcome<()> {
    let numbers = [seed, writes].map(|number| number.to_string());
    let mut child = Command::new(program)
        .args(["half-write", name, &level.to_string()])
        .args(numbers)
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("running the process to be killed: {error}"))?;
    let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
    let is_off = lines.map_while(Result::ok).any(|line| line == OFF);
    child.kill().map_err(text)?;
    child.wait().map_err(text)?;
    if is_off { Ok(()) } else { Err("the process to be killed ended by itself".to_owned()) }
}

/// Copies the members of array `name` but those of the slots `missing`, and its journal if it has one, to `as_name`.
///
/// # Errors
/// What could not be copied.
pub fn copy_without(folder: &Path, name: &str, as_name: &str, missing: &[usize]) -> Outcome<()> {
    for nr in devices(folder, name, missing) {
        std::fs::copy(path(folder, name, nr), path(folder, as_name, nr)).map_err(text)?;
    }
    Ok(())
}
