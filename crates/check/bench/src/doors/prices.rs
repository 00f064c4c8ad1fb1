//! The price of a request at each door: the server's processor time, beside the generator in the process.
//!
//! The server's are all threads of this process but the one that is the client. In the process there is no client: its
//! generator's own time is in its figure.

use super::at_door::{AtDoor, DEPTH, DOORS, Load};
use super::counted;
use crate::programs::seconds;
use crate::tables::{Effort, Row, Table, demand};
use anyhow::Context;
use braid_load::measure::Contender;
use braid_load::run::{fill, on_array};
use braid_load::under_test::UnderTest;
use braid_load::{Options, Report, Spread, by_turns};
use rustix::time::ClockId;
use std::time::Instant;

/// The demands on NVMe/TCP beside NBD: processor time of a small request at most, bytes per second at least.
const MOST: f64 = 1.3;
const LEAST: f64 = 0.9;
/// Bytes of a member.
const MEMBER: u64 = 256 << 20;
/// Requests of at most so many bytes are small.
const SMALL: u64 = 4 << 10;

const LOADS: [Load; 4] = [
    Load { name: "4K random read", writes: false, block: 4 << 10 },
    Load { name: "4K random write", writes: true, block: 4 << 10 },
    Load { name: "128K random read", writes: false, block: 128 << 10 },
    Load { name: "128K random write", writes: true, block: 128 << 10 },
];

/// The cost of one contender's slice.
#[derive(Clone, Copy)]
struct Cost {
    /// Seconds of the server's processor time for each request.
    processor: f64,
    /// Bytes per second on the wall clock.
    rate: f64,
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let rows = LOADS.iter().map(|load| row(effort, *load)).collect::<anyhow::Result<_>>()?;
    Ok(Table {
        title: "The price of a request at each door".to_owned(),
        about: format!(
            "RAID0 of two RAM members, depth {DEPTH}, one shard, one client on the machine's other core, over unix \
             sockets. The price is the server's processor time for each request, the kernel's part of it included; of *in \
             the process* that of the array with a generator on its shard. Clients are plain ones that allocate what they \
             read; their time is not counted. Instructions are those of a server outside of the kernel, counted by \
             valgrind's callgrind. The FUSE view and ublk have no client here: there the kernel stands between."
        ),
        headings: vec![
            "load",
            "in the process, µs",
            "NBD, µs",
            "vhost-user-blk, µs",
            "NVMe/TCP, µs",
            "NBD, instructions",
            "vhost-user-blk, instructions",
            "NVMe/TCP, instructions",
            "NVMe/TCP ÷ NBD, time",
            "NVMe/TCP ÷ NBD, MB/s",
        ],
        rows,
        plots: Vec::new(),
    })
}

fn row(effort: &Effort, load: Load) -> anyhow::Result<Row> {
    let options = load.on_an_array(MEMBER, effort.seconds() * 2.0);
    let under_test = UnderTest::start(&options)?;
    fill(&options, &under_test)?;
    let costs = costs(load, &options, &under_test)?;
    let of = |nr: usize| costs.get(nr).into_iter().flatten();
    let mut cells: Vec<String> = (0..costs.len())
        .map(|nr| Spread::of(of(nr).map(|cost| cost.processor)).median * 1e6)
        .map(|micros| format!("{micros:.2}"))
        .collect();
    for adapter in DOORS {
        cells.push(counted::instructions(adapter, load)?.to_string());
    }
    let nvme_by_nbd = |value: fn(&Cost) -> f64| {
        Spread::of(of(3).zip(of(1)).map(|(nvme, nbd)| value(nvme) / value(nbd)))
    };
    let (time, rate) = (nvme_by_nbd(|cost| cost.processor), nvme_by_nbd(|cost| cost.rate));
    let (time_is, rate_is) = (format!("{:.2}", time.median), format!("{:.2}", rate.median));
    cells.extend(match load.block <= SMALL {
        true => {
            let met = if time.median <= MOST { "met" } else { "not met" };
            [format!("{time_is}, ≤ {MOST} {met}"), rate_is]
        }
        false => [time_is, format!("{rate_is}, {}", demand(LEAST, Some(rate)))],
    });
    let report = Report {
        rounds: options.rounds,
        processor_time: true,
        notes: under_test.notes(),
        ..Report::without_figures(options.describe())
    };
    Ok(Row { load: load.name.to_owned(), cells, report })
}

/// By contender, in the process first, and round.
fn costs(load: Load, options: &Options, under_test: &UnderTest) -> anyhow::Result<Vec<Vec<Cost>>> {
    let folder = tempfile::tempdir().context("making a folder for sockets")?;
    let (shards, array) = (under_test.remotes(), under_test.array());
    let mut own = on_array("array", shards, &options.traffic(), under_test)?;
    let mut doors = DOORS
        .iter()
        .map(|adapter| AtDoor::open(*adapter, folder.path(), shards, array))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let until = options.slice();
    let in_process = || anyhow::Ok(own.slice(until).context("running the array")?.requests);
    let mut contenders: Vec<Box<dyn FnMut() -> anyhow::Result<u64> + '_>> =
        vec![Box::new(in_process)];
    for door in &mut doors {
        contenders.push(Box::new(move || door.slice(load, until)));
    }
    by_turns(&mut contenders, options.rounds, |slice| cost(load, slice))
}

fn cost(load: Load, slice: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Cost> {
    let (before, begun) = (others_seconds(), Instant::now());
    let requests = slice()?.max(1) as f64;
    let wall = begun.elapsed().as_secs_f64();
    let processor = (others_seconds() - before) / requests;
    Ok(Cost { processor, rate: requests * load.block as f64 / wall })
}

/// Processor time of all threads but this one.
fn others_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime) - seconds(ClockId::ThreadCPUTime)
}
