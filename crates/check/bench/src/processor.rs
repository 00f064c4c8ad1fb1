//! Processor time of small writes to members that are files, beside fio's for the same requests.
//!
//! Of the array all threads of this process count: the engine, the generator, and those that the kernel adds for io_uring.
//! Of fio its job's user and system time count, not its start.

use crate::fio::Fio;
use crate::programs::seconds;
use crate::tables::{Effort, Row, Table, spread};
use anyhow::Context;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::measure::{Contender, Until};
use braid_load::run::{fill, on_array};
use braid_load::under_test::UnderTest;
use braid_load::{Length, Options, Pattern, RawLoad, Report, Spread, raw_load};
use rustix::time::ClockId;
use std::path::{Path, PathBuf};

/// Bytes of a member.
const MEMBER: u64 = 256 << 20;
/// What is demanded: the array's processor time is at most so much of fio's.
const MOST: f64 = 1.30;

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let disk = match &effort.disk {
        Some(disk) => disk.clone(),
        None => std::env::temp_dir(),
    };
    let rows = [("on the disk", disk), ("on tmpfs", PathBuf::from("/dev/shm"))]
        .iter()
        .map(|(place, folder)| row(effort, place, folder))
        .collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "Processor time of a small write, beside fio's".to_owned(),
        about: "RAID5 of five files of 256 MiB, 64 KiB chunks, 4K random writes, depth 32, O_DIRECT, one shard. A write costs the \
                members two reads and two writes at least; fio does these with io_uring on the same files, in the same \
                rounds. Processor time is that of all threads of the array's process, its load generator and those of the \
                kernel's io_uring included, and of fio's job; stripe_cache_size is left alone, and spares some reads."
            .to_owned(),
        headings: vec![
            "4K random write",
            "array ÷ fio",
            "demand",
            "array, µs per write",
            "fio, µs per two reads and two writes",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, place: &str, folder: &Path) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir_in(folder)
        .with_context(|| format!("making a folder for the members in {}", folder.display()))?;
    let paths: Vec<PathBuf> = (0..5).map(|nr| folder.path().join(format!("member-{nr}"))).collect();
    for path in &paths {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(MEMBER));
        made.with_context(|| format!("making the member {}", path.display()))?;
    }
    let members = paths.iter().cloned().map(MemberSpec::Path).collect();
    let options = Options {
        length: Length::Seconds(if effort.quick { 1.5 } else { 7.5 }),
        ..Options::new(Level::Raid5, members, Pattern::RandWrite, 4 << 10)
    };
    let raw = raw_load(&options)?;
    let per_write = requests_per_write(&raw).context("a load without a count of requests")?;
    let under_test = UnderTest::start(&options)?;
    fill(&options, &under_test)?;
    let traffic = options.traffic();
    let mut array = on_array("array", under_test.remotes(), &traffic, &under_test)?;
    let fio = Fio::new(&paths, MEMBER, raw);
    let mut rounds = Vec::new();
    // The first warms up.
    for round in 0..=options.rounds {
        let own = array_round(&mut array, options.slice()).context("running the array")?;
        let request = fio.processor_seconds(options.slice()).context("running fio")?;
        if round > 0 {
            rounds.push((own, request * per_write));
        }
    }
    let ratio = Spread::of(rounds.iter().map(|(own, fio)| own / fio));
    let micros = |spread: Spread| format!("{:.1}", spread.median * 1e6);
    let cells = vec![
        spread(Some(ratio)),
        format!("≤ {MOST:.2} {}", if ratio.median <= MOST { "met" } else { "not met" }),
        micros(Spread::of(rounds.iter().map(|(own, _)| *own))),
        micros(Spread::of(rounds.iter().map(|(_, fio)| *fio))),
    ];
    let report = Report {
        rounds: options.rounds,
        processor_time: true,
        notes: under_test.notes(),
        ..Report::without_figures(options.describe())
    };
    Ok(Row { load: place.to_owned(), cells, report })
}

/// Requests to members that a write costs at least, each as large as the write.
fn requests_per_write(raw: &RawLoad) -> Option<f64> {
    raw.factor.map(|factor| 1.0 / factor)
}

/// Seconds of processor time of this process for each write of a slice.
fn array_round(array: &mut dyn Contender, until: Until) -> anyhow::Result<f64> {
    let before = process_seconds();
    let slice = array.slice(until)?;
    Ok((process_seconds() - before) / slice.requests.max(1) as f64)
}

fn process_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_write_costs_four_requests() {
        let members = vec![MemberSpec::Ram(MEMBER); 5];
        let options = Options::new(Level::Raid5, members, Pattern::RandWrite, 4096);
        assert_eq!(requests_per_write(&raw_load(&options).unwrap()), Some(4.0));
    }
}
