//! The matrix: every cell in both directions.
//!
//! ```text
//!  by braid:  braid makes, writes A ─► md assembles, reads A, checks, writes B ─► braid reads B,
//!             and B again with members missing
//!  by md:     mdadm makes, md writes A ─► braid assembles, reads A, writes B, checks ─► md reads B,
//!             checks, and reads B again with members missing
//! ```

use crate::by_braid::{Braid, Content};
use crate::cell::Cell;
use crate::guest::{self, Named, Setting};
use crate::outcome::GuestError;
use crate::uml;
use braid_array::options::CreateBitmap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Cells of one guest, to bound what lies on disk. One guest uses one core: two run side by side.
const PER_GUEST: usize = 28;
const GUESTS: usize = 2;
/// Largest array of the matrix, and how far into the patterns arrays begin.
const PATTERN: usize = 32 << 20;
const LIMIT: Duration = Duration::from_secs(600);

/// How a cell went.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// The array that braid made: fine, or what was wrong.
    pub by_braid: Result<(), String>,
    /// The array that mdadm made.
    pub by_md: Result<(), String>,
}

/// How the matrix went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each cell.
    pub rows: Vec<Row>,
    /// From start to end.
    pub took: Duration,
}

impl Report {
    /// What was wrong, a line for each array.
    pub fn failures(&self) -> Vec<String> {
        let line = |cell: &Cell, by: &str, result: &Result<(), String>| {
            result.as_ref().err().map(|why| format!("{} made by {by}: {why}", cell.name()))
        };
        let of = |row: &Row| {
            [line(&row.cell, "braid", &row.by_braid), line(&row.cell, "mdadm", &row.by_md)]
        };
        self.rows.iter().flat_map(of).flatten().collect()
    }
}

/// Why a matrix could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// The guest.
    #[error("{0}")]
    Guest(#[from] GuestError),
    /// Files of the run.
    #[error("preparing the matrix: {0}")]
    Prepare(#[from] std::io::Error),
    /// The shard.
    #[error("preparing the matrix: {0}")]
    Shard(String),
}

/// Runs `cells`.
///
/// # Errors
/// When it could not be run; arrays that are wrong are in the report.
pub fn run(cells: &[Cell]) -> Result<Report, MatrixError> {
    run_with(cells, Setting::default())
}

/// As [`run`], in a setting other than the usual.
///
/// # Errors
/// As [`run`].
pub fn run_with(cells: &[Cell], setting: Setting) -> Result<Report, MatrixError> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let parts: Vec<&[Cell]> =
        cells.chunks(PER_GUEST.min(cells.len().div_ceil(GUESTS).max(1))).collect();
    let worker = || {
        let mut done = Vec::new();
        while let Some((nr, part)) = take(&next, &parts) {
            let folder =
                tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp")?;
            done.push((nr, run_some(part, setting, folder.path())?));
        }
        Ok::<_, MatrixError>(done)
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..GUESTS).map(|_| scope.spawn(worker)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>, MatrixError>>()
    })?
    .concat();
    done.sort_by_key(|(nr, _)| *nr);
    let rows = done.into_iter().flat_map(|(_, rows)| rows).collect();
    Ok(Report { rows, took: started.elapsed() })
}

/// The next part that nobody has taken.
fn take<'a>(next: &AtomicUsize, parts: &[&'a [Cell]]) -> Option<(usize, &'a [Cell])> {
    let nr = next.fetch_add(1, Ordering::Relaxed);
    parts.get(nr).map(|part| (nr, *part))
}

/// Two patterns that differ everywhere, as files and in memory.
pub(crate) struct Patterns {
    a: Rc<Vec<u8>>,
    b: Rc<Vec<u8>>,
}

impl Patterns {
    pub(crate) const A: &str = "pattern-a";
    pub(crate) const B: &str = "pattern-b";

    pub(crate) fn new(folder: &Path) -> std::io::Result<Patterns> {
        let (a, b) = (pattern(1), pattern(2));
        std::fs::write(folder.join(Self::A), &a)?;
        std::fs::write(folder.join(Self::B), &b)?;
        Ok(Patterns { a: Rc::new(a), b: Rc::new(b) })
    }

    /// Those that [`Patterns::new`] has written.
    pub(crate) fn read(folder: &Path) -> std::io::Result<Patterns> {
        let read = |name| std::fs::read(folder.join(name)).map(Rc::new);
        Ok(Patterns { a: read(Self::A)?, b: read(Self::B)? })
    }

    pub(crate) fn a(&self, nr: usize) -> Content {
        Content::new(Rc::clone(&self.a), from(nr))
    }

    pub(crate) fn b(&self, nr: usize) -> Content {
        Content::new(Rc::clone(&self.b), from(nr))
    }
}

