//! The NBD door beside other servers of NBD, each with a disk in memory, and fio as their client.

use super::servers::{SIZE, Served, Which, certificates};
use crate::fio::Fio;
use crate::programs::{braid, installed};
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_load::{Contender, RawLoad, Report, Spread, Until, by_turns, megabytes};
use std::path::Path;

/// The demands: throughput at least, processor time at most.
const LEAST: f64 = 1.2;
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
    installed(&["fio", "nbdkit", "qemu-storage-daemon", "certtool"])?;
    let folder = tempfile::tempdir().context("making a folder for certificates")?;
    certificates(folder.path())?;
    let rows = LINES
        .iter()
        .map(|line| {
            row(effort, line, folder.path()).with_context(|| format!("running {:?}", line.load))
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "The NBD door beside other servers".to_owned(),
        about: "A disk of 1 GiB in memory: braid's RAID0 of one RAM member on one shard, nbdkit's plugin memory, \
                qemu-storage-daemon on a file on tmpfs. fio's nbd engine is the client: one connection, depth 32 (8 for \
                1 MiB), on the same two cores, over unix sockets; with TLS over TCP to 127.0.0.1. All servers run, and are \
                asked in turn. Throughput is on the wall clock, with the client's part in it; *time* is the server's \
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
    let mut servers = [Which::Braid, Which::Nbdkit, Which::Qemu]
        .iter()
        .map(|which| Served::start(*which, line.tls.then_some(certificates)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let home = line.tls.then_some(certificates);
    for server in &servers {
        // Memory that nobody has written to costs something else.
        let filling =
            RawLoad { block: 1 << 20, depth: 8, reads: 0, random: false, ..line.requests() };
        let mut filler = Fio::over_nbd(&server.uri, home, SIZE, filling);
        filler.slice(Until::Requests(SIZE >> 20)).context("filling a disk")?;
    }
    let costs = costs(effort, line, home, &mut servers)?;
    let of = |nr: usize| costs.get(nr).into_iter().flatten();
    let ratio = |nr: usize, value: fn(&Cost) -> f64| {
        Spread::of(of(0).zip(of(nr)).map(|(own, other)| value(own) / value(other)))
    };
    let rates = [1, 2].map(|nr| ratio(nr, |cost| cost.rate));
    let times = [1, 2].map(|nr| ratio(nr, |cost| cost.processor));
    let least = if rates[0].median <= rates[1].median { rates[0] } else { rates[1] };
    let most = times[0].median.max(times[1].median);
    let micros = Spread::of(of(0).map(|cost| cost.processor * line.block as f64 * 1e6)).median;
    let cells = vec![
        spread(Some(rates[0])),
        spread(Some(rates[1])),
        demand(LEAST, Some(least)),
        spread(Some(times[0])),
        spread(Some(times[1])),
        format!("≤ {MOST:.2} {}", if most <= MOST { "met" } else { "not met" }),
        megabytes(Spread::of(of(0).map(|cost| cost.rate)).median),
        format!("{micros:.2}"),
    ];
    let report = Report { rounds: ROUNDS, ..Report::without_figures(line.load.to_owned()) };
    Ok(Row { load: line.load.to_owned(), cells, report })
}

/// By server and round.
fn costs(
    effort: &Effort,
    line: &Line,
    home: Option<&Path>,
    servers: &mut [Served],
) -> anyhow::Result<Vec<Vec<Cost>>> {
    let until = Until::Nanos(if effort.quick { 300_000_000 } else { 1_500_000_000 });
    by_turns(servers, ROUNDS, |server| {
        let mut fio = Fio::over_nbd(&server.uri, home, SIZE, line.requests());
        let before = server.processor_seconds()?;
        let slice = fio.slice(until)?;
        let processor = (server.processor_seconds()? - before) / slice.bytes as f64;
        Ok(Cost { rate: slice.bytes as f64 / slice.seconds, processor })
    })
}
