//! Writing over what a snapshot has: the first time, when it goes elsewhere and records are saved, against writing over the same
//! file before.

use super::rig::{Clock, Rig, Step};
use super::verdict::compared;
use crate::tables::{Effort, Table};
use anyhow::Context;

/// Bricks of a volume: with room for the file and what two snapshots of it keep.
const BRICKS: usize = 4;
/// Of the file's blocks one of so many is written here and there.
const SPARSE: u64 = 64;
/// The share of the rate before that is demanded.
const LEAST: f64 = 0.8;

/// A load, the bytes of it, and its steps before and after a snapshot.
type Steps = Vec<(&'static str, u64, Step, Step)>;

fn steps(clock: Clock, size: u64) -> anyhow::Result<Steps> {
    let rig = Rig::new(clock, BRICKS, size)?;
    rig.write()?;
    let before = rig.write()?;
    rig.snapshot("one")?;
    let mut all = vec![("write 1 MiB over it", size, before, rig.write()?)];
    let count = size / 4096 / SPARSE;
    let before = rig.scatter(count)?;
    rig.snapshot("two")?;
    all.push(("write 4 KiB here and there", count * 4096, before, rig.scatter(count)?));
    rig.verify()?;
    rig.end()?;
    Ok(all)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size: u64 = if effort.quick { 64 << 20 } else { 256 << 20 };
    let of = |wanted: usize| if effort.quick { 1 } else { wanted };
    let media = [
        ("modelled SSDs, their time", Clock::Devices, 1),
        ("modelled SSDs, wall clock", Clock::Wall, of(3)),
    ];
    let mut rows = Vec::new();
    for (on, clock, rounds) in media {
        let all = (0..rounds).map(|_| steps(clock, size)).collect::<anyhow::Result<Vec<_>>>();
        let all = all.context("measuring a volume with snapshots")?;
        for (nr, (load, bytes, ..)) in all.first().context("no round")?.iter().enumerate() {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (_, _, first, second) in all.iter().filter_map(|steps| steps.get(nr)) {
                before.push(first.seconds);
                after.push(second.seconds);
            }
            let both = [("before", &before[..]), ("after", &after[..])];
            rows.push(compared((load, on), *bytes, both, 1, LEAST));
        }
    }
    Ok(Table {
        title: "Volumes: writing over what a snapshot has".to_owned(),
        about: format!(
            "One file of {} MiB with checksums on {BRICKS} modelled SSDs as in the table of volumes. It is written, written over (before), a \
             snapshot is taken of everything, and it is written over again (after); then one of {SPARSE} of its blocks is written over \
             here and there by 16 writers, a second snapshot is taken, and as many are again. What a snapshot has is not written \
             over: the first write to a stripe goes to new blocks, with the rest of what it touches in part. A write ends when it is durable. \
             MB/s: medians; the share is of pairs of steps.",
            size >> 20,
        ),
        headings: vec!["bricks", "load", "MB/s before", "MB/s after", "after ÷ before", "demand"],
        rows,
        plots: Vec::new(),
    })
}
