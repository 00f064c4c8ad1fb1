//! A tree of 50,000 small files, made, looked at, read and removed, on the same three mounts.

use super::figures::{Figures, server_us};
use super::mounts::missing;
use super::on_loop::{HEADINGS, Three, row, three};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_load::{Slice, Spread, significant, thousands};
use braid_posix::tree::{self, Plan};

/// Files of the tree.
const FILES: usize = 50_000;
/// The parts that are shown; syncing between them makes durable with ext4 only.
const PHASES: [&str; 4] = ["create", "stat", "read", "delete"];

/// How many are compared.
const MOUNTS: usize = 3;

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    missing(&["mkfs.ext4", "losetup"])?;
    let (rounds, files) = if effort.quick { (1, FILES / 10) } else { (3, FILES) };
    // By phase, by mount, by round.
    let mut all = vec![vec![Vec::<Figures>::new(); MOUNTS]; PHASES.len()];
    let mut size = 0;
    for round in 0..rounds {
        // Empty each time: numbers, names and room that were used before are a load of their own.
        let three = Three::new()?;
        let mounts = three.all();
        let plan = Plan { seed: round as u64 + 1, files, threads: 1, drop_caches: true };
        let mut order: Vec<usize> = (0..mounts.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Some(mount) = mounts.get(at) else { continue };
            super::loads::drop_caches()?;
            let meter = || Ok(mount.processor_seconds()?.unwrap_or_default());
            let done = tree::run_metered(&mount.dir, &plan, &meter)
                .with_context(|| format!("the tree on {}", mount.name))?;
            size = done.bytes;
            let is_served = mount.processor_seconds()?.is_some();
            for (figures, name) in all.iter_mut().zip(PHASES) {
                let phase = done.phases.iter().find(|phase| phase.phase == name);
                let (Some(phase), Some(figures)) = (phase, figures.get_mut(at)) else { continue };
                let slice = Slice {
                    requests: files as u64,
                    bytes: done.bytes,
                    seconds: phase.seconds,
                    latency: None,
                };
                figures.push(Figures { slice, server: is_served.then_some(phase.metered) });
            }
        }
    }
    let rows: Vec<Row> = PHASES
        .iter()
        .zip(&all)
        .map(|(phase, measured)| {
            let each = |slice: &Slice| slice.requests as f64;
            let figure = |figures: &[Figures]| {
                let rates =
                    figures.iter().map(|one| each(&one.slice) / one.slice.seconds.max(1e-9));
                format!("{} files/s", thousands(Spread::of(rates).median))
            };
            row((*phase).to_owned(), rounds, measured, figure, |figures| {
                let us = server_us(figures, each);
                us.map_or("–".to_owned(), |us| format!("{} µs/file", significant(us.median)))
            })
        })
        .collect();
    Ok(Table {
        title: "A tree of small files on a mounted volume, ext4 and a passthrough".to_owned(),
        about: format!(
            "{files} files of {} MiB together in {} directories (sizes log-normal with a median of 5 KiB, as in a large source package), by one \
             thread, on {}. Create: directories made, files made, written and closed; FUSE hands a file's data over when \
             it is closed, ext4 keeps it in the page cache. The file systems are synced and caches dropped before stat (the \
             tree is listed, each file looked at) and before read (every byte compared); the volume keeps what it knows of \
             files in its own memory. Delete: all files, then all directories.",
            size >> 20,
            files / 16,
            three(),
        ),
        headings: HEADINGS.to_vec(),
        rows,
        plots: Vec::new(),
    })
}
