//! Arrays made of arrays: what reaches the members of the field's stack and of others, with plugging at every
//! layer and without (P10, field table 4).

use crate::loads::stack::{
    Below, Stack, StackFigures, StackLoad, stack_in_virtual_time, stack_on_the_clock,
};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_device::spec::MemberSpec;
use braid_layout::{Level, layout_number};
use braid_load::{Measured, Pattern, Report, Until, megabytes, significant};
use std::path::Path;

const KIB: u64 = 1 << 10;
/// No plug makes larger requests.
const MERGED_MAX: f64 = 4.0 * 1048576.0;
const DEPTHS: [u32; 3] = [1, 4, 32];
const BLOCKS: [u64; 4] = [64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB];

/// A kind of device, as tables name it, and as members are written.
const DEVICES: [(&str, &str); 2] = [("HDD", "model:hdd,96M"), ("SATA SSD", "model:sata-ssd,96M")];

/// A stack, and how many devices' rates a sequential stream can have of it at best.
struct Subject {
    name: &'static str,
    stack: Stack,
    reads: f64,
    writes: f64,
}

fn mirrors(device: &MemberSpec) -> Subject {
    let mirror = Stack::of_devices(Level::Raid1, device, 3);
    let stack = Stack::of_arrays(Level::Raid0, vec![mirror; 4]);
    Subject { name: "raid0 over 4 × raid1 of 3", stack, reads: 4.0, writes: 4.0 }
}

fn others(device: &MemberSpec) -> anyhow::Result<Vec<Subject>> {
    let raid10 = |name, layout: &str, reads| {
        let layout = Some(layout_number(Level::Raid10, layout)?);
        let stack = Stack { layout, ..Stack::of_devices(Level::Raid10, device, 8) };
        anyhow::Ok(Subject { name, stack, reads, writes: 4.0 })
    };
    let raid5 = Stack::of_devices(Level::Raid5, device, 5);
    Ok(vec![
        Subject {
            name: "raid0 of 8",
            stack: Stack::of_devices(Level::Raid0, device, 8),
            reads: 8.0,
            writes: 8.0,
        },
        raid10("raid10 near 2 of 8", "n2", 4.0)?,
        raid10("raid10 far 2 of 8", "f2", 8.0)?,
        raid10("raid10 offset 2 of 8", "o2", 4.0)?,
        Subject {
            name: "raid0 over 2 × raid5 of 5",
            stack: Stack::of_arrays(Level::Raid0, vec![raid5; 2]),
            reads: 8.0,
            writes: 8.0,
        },
    ])
}

fn parse(device: &str) -> anyhow::Result<MemberSpec> {
    device.parse().with_context(|| format!("the modelled member {device}"))
}

/// Bytes per second of one device, read or written in large pieces.
fn device_rate(device: &MemberSpec, pattern: Pattern, until: Until) -> anyhow::Result<f64> {
    let stack = Stack::new(Level::Linear, vec![Below::Device(device.clone())]);
    let load = StackLoad { stack, pattern, block: 4096 * KIB, depth: 4, until, aggregate: true };
    Ok(stack_in_virtual_time(&load)?.rate())
}

/// Both ways of running one load.
struct Both {
    on: StackFigures,
    off: StackFigures,
}

impl Both {
    fn report(&self, load: String, virtual_time: bool) -> Report {
        let measured = |name: &str, figures: &StackFigures| Measured {
            name: name.to_owned(),
            worth: Some(1.0),
            slices: vec![figures.slice.clone()],
        };
        let all = [measured("plugged", &self.on), measured("not plugged", &self.off)];
        Report { virtual_time, ..Report::of(load, 1, &all, Vec::new()) }
    }

    /// Latency with plugging in proportion to that without.
    fn latency(&self) -> f64 {
        self.on.median_latency() as f64 / self.off.median_latency().max(1) as f64
    }
}

fn kib(bytes: f64) -> String {
    significant(bytes / 1024.0)
}

