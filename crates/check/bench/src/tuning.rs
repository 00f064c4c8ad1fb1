//! What the settings of the write path do, and that leaving them alone is best: P7, P8, and the curves
//! of docs/tuning.md.

use crate::loads::sweep::{Variant, sweep};
use crate::loads::virtual_time::sweep_in_virtual_time;
use crate::plot::{Curve, Marks, Plot};
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::Context;
use braid_array::settings::Settings;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Length, LoadError, Options, Over, Pattern, Report, Spread, megabytes};

/// Heights of a line that can be set with 64 KiB chunks.
const STRIPE_SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Sizes of the stripe cache in lines: those of the field's table, and md's default first.
const CACHE_SIZES: [u32; 7] = [256, 512, 1024, 4096, 8192, 16384, 32768];
/// md with four SSDs in RAID5: MB/s of 4K random writes and 1M writes by stripe_size (published with the
/// patches of 2020 that made it a setting).
const MD_STRIPE_SIZES: [(u64, f64, f64); 2] = [(4 << 10, 100.0, 700.0), (64 << 10, 15.0, 1000.0)];
/// md with five SSDs in RAID5: MB/s of 16 jobs with 256K random writes by stripe_cache_size.
const MD_CACHE_SIZES: [(u32, f64); 3] = [(256, 950.0), (4096, 1634.0), (32768, 1138.0)];
const AUTO: &str = "auto";

fn variant(name: String, set: &[(&str, String)]) -> anyhow::Result<Variant> {
    let mut settings = Settings::default();
    for (setting, value) in set {
        settings.set(setting, value)?;
    }
    Ok(Variant { name, settings })
}

fn stripe_sizes() -> anyhow::Result<Vec<Variant>> {
    let fixed = STRIPE_SIZES
        .iter()
        .map(|bytes| variant(format!("{}K", bytes >> 10), &[("stripe_size", bytes.to_string())]));
    std::iter::once(variant(AUTO.to_owned(), &[])).chain(fixed).collect()
}

fn cache_sizes() -> anyhow::Result<Vec<Variant>> {
    let fixed = CACHE_SIZES
        .iter()
        .map(|lines| variant(lines.to_string(), &[("stripe_cache_size", lines.to_string())]));
    std::iter::once(variant(AUTO.to_owned(), &[])).chain(fixed).collect()
}

/// A load on five modelled SATA SSDs.
fn on_ssds(effort: &Effort, pattern: Pattern, block: u64, depth: u32) -> anyhow::Result<Options> {
    let member: MemberSpec = "model:sata-ssd,256M".parse().context("a modelled SATA SSD")?;
    Ok(Options {
        depth,
        length: Length::Seconds(2.0 * effort.seconds()),
        rounds: 3,
        ..Options::new(Level::Raid5, vec![member; 5], pattern, block)
    })
}

fn on_memory(effort: &Effort, pattern: Pattern, block: u64, depth: u32) -> Options {
    Options { depth, ..effort.on_memory(Level::Raid5, 5, pattern, block) }
}

/// On modelled members, unless sockets are in the way, time is theirs.
fn measure(options: &Options, variants: &[Variant]) -> Result<Report, LoadError> {
    if options.in_memory() || options.over == Over::Nbd {
        return sweep(options, variants);
    }
    sweep_in_virtual_time(options, variants)
}

/// The first in proportion to the best of the others.
fn by_best(report: &Report) -> Option<Spread> {
    let ratios = report.ratios.iter().map(|ratio| ratio.ratio);
    ratios.min_by(|a, b| a.median.total_cmp(&b.median))
}

pub fn rates(report: &Report) -> impl Iterator<Item = f64> + '_ {
    report.absolutes.iter().map(|absolute| absolute.bytes_per_second.median)
}

fn row(load: &str, report: Report, least: f64) -> Row {
    let best = by_best(&report);
    let mut cells = vec![spread(best), demand(least, best)];
    cells.extend(rates(&report).map(megabytes));
    Row { load: load.to_owned(), cells, report }
}

/// Rates of all variants but the first, in proportion to the best of them, over `xs`.
fn relative(name: &str, xs: impl Iterator<Item = f64>, rates: &[f64]) -> Curve {
    let best = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let points = xs.zip(rates).map(|(x, rate)| (x, rate / best)).collect();
    Curve { name: name.to_owned(), points }
}

