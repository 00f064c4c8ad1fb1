//! The NBD and vhost-user-blk doors beside other servers of the same, each with a disk in memory, and fio as their client.

use super::in_guest::Guest;
use super::servers::{Offer, SIZE, Served, Which, certificates};
use crate::fio::Fio;
use crate::programs::{braid, installed};
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_load::{Contender, RawLoad, Report, Slice, Spread, Until, by_turns, megabytes};
use std::path::{Path, PathBuf};

/// The demands: throughput at least, of NBD and of vhost-user-blk, and processor time at most.
const LEAST: f64 = 1.2;
const LEAST_OF_DISK: f64 = 1.3;
const MOST: f64 = 0.6;
/// Rounds that medians are of.
const ROUNDS: usize = 5;

/// One line.
struct Line {
    load: &'static str,
    block: u64,
    reads: u8,
    tls: bool,
}

impl Line {
    fn requests(&self) -> RawLoad {
        let is_small = self.block < 1 << 20;
        RawLoad {
            block: self.block,
            depth: if is_small { 32 } else { 8 },
            reads: self.reads,
            random: is_small,
            members: 1,
            factor: None,
        }
    }

    /// Requests that fill the disk.
    fn filling(&self) -> RawLoad {
        RawLoad { block: 1 << 20, depth: 8, reads: 0, random: false, ..self.requests() }
    }
}

const fn line(load: &'static str, block: u64, reads: u8, tls: bool) -> Line {
    Line { load, block, reads, tls }
}

const LINES: [Line; 8] = [
    line("4K random read", 4 << 10, 100, false),
    line("4K random write", 4 << 10, 0, false),
    line("1M read", 1 << 20, 100, false),
    line("1M write", 1 << 20, 0, false),
    line("TLS: 4K random read", 4 << 10, 100, true),
    line("TLS: 4K random write", 4 << 10, 0, true),
    line("TLS: 1M read", 1 << 20, 100, true),
    line("TLS: 1M write", 1 << 20, 0, true),
];

const OF_DISK: [Line; 4] = [
    line("vhost-user-blk: 4K random read", 4 << 10, 100, false),
    line("vhost-user-blk: 4K random write", 4 << 10, 0, false),
    line("vhost-user-blk: 1M read", 1 << 20, 100, false),
    line("vhost-user-blk: 1M write", 1 << 20, 0, false),
];

