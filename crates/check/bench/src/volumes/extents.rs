//! Extents per brick before, while and after a brick is added and another removed: a picture, and its figures.

use super::rig::{Clock, Medium, Rig, STRIPE};
use super::verdict::measured;
use crate::plot::{Curve, Marks, Plot};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_load::{Report, significant};
use braid_shard::Nanos;
use braid_volume::NewJob;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bricks at the start; one more is added.
const BRICKS: u16 = 3;
/// The brick that is removed then.
const REMOVED: u16 = 0;
/// Time between two looks.
const EVERY: Nanos = 20_000_000;
/// Time before the first job, between the two, and after the second, for the eye.
const REST: Nanos = 250_000_000;

/// Extents on each brick, by its number.
type Extents = BTreeMap<u16, u64>;

/// Looks at the bricks, by the devices' time.
#[derive(Default)]
struct Looks(Vec<(Nanos, Extents)>);

impl Looks {
    fn look(&mut self, rig: &Rig) {
        let on = |id: u16| (id, rig.used_on(id).div_ceil(STRIPE));
        self.0.push((rig.shard.now(), (0..=BRICKS).map(on).collect()));
    }

    /// The last look.
    fn last(&self) -> Extents {
        self.0.last().map(|(_, extents)| extents.clone()).unwrap_or_default()
    }

    /// The curve of one brick, from the first look at which it has something to the first at which it has nothing again.
    fn curve(&self, id: u16, start: Nanos) -> Curve {
        let seconds = |now: &Nanos| now.saturating_sub(start) as f64 / 1e9;
        let on = |extents: &Extents| extents.get(&id).copied().unwrap_or(0);
        let all: Vec<(f64, u64)> =
            self.0.iter().map(|(now, extents)| (seconds(now), on(extents))).collect();
        let first = all.iter().position(|(_, count)| *count > 0).unwrap_or(0).saturating_sub(1);
        let last = all.iter().rposition(|(_, count)| *count > 0).unwrap_or(0) + 1;
        let shown = all.iter().take(last + 1).skip(first);
        let points = shown.map(|(seconds, count)| (*seconds, *count as f64)).collect();
        Curve { name: format!("brick {}", id + 1), points }
    }
}

/// Time passes, in which nothing happens.
fn rest(rig: Rc<Rig>, looks: &mut Looks) {
    looks.look(&rig);
    let shard = rig.shard.clone();
    rig.shard.block_on(async move { shard.sleep(REST).await });
    looks.look(&rig);
}

/// Runs a job with a look at the bricks every now and then; gives the look at which it was half done, and seconds.
fn watched(rig: &Rc<Rig>, job: NewJob, looks: &mut Looks) -> anyhow::Result<(Extents, f64)> {
    let start = rig.shard.now();
    let seen = Rc::new(RefCell::new(Looks::default()));
    let over = Rc::new(Cell::new(false));
    let (own, into, ended) = (Rc::clone(rig), Rc::clone(&seen), Rc::clone(&over));
    rig.shard.spawn(async move {
        while !ended.get() {
            into.borrow_mut().look(&own);
            own.shard.sleep(EVERY).await;
        }
    });
    let volume = Rc::clone(&rig.volume);
    let done = rig.shard.block_on(async move {
        volume.start_job(job).await?;
        volume.wait_job().await
    });
    over.set(true);
    done.context("running a job")?;
    let seconds = (rig.shard.now() - start) as f64 / 1e9;
    let seen = seen.take();
    let half = seen.0.get(seen.0.len() / 2).map(|(_, extents)| extents.clone());
    looks.0.extend(seen.0);
    looks.look(rig);
    Ok((half.unwrap_or_default(), seconds))
}

fn row(load: &str, extents: &Extents, bricks: u64, seconds: Option<f64>) -> Row {
    let total: u64 = extents.values().sum();
    let most = extents.values().max().copied().unwrap_or(0);
    let of = |id: u16| extents.get(&id).copied().unwrap_or(0).to_string();
    let fair = total as f64 / bricks.max(1) as f64;
    let mut cells: Vec<String> = (0..=BRICKS).map(of).collect();
    cells.push(format!("{:.3}", most as f64 / fair.max(1e-9)));
    cells.push(seconds.map_or("–".to_owned(), |seconds| format!("{} s", significant(seconds))));
    let all = [measured("extents", total * STRIPE, seconds)];
    let report = Report::of(load.to_owned(), 1, &all, Vec::new());
    Row { load: load.to_owned(), cells, report: Report { virtual_time: true, ..report } }
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let size = if effort.quick { 128 << 20 } else { 1 << 30 };
    let mut rig = Rc::new(Rig::filled(Clock::Devices, usize::from(BRICKS), size)?);
    let (start, mut looks) = (rig.shard.now(), Looks::default());
    let bricks = u64::from(BRICKS);
    rest(Rc::clone(&rig), &mut looks);
    let mut rows = vec![row("before", &looks.last(), bricks, None)];
    Rc::get_mut(&mut rig).context("the volume is in use")?.add(Medium::Ssd, false)?;
    let (half, seconds) = watched(&rig, NewJob::Balance, &mut looks)?;
    rows.push(row("half of the time of adding brick 4", &half, bricks + 1, None));
    rows.push(row("brick 4 added", &looks.last(), bricks + 1, Some(seconds)));
    rest(Rc::clone(&rig), &mut looks);
    let (half, seconds) = watched(&rig, NewJob::Remove { brick: REMOVED }, &mut looks)?;
    rows.push(row("half of the time of removing brick 1", &half, bricks, None));
    rows.push(row("brick 1 removed", &looks.last(), bricks, Some(seconds)));
    rest(Rc::clone(&rig), &mut looks);
    rig.verify()?;
    let curves = (0..=BRICKS).map(|id| looks.curve(id, start)).collect();
    // The task that looked has ended by now.
    Rc::into_inner(rig).context("the volume is in use")?.end()?;
    Ok(Table {
        title: "Volumes: extents per brick while one is added and one removed".to_owned(),
        about: format!(
            "One file of {} MiB in stripes of 128 KiB on {BRICKS} modelled SSDs as in the table of volumes, in the devices' time, \
             so that every run gives the same. A fourth brick of the same size is added and filled by a balance, then the first \
             is removed. Each stripe has one extent, which is on one brick and, while it is moved, has room on another, too: \
             both are counted. *Most ÷ fair*: the fullest brick in proportion to its fair share of all; while a brick is \
             being added the share is that of four, while one is being removed that of three.",
            size >> 20
        ),
        headings: vec![
            "moment",
            "brick 1",
            "brick 2",
            "brick 3",
            "brick 4",
            "most ÷ fair",
            "the job took",
        ],
        rows,
        plots: vec![Plot {
            name: "volumes-extents".to_owned(),
            title: "Extents per brick: brick 4 is added, then brick 1 removed".to_owned(),
            x: "seconds of the devices' time".to_owned(),
            y: "extents".to_owned(),
            marks: Marks::Even,
            curves,
        }],
    })
}