/// Sizes of requests as the layers cut them and as they hand them down: `64 → 256 → 64 → 512`.
fn sizes(figures: &StackFigures) -> String {
    let layers = figures
        .layers
        .iter()
        .map(|layer| format!("{} → {}", kib(layer.size_in()), kib(layer.size_out())));
    layers.collect::<Vec<_>>().join(", ")
}

fn verdict(met: bool) -> String {
    if met { "met".to_owned() } else { "**not met**".to_owned() }
}

/// The largest that requests to each of `columns` devices can be: what is in flight shared out, though never less
/// than a chunk or the request itself, and no more than is ever merged.
fn possible(block: u64, depth: u32, columns: f64) -> f64 {
    let share = (block * u64::from(depth)) as f64 / columns;
    share.max(block.min(64 * KIB) as f64).min(MERGED_MAX)
}

fn cells(both: &Both, load: &StackLoad, columns: f64, sum: Option<f64>) -> Vec<String> {
    let (on, off) = (&both.on, &both.off);
    let (block, depth) = (load.block, load.depth);
    let grown = on.device_request() / block as f64;
    // Where so little is in flight that no device can get a whole request's worth, its share of it.
    let least = (possible(block, depth, columns) / block as f64).min(1.0);
    let part = sum.map(|sum| on.rate() / sum);
    let demanded = depth > 1;
    vec![
        sizes(on),
        sizes(off),
        format!("{grown:.2}"),
        if demanded {
            format!("≥ {least:.2} {}", verdict(grown >= 0.995 * least))
        } else {
            "–".to_owned()
        },
        megabytes(on.rate()),
        megabytes(off.rate()),
        format!("{:.2}", on.rate() / off.rate().max(1e-9)),
        part.map_or("–".to_owned(), |part| format!("{part:.2}")),
        match part {
            Some(part) if demanded => verdict(part >= 0.95),
            _ => "–".to_owned(),
        },
        if demanded { "–".to_owned() } else { format!("{:.3}", both.latency()) },
        if demanded { "–".to_owned() } else { verdict(both.latency() <= 1.02) },
    ]
}

fn headings() -> Vec<&'static str> {
    vec![
        "load",
        "KiB, cut → handed down by each layer",
        "not plugged",
        "at devices ÷ submitted",
        "P10",
        "MB/s",
        "not plugged",
        "plugged ÷ not",
        "÷ sum of devices",
        "P10 ≥ 0.95",
        "latency, plugged ÷ not",
        "≤ 1.02",
    ]
}

fn measure(
    name: &str,
    load: &StackLoad,
    columns: f64,
    sum: Option<f64>,
    run: fn(&StackLoad) -> Result<StackFigures, braid_load::LoadError>,
) -> anyhow::Result<Row> {
    let doing = || format!("running {name:?}");
    let on = run(&StackLoad { aggregate: true, ..load.clone() }).with_context(doing)?;
    let off = run(&StackLoad { aggregate: false, ..load.clone() }).with_context(doing)?;
    let both = Both { on, off };
    let report = both.report(name.to_owned(), sum.is_some());
    Ok(Row { load: name.to_owned(), cells: cells(&both, load, columns, sum), report })
}