/// Where in the patterns array `nr` begins: no two arrays hold the same.
pub(crate) fn from(nr: usize) -> usize {
    nr * 4096
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(PATTERN + 8);
    while bytes.len() < PATTERN {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// As many slots as the array can lose for sure; which ones differs from cell to cell.
fn lost_slots(cell: &Cell) -> Vec<usize> {
    use braid_layout::Level::{Linear, Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
    let copies = || cell.layout.and_then(|layout| layout.get(1..)?.parse().ok()).unwrap_or(2);
    let tolerance = match cell.level {
        Linear | Raid0 => 0,
        Raid1 => cell.members - 1,
        Raid4 | Raid5 => 1,
        Raid6 => 2,
        Raid10 => copies() - 1,
    };
    let first = cell.members / 2;
    (0..tolerance).map(|nr| (first + nr) % cell.members).collect()
}

fn run_some(cells: &[Cell], setting: Setting, folder: &Path) -> Result<Vec<Row>, MatrixError> {
    let patterns = Patterns::new(folder)?;
    let blocks = setting.blocks;
    let braid = Braid::new(folder).map_err(MatrixError::Shard)?.with_blocks(blocks);
    let named = |suffix: &str, base: usize| -> Vec<Named<'_>> {
        let name = |cell: &Cell| format!("{}-{suffix}", cell.name());
        cells.iter().enumerate().map(|(nr, cell)| (base + nr, cell, name(cell))).collect()
    };
    // Numbers of md devices, and of patterns: arrays of braid's first, then mdadm's.
    let (ours, theirs) = (named("braid", 0), named("mdadm", PER_GUEST));

    let made: Vec<Result<usize, String>> = ours
        .iter()
        .map(|(nr, cell, name)| {
            braid.make_members(cell, name)?;
            let bitmap = match setting.bitmap && cell.level.has_redundancy() {
                true => CreateBitmap::Internal { chunk: Some(64 << 10) },
                false => CreateBitmap::Default,
            };
            braid
                .make_with(cell, name, &patterns.a(*nr), bitmap)
                .map_err(|why| format!("braid making it: {why}"))
        })
        .collect();
    let ready: Vec<Named<'_>> = keep(&ours, &made);
    for (_, cell, name) in &theirs {
        braid.make_members(cell, name).map_err(MatrixError::Shard)?;
    }
    let script = guest::check_and_write(&ready, blocks, (Patterns::A, Patterns::B), from)
        + &guest::make(&theirs, &setting, Patterns::A, from);
    let first = uml::run(&script, folder, 1024, LIMIT)?.text;

    let by_braid = ours.iter().zip(made).map(|((nr, cell, name), made)| {
        guest::first_wrong(&first, name, &guest::checked_and_written(cell, made?))?;
        let content = patterns.b(*nr);
        braid.compare(cell, name, &content, &[])?;
        match lost_slots(cell) {
            lost if lost.is_empty() => Ok(()),
            lost => braid
                .compare(cell, name, &content, &lost)
                .map_err(|why| format!("without slots {lost:?}: {why}")),
        }
    });
    let by_braid: Vec<Result<(), String>> = by_braid.collect();

    let read: Vec<Result<(), String>> = theirs
        .iter()
        .map(|(nr, cell, name)| {
            for step in ["write", "stop"] {
                match guest::said(&first, name, step) {
                    Some("ok") => {}
                    other => {
                        let other = other.unwrap_or("nothing");
                        let create = guest::said(&first, name, "create").unwrap_or_default();
                        return Err(format!("md making it: {step}: {other}; create: {create}"));
                    }
                }
            }
            braid.compare_and_write(cell, name, &patterns.a(*nr), &patterns.b(*nr))
        })
        .collect();
    let ready = keep(&theirs, &read);
    let script = guest::check(&ready, blocks, Patterns::B, from, lost_slots);
    let second = uml::run(&script, folder, 1024, LIMIT)?.text;
    let by_md = theirs.iter().zip(read).map(|((_, cell, name), read)| {
        read?;
        guest::first_wrong(&second, name, &guest::checked(cell, !lost_slots(cell).is_empty()))
    });
    let results = by_braid.into_iter().zip(by_md);
    Ok(cells
        .iter()
        .zip(results)
        .map(|(cell, (by_braid, by_md))| Row { cell: cell.clone(), by_braid, by_md })
        .collect())
}

/// Those of `arrays` whose result so far is good.
fn keep<'a, T>(arrays: &[Named<'a>], results: &[Result<T, String>]) -> Vec<Named<'a>> {
    let good = arrays.iter().zip(results).filter(|(_, result)| result.is_ok());
    good.map(|(array, _)| array.clone()).collect()
}
