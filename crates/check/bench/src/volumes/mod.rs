//! A logical volume over one to four devices: the field's table 5, with its figures beside ours (P11, P12).

mod against_btrfs;
mod checksums;
mod copies;
mod copies_against_btrfs;
mod extents;
mod foreground;
pub mod fuse;
pub mod large;
mod loops;
mod rig;
mod snapshots;
mod two_clocks;
mod verdict;

pub use against_btrfs::table as against_btrfs;
pub use checksums::table as checksums;
pub use copies::table as copies;
pub use copies_against_btrfs::table as copies_against_btrfs;
pub use extents::table as extents;
pub use foreground::table as foreground;
pub use snapshots::table as snapshots;

use crate::tables::{Effort, Table};
use anyhow::Context;
use braid_load::megabytes;
use braid_volume::NewJob;
use rig::{Clock, Medium, Rig, Step};
use two_clocks::Timed;

/// Rounds on the wall clock.
const ROUNDS: usize = 3;

/// What is demanded of a step.
#[derive(Clone, Copy)]
enum Demand {
    /// Rate in proportion to the sum of the devices (P11).
    Sum,
    /// Rate in proportion to the busiest device, and bytes in proportion to the least (P12).
    Busiest { minimum: f64 },
    /// None: what the devices give without a volume.
    Ceiling,
}

struct Outcome {
    name: String,
    /// Published figures of Reiser5, in MB/s.
    reiser: &'static str,
    demand: Demand,
    /// Bytes of the file, which rates are of.
    size: u64,
    step: Step,
}

impl Outcome {
    fn timed(&self) -> Timed {
        let (least, moved) = match self.demand {
            Demand::Sum => (Some(0.95), None),
            Demand::Busiest { minimum } => {
                let moved = self.step.written as f64 / (minimum * self.size as f64);
                (Some(0.90), Some(moved))
            }
            Demand::Ceiling => (None, None),
        };
        Timed {
            name: self.name.clone(),
            bytes: self.size,
            seconds: self.step.seconds,
            share: self.step.busiest / self.step.seconds.max(1e-9),
            least,
            written: moved,
        }
    }
}

