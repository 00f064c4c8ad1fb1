//! Files with two copies: what writing and reading give of the sum of the devices, and how a brick that is lost is made again.

use super::rig::{Clock, Medium, Rig, Step};
use super::two_clocks::{self, Timed};
use crate::tables::{Effort, Table};
use anyhow::Context;
use braid_volume::NewJob;

/// Copies of each stripe.
const COPIES: u8 = 2;
/// Rounds on the wall clock.
const ROUNDS: usize = 3;

/// A step that the devices need `needs` seconds for.
fn timed(
    name: &str,
    bytes: u64,
    (step, needs): (Step, f64),
    least: f64,
    written: Option<f64>,
) -> Timed {
    let share = needs / step.seconds.max(1e-9);
    let (name, seconds) = (name.to_owned(), step.seconds);
    Timed { name, bytes, seconds, share, least: Some(least), written }
}

fn steps(clock: Clock, size: u64) -> anyhow::Result<Vec<Timed>> {
    let mut all = Vec::new();
    for bricks in [2usize, 4] {
        let mut rig = Rig::with_copies(clock, vec![Medium::Ssd; bricks], size, COPIES)?;
        let sum = |rate: u64| size as f64 / (rate * bricks as u64) as f64;
        let write = rig.write()?;
        let read = rig.read()?;
        rig.verify()?;
        let of = |two, four| if bricks == 2 { two } else { four };
        let needs = sum(clock.write_rate()) * f64::from(COPIES);
        let written = write.written as f64 / (size * u64::from(COPIES)) as f64;
        let name = of("write, 2 bricks", "write, 4 bricks");
        all.push(timed(name, size, (write, needs), 0.95, Some(written)));
        let name = of("read, 2 bricks", "read, 4 bricks");
        all.push(timed(name, size, (read, sum(clock.read_rate())), 0.95, None));
        if bricks == 4 {
            let held = rig.used_on(1);
            rig.lose(1)?;
            let step = rig.job(NewJob::Remove { brick: 1 })?;
            rig.verify()?;
            let name = "make a lost brick's copies again on the other three";
            let written = step.written as f64 / held as f64;
            all.push(timed(name, held, (step, step.busiest), 0.9, Some(written)));
            rig.lose(0)?;
            rig.verify().context("after a second brick is lost")?;
            continue;
        }
        rig.end()?;
    }
    Ok(all)
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size = if effort.quick { 128 << 20 } else { 512 << 20 };
    let modelled = steps(Clock::Devices, size).context("in the devices' time")?;
    let rounds = if effort.quick { 1 } else { ROUNDS };
    let mut measured: Vec<Vec<Timed>> = Vec::new();
    for _ in 0..rounds {
        measured.push(steps(Clock::Wall, size / 4).context("on the wall clock")?);
    }
    let rows = modelled.iter().enumerate();
    let rows = rows.map(|(at, model)| two_clocks::row(model, &measured, at));
    Ok(Table {
        title: "Volumes: files with two copies".to_owned(),
        about: format!(
            "One file with two copies of each stripe on modelled SSDs as in the table of volumes, in the devices' time ({} MiB; the \
             engine takes no time) and on the wall clock ({} MiB, devices a fourth as fast, checksums of all data in it). MB/s is \
             data of the file divided by the time. Demand: a write reaches 0.95 of half of the sum of the devices, a read 0.95 \
             of the sum, and making the copies of a lost brick again 0.9 of the rate of the busiest device, with no more \
             written than it held. The file is read and compared after each step, and in the end with yet another brick gone.",
            size >> 20,
            size >> 22,
        ),
        headings: vec![
            "step",
            "MB/s, devices' time",
            "÷ devices, their time",
            "÷ devices, wall clock",
            "demand",
            "written ÷ least",
            "≤ 1.01",
        ],
        rows: rows.collect(),
        plots: Vec::new(),
    })
}
