//! The cost of checksums: the same requests on a volume with and on one without, in turn.

use super::rig::{Clock, Medium, Rig, STRIPE, Step};
use super::verdict::compared;
use crate::tables::{Effort, Table};
use anyhow::Context;
use braid_load::megabytes;
use braid_volume::Format;

/// Bricks of a volume.
const BRICKS: usize = 2;
/// Of the file's blocks one of so many is written here and there.
const SPARSE: u64 = 4;

/// A load, the share of the rate without checksums that is demanded of it, and what it took.
type Steps = Vec<(&'static str, f64, u64, Step)>;

fn steps(clock: Clock, medium: &Medium, size: u64, checksums: bool) -> anyhow::Result<Steps> {
    let format = Format { stripe: STRIPE, checksums, copies: 1 };
    let rig = Rig::of_format(clock, vec![medium.clone(); BRICKS], size, format)?;
    let mut steps = vec![("write 1 MiB, a new file", 0.95, size, rig.write()?)];
    steps.push(("write 1 MiB over it", 0.95, size, rig.write()?));
    let count = size / 4096 / SPARSE;
    steps.push(("write 4 KiB here and there", 0.85, count * 4096, rig.scatter(count)?));
    steps.push(("read 1 MiB", 0.95, size, rig.read()?));
    rig.verify()?;
    rig.end()?;
    Ok(steps)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size: u64 = if effort.quick { 64 << 20 } else { 256 << 20 };
    let of = |wanted: usize| if effort.quick { 1 } else { wanted };
    let media = [
        ("modelled SSDs, their time", Clock::Devices, Medium::Ssd, 1),
        ("modelled SSDs, wall clock", Clock::Wall, Medium::Ssd, of(3)),
        ("RAM, wall clock", Clock::Wall, Medium::Ram, of(9)),
    ];
    let mut rows = Vec::new();
    for (on, clock, medium, rounds) in media {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        // The one that comes first has memory that nobody has touched yet.
        for round in 0..rounds {
            for checksums in [round % 2 == 0, round % 2 != 0] {
                let all = if checksums { &mut with } else { &mut without };
                all.push(steps(clock, &medium, size, checksums).context("measuring a volume")?);
            }
        }
        for (nr, (load, least, bytes, _)) in with.first().context("no round")?.iter().enumerate() {
            let seconds = |all: &[Steps]| -> Vec<f64> {
                all.iter().filter_map(|steps| Some(steps.get(nr)?.3.seconds)).collect()
            };
            let (with, without) = (seconds(&with), seconds(&without));
            let both = [("with checksums", &with[..]), ("without", &without[..])];
            rows.push(compared((load, on), *bytes, both, 0, *least));
        }
    }
    Ok(Table {
        title: "Volumes: the cost of checksums".to_owned(),
        about: format!(
            "One file of {} MiB on two bricks, stripes of 128 KiB, one shard, through the interface that FUSE calls; the metadata is a \
             model in memory whose commits take 1 ms. Two volumes in turn, one with checksums of data and one without: the file \
             is written, written over, a fourth of its blocks are written here and there by 16 writers, and it is read, \
             by requests of 1 MiB with {} in flight. A write ends when it is durable. In the devices' time the engine takes none, so what \
             is seen there is what checksums add to what the devices and the metadata do; on the wall clock modelled SSDs read {} and write \
             {} MB/s, and over RAM nothing but the engine is measured. MB/s: medians; the share is of pairs of rounds.",
            size >> 20,
            super::rig::DEPTH,
            megabytes(Clock::Wall.read_rate() as f64),
            megabytes(Clock::Wall.write_rate() as f64),
        ),
        headings: vec!["bricks", "load", "MB/s with", "without", "with ÷ without", "demand"],
        rows,
        plots: Vec::new(),
    })
}
