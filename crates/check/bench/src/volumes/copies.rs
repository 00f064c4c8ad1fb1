//! Files with two copies: what writing and reading give of the sum of the devices, and how a brick that is lost is made again.

use super::rig::{Clock, Medium, Rig, Step};
use super::verdict::{ratio, verdict};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_load::{Measured, Report, Slice, Spread, megabytes};
use braid_volume::NewJob;

/// Copies of each stripe.
const COPIES: u8 = 2;
/// Rounds on the wall clock.
const ROUNDS: usize = 3;

struct Outcome {
    name: &'static str,
    /// Bytes that rates are of.
    bytes: u64,
    step: Step,
    /// Seconds that the devices need.
    needs: f64,
    least: f64,
    /// Bytes written in proportion to those that have to be.
    written: Option<f64>,
}

impl Outcome {
    fn share(&self) -> f64 {
        self.needs / self.step.seconds.max(1e-9)
    }
}

fn steps(clock: Clock, size: u64) -> anyhow::Result<Vec<Outcome>> {
    let mut all = Vec::new();
    for bricks in [2usize, 4] {
        let mut rig = Rig::with_copies(clock, vec![Medium::Ssd; bricks], size, COPIES)?;
        let sum = |rate: u64| size as f64 / (rate * bricks as u64) as f64;
        let write = rig.write()?;
        let read = rig.read()?;
        rig.verify()?;
        let of = |two, four| if bricks == 2 { two } else { four };
        all.push(Outcome {
            name: of("write, 2 bricks", "write, 4 bricks"),
            bytes: size,
            needs: sum(clock.write_rate()) * f64::from(COPIES),
            step: write,
            least: 0.95,
            written: Some(write.written as f64 / (size * u64::from(COPIES)) as f64),
        });
        all.push(Outcome {
            name: of("read, 2 bricks", "read, 4 bricks"),
            bytes: size,
            needs: sum(clock.read_rate()),
            step: read,
            least: 0.95,
            written: None,
        });
        if bricks == 4 {
            let held = rig.used_on(1);
            rig.lose(1)?;
            let step = rig.job(NewJob::Remove { brick: 1 })?;
            rig.verify()?;
            all.push(Outcome {
                name: "make a lost brick's copies again on the other three",
                bytes: held,
                needs: step.busiest,
                step,
                least: 0.9,
                written: Some(step.written as f64 / held as f64),
            });
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
    let mut measured: Vec<Vec<Outcome>> = Vec::new();
    for _ in 0..rounds {
        measured.push(steps(Clock::Wall, size / 4).context("on the wall clock")?);
    }
    let mut rows = Vec::new();
    for (at, model) in modelled.iter().enumerate() {
        let wall: Vec<&Outcome> = measured.iter().filter_map(|round| round.get(at)).collect();
        rows.push(row(model, &wall, rounds));
    }
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
        rows,
        plots: Vec::new(),
    })
}

fn row(model: &Outcome, wall: &[&Outcome], rounds: usize) -> Row {
    let slice = |one: &Outcome| Slice {
        requests: 1,
        bytes: one.bytes,
        seconds: one.step.seconds,
        latency: None,
    };
    let measured = |name: &str, slices| Measured { name: name.to_owned(), worth: None, slices };
    let in_their_time = measured("devices' time", vec![slice(model)]);
    let on_the_clock = measured("wall clock", wall.iter().map(|one| slice(one)).collect());
    let share = Spread::of(wall.iter().map(|one| one.share()));
    let written = wall.iter().copied().chain([model]).filter_map(|one| one.written);
    let written = written.reduce(f64::max);
    let reached = share.median.min(model.share());
    let dash = || "–".to_owned();
    let cells = vec![
        megabytes(in_their_time.bytes_per_second().median),
        format!("{:.3}", model.share()),
        crate::tables::spread(Some(share)),
        format!("≥ {:.2} {}", model.least, verdict(reached >= model.least)),
        written.map_or_else(dash, |written| format!("{written:.3}")),
        written.map_or_else(dash, |written| verdict(written <= 1.01).to_owned()),
    ];
    let all = [in_their_time, on_the_clock];
    let mut report = Report::of(model.name.to_owned(), rounds, &all, Vec::new());
    report.ratios = vec![
        ratio("devices' time", "devices", Spread::of([model.share()])),
        ratio("wall clock", "devices", share),
    ];
    report.ratios.extend(written.map(|written| ratio("written", "least", Spread::of([written]))));
    Row { load: model.name.to_owned(), cells, report }
}