/// All steps once.
fn steps(clock: Clock, streamed: u64, moved: u64) -> anyhow::Result<Vec<Outcome>> {
    let mut all = Vec::new();
    let mut add = |name: String, reiser, demand: Demand, step| {
        let size = if matches!(demand, Demand::Sum) { streamed } else { moved };
        all.push(Outcome { name, reiser, demand, size, step });
    };
    let size = moved;
    let seconds = rig::copy(clock, size)?;
    let busiest = size as f64 / clock.write_rate() as f64;
    let step = Step { seconds, written: size, busiest };
    add("copy device to device, no volume".into(), "–", Demand::Ceiling, step);
    for bricks in 1..=4 {
        let size = streamed;
        let rig = Rig::new(clock, bricks, size)?;
        let sum = |rate: u64| size as f64 / (rate * bricks as u64) as f64;
        // Of the devices together, not of the one that got most.
        let write = Step { busiest: sum(clock.write_rate()), ..rig.write()? };
        let read = Step { busiest: sum(clock.read_rate()), ..rig.read()? };
        rig.verify()?;
        rig.end()?;
        let (writes, reads) = (["380", "–", "–", "950"], ["460", "–", "–", "1100"]);
        let of = |list: [&'static str; 4]| list.get(bricks - 1).copied().unwrap_or("–");
        add(format!("write, {bricks} bricks"), of(writes), Demand::Sum, write);
        add(format!("read, {bricks} bricks"), of(reads), Demand::Sum, read);
    }
    let mut rig = Rig::filled(clock, 1, size)?;
    let between = |rig: &Rig| match clock {
        Clock::Devices => rig.verify(),
        Clock::Wall => Ok(()),
    };
    for (bricks, reiser) in [(2, "284"), (3, "457"), (4, "574")] {
        rig.add(Medium::Ssd, false)?;
        let step = rig.job(NewJob::Balance)?;
        between(&rig)?;
        let demand = Demand::Busiest { minimum: 1.0 / f64::from(bricks) };
        add(format!("add brick {bricks}, balance"), reiser, demand, step);
    }
    for (bricks, reiser) in [(4u16, "890"), (3, "606"), (2, "336")] {
        let step = rig.job(NewJob::Remove { brick: bricks - 1 })?;
        between(&rig)?;
        let demand = Demand::Busiest { minimum: 1.0 / f64::from(bricks) };
        add(format!("remove brick {bricks}"), reiser, demand, step);
    }
    rig.verify()?;
    rig.end()?;
    for (kind, name, reiser) in [(Medium::Ssd, "SSD", "228–427"), (Medium::Ram, "RAM", "228–427")]
    {
        let mut rig = Rig::new(clock, 3, size)?;
        rig.add(kind, true)?;
        rig.write()?;
        let step = rig.job(NewJob::Flush)?;
        rig.verify()?;
        rig.end()?;
        let demand = Demand::Busiest { minimum: 1.0 };
        add(format!("flush a proxy ({name}) to 3 bricks"), reiser, demand, step);
    }
    let rig = Rig::filled(clock, 4, size)?;
    let step = rig.job(NewJob::Migrate { ino: rig.file, brick: 0 })?;
    rig.verify()?;
    rig.end()?;
    let demand = Demand::Busiest { minimum: 0.75 };
    add("migrate the file from 4 bricks to one".into(), "387–427", demand, step);
    Ok(all)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size = if effort.quick { 256 << 20 } else { 1 << 30 };
    let (streamed, moved) = (size / 4, size / 2);
    let modelled = steps(Clock::Devices, size, size).context("in the devices' time")?;
    let rounds = if effort.quick { 1 } else { ROUNDS };
    let mut measured: Vec<Vec<Timed>> = Vec::new();
    for _ in 0..rounds {
        let steps = steps(Clock::Wall, streamed, moved).context("on the wall clock")?;
        measured.push(steps.iter().map(Outcome::timed).collect());
    }
    let rows = modelled.iter().enumerate().map(|(at, model)| {
        let mut row = two_clocks::row(&model.timed(), &measured, at);
        row.cells.insert(0, model.reiser.to_owned());
        row
    });
    Ok(Table {
        title: "Volumes: one file on one to four devices".to_owned(),
        about: format!(
            "One file on a volume of modelled SSDs, stripes of 128 KiB, one shard, a plug over each device; requests of 1 \
             MiB, {} in flight, through the interface that FUSE calls; the metadata is a model in memory whose commits \
             take 1 ms. A step ends when it is durable; the file is read and compared after each (on the wall clock at the end). In the devices' time: {} \
             MiB, devices that read {} and write {} MB/s with 80 and 30 µs and 95,000 requests per second; the engine takes \
             no time, and every run gives the same. On the wall clock: {} MiB, or {} where stripes move, and devices a fourth as fast, since one core \
             copies all bytes into and out of the memory behind them; the engine is in it{}. MB/s is all data of \
             the file divided by the time, as Reiser5's author counts, also where only a part of it moves; his figures are \
             those of four SSDs of about 400 MB/s, and of removals the one that moves least has the highest. Minimum: what must be written so that each brick ends with its \
             fair share. ÷ devices: for writing and reading the rate divided by the sum of the devices (P11), else the \
             time that the busiest device needs for its bytes divided by the time taken (P12). A demand is met when both \
             clocks say so.",
            rig::DEPTH,
            size >> 20,
            megabytes(Clock::Devices.read_rate() as f64),
            megabytes(Clock::Devices.write_rate() as f64),
            streamed >> 20,
            moved >> 20,
            if cfg!(debug_assertions) { ", its assertions too" } else { "" },
        ),
        headings: vec![
            "step",
            "Reiser5 MB/s",
            "MB/s, devices' time",
            "÷ devices, their time",
            "÷ devices, wall clock",
            "demand",
            "written ÷ minimum",
            "≤ 1.01",
        ],
        rows: rows.collect(),
        plots: Vec::new(),
    })
}