/// The cost of a slice.
#[derive(Clone, Copy)]
struct Cost {
    /// Bytes per second.
    rate: f64,
    /// Seconds of the server's processor time for each byte.
    processor: f64,
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    braid()?;
    installed(&["fio", "nbdkit", "qemu-storage-daemon", "certtool", "linux.uml"])?;
    let folder = tempfile::tempdir().context("making a folder for certificates")?;
    certificates(folder.path())?;
    let mut rows = LINES
        .iter()
        .map(|line| {
            row(effort, line, folder.path()).with_context(|| format!("running {:?}", line.load))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    rows.extend(of_disks(effort).context("running the disks of a guest")?);
    Ok(Table {
        title: "The NBD and vhost-user-blk doors beside other servers".to_owned(),
        about: "A disk of 1 GiB in memory: braid's RAID0 of one RAM member on one shard, nbdkit's plugin memory, \
                qemu-storage-daemon on a file on tmpfs. fio's nbd engine is the client: one connection, depth 32 (8 for \
                1 MiB), on the same two cores, over unix sockets; with TLS over TCP to 127.0.0.1. All servers run, and are \
                asked in turn. For vhost-user-blk the client is fio (libaio, the same depths) in a User Mode Linux guest of one \
                processor, which has the disks of braid and of qemu-storage-daemon, one queue each. Throughput is on the wall clock, with the client's part in it; *time* is the server's \
                processor time for each byte."
            .to_owned(),
        headings: vec![
            "load",
            "throughput ÷ nbdkit",
            "throughput ÷ qemu-storage-daemon",
            "demand",
            "time ÷ nbdkit",
            "time ÷ qemu-storage-daemon",
            "demand",
            "braid MB/s",
            "braid, µs of processor time per request",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, line: &Line, certificates: &Path) -> anyhow::Result<Row> {
    let offer = if line.tls { Offer::NbdWithTls(certificates) } else { Offer::Nbd };
    let mut servers = [Which::Braid, Which::Nbdkit, Which::Qemu]
        .iter()
        .map(|which| Served::start(*which, offer))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let home = line.tls.then_some(certificates);
    for server in &servers {
        // Memory that nobody has written to costs something else.
        let mut filler = Fio::over_nbd(&server.uri, home, SIZE, line.filling());
        filler.slice(Until::Requests(SIZE >> 20)).context("filling a disk")?;
    }
    let costs = costs(effort, line, home, &mut servers)?;
    Ok(row_of(line, &costs, [Some(1), Some(2)], LEAST))
}

/// The disks of one guest, in all lines.
fn of_disks(effort: &Effort) -> anyhow::Result<Vec<Row>> {
    let mut servers = [Which::Braid, Which::Qemu]
        .iter()
        .map(|which| Served::start(*which, Offer::Disk))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let sockets = servers.iter().map(|server| PathBuf::from(&server.uri)).collect();
    let mut guest = Guest::boot(sockets)?;
    for nr in 0..servers.len() {
        let until = Until::Requests(SIZE >> 20);
        guest.slice(nr, SIZE, &OF_DISK[0].filling(), until).context("filling a disk")?;
    }
    let mut numbered: Vec<(usize, &mut Served)> = servers.iter_mut().enumerate().collect();
    let mut rows = Vec::new();
    for line in &OF_DISK {
        let load = line.requests();
        let costs = by_turns(&mut numbered, ROUNDS, |(nr, server)| {
            cost_of(server, || guest.slice(*nr, SIZE, &load, until(effort)))
        });
        let costs = costs.with_context(|| format!("running {:?}", line.load))?;
        rows.push(row_of(line, &costs, [None, Some(1)], LEAST_OF_DISK));
    }
    // Before its disks go.
    drop(guest);
    Ok(rows)
}

/// A line of costs by server, of which the first is braid, and where nbdkit and qemu-storage-daemon are; of braid at least
/// `least` is demanded.
fn row_of(line: &Line, costs: &[Vec<Cost>], others: [Option<usize>; 2], least: f64) -> Row {
    let of = |nr: usize| costs.get(nr).into_iter().flatten();
    let ratio = |nr: Option<usize>, value: fn(&Cost) -> f64| {
        nr.map(|nr| Spread::of(of(0).zip(of(nr)).map(|(own, other)| value(own) / value(other))))
    };
    let rates = others.map(|nr| ratio(nr, |cost| cost.rate));
    let times = others.map(|nr| ratio(nr, |cost| cost.processor));
    let lowest =
        rates.iter().flatten().copied().min_by(|one, other| one.median.total_cmp(&other.median));
    let most = times.iter().flatten().map(|time| time.median).fold(0.0, f64::max);
    let micros = Spread::of(of(0).map(|cost| cost.processor * line.block as f64 * 1e6)).median;
    let cells = vec![
        spread(rates[0]),
        spread(rates[1]),
        demand(least, lowest),
        spread(times[0]),
        spread(times[1]),
        format!("≤ {MOST:.2} {}", if most <= MOST { "met" } else { "not met" }),
        megabytes(Spread::of(of(0).map(|cost| cost.rate)).median),
        format!("{micros:.2}"),
    ];
    let report = Report { rounds: ROUNDS, ..Report::without_figures(line.load.to_owned()) };
    Row { load: line.load.to_owned(), cells, report }
}

fn until(effort: &Effort) -> Until {
    Until::Nanos(if effort.quick { 300_000_000 } else { 1_500_000_000 })
}

/// The cost of what `slice` has a server do.
fn cost_of(server: &Served, slice: impl FnOnce() -> anyhow::Result<Slice>) -> anyhow::Result<Cost> {
    let before = server.processor_seconds()?;
    let slice = slice()?;
    let processor = (server.processor_seconds()? - before) / slice.bytes as f64;
    Ok(Cost { rate: slice.bytes as f64 / slice.seconds, processor })
}

/// By server and round.
fn costs(
    effort: &Effort,
    line: &Line,
    home: Option<&Path>,
    servers: &mut [Served],
) -> anyhow::Result<Vec<Vec<Cost>>> {
    by_turns(servers, ROUNDS, |server| {
        let mut fio = Fio::over_nbd(&server.uri, home, SIZE, line.requests());
        cost_of(server, || Ok(fio.slice(until(effort))?))
    })
}