/// Modelled members, in their time.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let until = Until::Nanos((effort.seconds() * 0.2e9) as u64);
    let mut rows = Vec::new();
    for (device_name, device) in DEVICES {
        let device = parse(device)?;
        let rates = [Pattern::Read, Pattern::Write]
            .map(|pattern| (pattern, device_rate(&device, pattern, until)));
        let subjects = std::iter::once((mirrors(&device), true))
            .chain(others(&device)?.into_iter().map(|subject| (subject, false)));
        for (subject, whole) in subjects {
            for (pattern, rate) in &rates {
                let rate = rate.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
                let members =
                    if *pattern == Pattern::Read { subject.reads } else { subject.writes };
                for block in BLOCKS {
                    for depth in DEPTHS {
                        // The field's stack in full, of the others what shows most.
                        if !whole && (block == 256 * KIB || block == 4096 * KIB || depth == 1) {
                            continue;
                        }
                        let name = format!(
                            "{device_name}, {}, {pattern} {}K, depth {depth}",
                            subject.name,
                            block / KIB
                        );
                        let load = StackLoad {
                            stack: subject.stack.clone(),
                            pattern: *pattern,
                            block,
                            depth,
                            until,
                            aggregate: true,
                        };
                        rows.push(measure(
                            &name,
                            &load,
                            members,
                            Some(rate * members),
                            stack_in_virtual_time,
                        )?);
                    }
                }
            }
        }
    }
    Ok(Table {
        title: "Stacks: what reaches the members".to_owned(),
        about: "Sequential streams through arrays made of arrays, 64 KiB chunks, one shard, modelled devices, time is \
                theirs. Each layer is shown as what it cuts requests to and what it hands down after it has collected \
                and merged, in KiB, from the top; *not plugged* hands down what it cuts (a switch for this table). \
                The sum of the devices is that of those that hold different data: 4 of raid0 over 4 × raid1 of 3 and of \
                raid10 near and offset of 8, else 8, but 4 for writes of raid10. Superblocks are written meanwhile, which is why a size counts as 1 from 0.995 on. At the devices requests shall be no smaller than they were submitted (P10), or, where less is in flight, \
                no smaller than each device's share of all that is; at depth 1 nothing is demanded. The field (raid0 over 4 × \
                raid1 of 3 under md): members saw 8 KiB instead of 64 KiB, and plugging in the upper layer doubled \
                the throughput."
            .to_owned(),
        headings: headings(),
        rows,
        plots: Vec::new(),
    })
}

/// Members that are files on this machine's disk, on the wall clock.
pub fn on_files(effort: &Effort) -> anyhow::Result<Table> {
    let folder = match &effort.disk {
        Some(disk) => tempfile::tempdir_in(disk),
        None => tempfile::tempdir_in("."),
    };
    let folder = folder.context("making a folder for the members")?;
    let device = |nr: usize| {
        let path = folder.path().join(format!("member{nr}"));
        braid_device::file::create_sparse(&path, 96 << 20)
            .with_context(|| format!("making {}", path.display()))?;
        anyhow::Ok(Below::Device(MemberSpec::Path(path)))
    };
    let mut numbers = 0..;
    let mut mirror = || {
        let devices = numbers.by_ref().take(3).map(device).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok(Below::Array(Stack::new(Level::Raid1, devices)))
    };
    let stack = Stack::new(Level::Raid0, vec![mirror()?, mirror()?, mirror()?, mirror()?]);
    let requests = if effort.quick { 32 << 20 } else { 512 << 20 };
    let mut rows = Vec::new();
    for pattern in [Pattern::Write, Pattern::Read] {
        for block in BLOCKS {
            for depth in DEPTHS {
                let name = format!("{pattern} {}K, depth {depth}", block / KIB);
                let until = Until::Requests(requests / block);
                let stack = stack.clone();
                let load = StackLoad { stack, pattern, block, depth, until, aggregate: true };
                rows.push(measure(&name, &load, 4.0, None, stack_on_the_clock)?);
            }
        }
    }
    Ok(Table {
        title: "Stacks: members that are files".to_owned(),
        about: format!(
            "raid0 over 4 × raid1 of 3, 64 KiB chunks, twelve files on one disk ({}), O_DIRECT, one shard. The disk is \
             shared: sizes hold, rates are of the moment. Columns as for modelled members.",
            filesystem(folder.path())
        ),
        headings: headings(),
        rows,
        plots: Vec::new(),
    })
}

fn filesystem(folder: &Path) -> String {
    let whole = std::path::absolute(folder).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fitting = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (place, kind) = (words.nth(1)?, words.next()?);
        whole.starts_with(place).then(|| (place.len(), kind.to_owned()))
    });
    fitting.max().map_or_else(|| "unknown filesystem".to_owned(), |(_, kind)| kind)
}