/// P7: no `stripe_size` is better than none.
pub fn stripe_size(effort: &Effort) -> anyhow::Result<Table> {
    let loads = [
        ("memory, 4K random write", on_memory(effort, Pattern::RandWrite, 4 << 10, 32)),
        ("memory, 1M write", on_memory(effort, Pattern::Write, 1 << 20, 4)),
        ("SATA SSDs, 4K random write", on_ssds(effort, Pattern::RandWrite, 4 << 10, 64)?),
        ("SATA SSDs, 64K random write", on_ssds(effort, Pattern::RandWrite, 64 << 10, 32)?),
        ("SATA SSDs, 1M write", on_ssds(effort, Pattern::Write, 1 << 20, 4)?),
    ];
    let variants = stripe_sizes()?;
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for (name, options) in loads {
        let report = measure(&options, &variants).with_context(|| format!("running {name:?}"))?;
        let all: Vec<f64> = rates(&report).collect();
        let fixed = all.get(1..).unwrap_or_default();
        if name.starts_with("SATA") {
            curves.push(relative(
                &format!("braid, {}", name.trim_start_matches("SATA SSDs, ")),
                STRIPE_SIZES.iter().map(|bytes| *bytes as f64),
                fixed,
            ));
        }
        rows.push(row(name, report, 0.97));
    }
    let md = |name: &str, rate: fn(&(u64, f64, f64)) -> f64| {
        let rates: Vec<f64> = MD_STRIPE_SIZES.iter().map(rate).collect();
        relative(name, MD_STRIPE_SIZES.iter().map(|(bytes, ..)| *bytes as f64), &rates)
    };
    curves.push(md("md, 4K random write (published)", |(_, small, _)| *small));
    curves.push(md("md, 1M write (published)", |(_, _, large)| *large));
    Ok(Table {
        title: "stripe_size: auto beside every size".to_owned(),
        about: "RAID5 of five members, one shard, 64 KiB chunks. *auto ÷ best* is the default in proportion to the best \
                of all sizes. Members in memory: one array whose stripe_size is changed between slices while it runs, per \
                second of the shard's processor time. SATA SSDs are modelled, and time is theirs: 550 and 520 MB/s, 95,000 requests per second each. \
                md, published: 4K random writes 100 MB/s with 4K and 15 with 64K, 1M writes 700 and 1000."
            .to_owned(),
        headings: vec![
            "load", "auto ÷ best", "P7 demand", "auto, MB/s", "4K", "8K", "16K", "32K", "64K",
        ],
        rows,
        plots: vec![Plot {
            name: "stripe-size".to_owned(),
            title: "Throughput by stripe_size, best = 1".to_owned(),
            x: "stripe_size, bytes".to_owned(),
            y: "part of the best".to_owned(),
            marks: Marks::PowersOfTwo,
            curves,
        }],
    })
}

/// P8: no `stripe_cache_size` loses.
pub fn stripe_cache_size(effort: &Effort) -> anyhow::Result<Table> {
    let over_nbd = |options: Options| Options { over: Over::Nbd, ..options };
    let field = || on_ssds(effort, Pattern::RandWrite, 256 << 10, 256);
    let stream = || on_ssds(effort, Pattern::Write, 64 << 10, 16);
    let loads = [
        ("256K random write, depth 16 × 16", field()?),
        ("the same over NBD", over_nbd(field()?)),
        ("64K write, depth 16", stream()?),
        ("the same over NBD", over_nbd(stream()?)),
        ("4K write, depth 1", on_ssds(effort, Pattern::Write, 4 << 10, 1)?),
        ("4K random write, depth 64", on_ssds(effort, Pattern::RandWrite, 4 << 10, 64)?),
    ];
    let variants = cache_sizes()?;
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for (name, options) in loads {
        let report = measure(&options, &variants).with_context(|| format!("running {name:?}"))?;
        let all: Vec<f64> = rates(&report).collect();
        if options.over == Over::Engine {
            curves.push(relative(
                &format!("braid, {name}"),
                CACHE_SIZES.iter().map(|lines| f64::from(*lines)),
                all.get(1..).unwrap_or_default(),
            ));
        }
        let worst = all.iter().copied().fold(f64::INFINITY, f64::min);
        let best = all.iter().copied().fold(0.0, f64::max);
        let mut row = row(name, report, 0.95);
        let flat = worst / best.max(1e-9);
        row.cells.insert(2, format!("{flat:.2}"));
        rows.push(row);
    }
    let md: Vec<f64> = MD_CACHE_SIZES.iter().map(|(_, rate)| *rate).collect();
    let lines = MD_CACHE_SIZES.iter().map(|(lines, _)| f64::from(*lines));
    curves.push(relative("md, 16 jobs × 256K random write (published)", lines, &md));
    Ok(Table {
        title: "stripe_cache_size: auto beside the sizes of the field".to_owned(),
        about: "RAID5 of five modelled SATA SSDs, one shard, 64 KiB chunks, stripe_size auto. Time is the members', but \
                over NBD, where one array is measured on the wall clock and its stripe_cache_size changed between \
                slices while it runs. *worst ÷ best* is over all \
                sizes, auto too. md, published: 950 MB/s with 256, 1634 with 4096, 1138 with 32768 for the first \
                load; 509 MB/s for one job of 64K sequential writes."
            .to_owned(),
        headings: vec![
            "load", "auto ÷ best", "worst ÷ best", "P8 demand", "auto, MB/s", "256", "512", "1024", "4096", "8192",
            "16384", "32768",
        ],
        rows,
        plots: vec![Plot {
            name: "stripe-cache-size".to_owned(),
            title: "Throughput by stripe_cache_size, best = 1".to_owned(),
            x: "stripe_cache_size, lines".to_owned(),
            y: "part of the best".to_owned(),
            marks: Marks::PowersOfTwo,
            curves,
        }],
    })
}

/// Throughput by request size and by depth, with the settings left alone and with the extremes.
pub fn curves(effort: &Effort) -> anyhow::Result<Table> {
    let variants: Vec<Variant> = stripe_sizes()?
        .into_iter()
        .filter(|variant| [AUTO, "4K", "64K"].contains(&variant.name.as_str()))
        .collect();
    let mut rows = Vec::new();
    let mut plot = |name: &str, title: &str, x: &str, loads: Vec<(u64, Options)>| {
        let mut curves: Vec<Curve> = variants
            .iter()
            .map(|variant| Curve {
                name: format!("stripe_size={}", variant.name),
                points: Vec::new(),
            })
            .collect();
        for (at, options) in loads {
            let report = measure(&options, &variants)?;
            for (curve, rate) in curves.iter_mut().zip(rates(&report)) {
                curve.points.push((at as f64, rate / 1e6));
            }
            let best = by_best(&report);
            let mut cells = vec![spread(best)];
            cells.extend(rates(&report).map(megabytes));
            let load =
                format!("{} {}K, depth {}", options.pattern, options.block >> 10, options.depth);
            rows.push(Row { load, cells, report });
        }
        anyhow::Ok(Plot {
            name: name.to_owned(),
            title: title.to_owned(),
            x: x.to_owned(),
            y: "MB/s".to_owned(),
            marks: Marks::PowersOfTwo,
            curves,
        })
    };
    let sizes = (2..=10).map(|shift| 1_u64 << (shift + 10));
    let by_size: anyhow::Result<Vec<_>> =
        sizes.map(|block| Ok((block, on_ssds(effort, Pattern::RandWrite, block, 32)?))).collect();
    let depths = (0..=7).map(|shift| 1_u32 << shift);
    let by_depth: anyhow::Result<Vec<_>> = depths
        .map(|depth| Ok((depth.into(), on_ssds(effort, Pattern::Write, 16 << 10, depth)?)))
        .collect();
    let plots = vec![
        plot("block-size", "Random writes by request size, depth 32", "request, bytes", by_size?)?,
        plot("depth", "Sequential 16K writes by depth", "requests in flight", by_depth?)?,
    ];
    Ok(Table {
        title: "Request sizes and depths, with stripe_size auto, 4K and 64K".to_owned(),
        about: "RAID5 of five modelled SATA SSDs, one shard, 64 KiB chunks.".to_owned(),
        headings: vec!["load", "auto ÷ best", "auto, MB/s", "4K", "64K"],
        rows,
        plots,
    })
}
