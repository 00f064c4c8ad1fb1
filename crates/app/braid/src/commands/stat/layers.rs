//! The tables of `stat` that show every layer: requests in, I/Os out, sizes, queues, times.

use super::ratio::ratio;
use super::unit::{self, Unit};
use crate::commands::layers::{Layer, Row, rows};
use crate::output::{size, table, time};
use braid_control::protocol::{Flow, Latency, MemberIo, Sizes, Stat};
use std::collections::BTreeSet;

/// What one direction of a layer took in and gave on.
struct Passed {
    requests_in: u64,
    requests_out: u64,
    /// Requests before merging for each after; of an array those to its members.
    merge_ratio: Option<f64>,
    bytes: u64,
    size_in: Option<u64>,
    size_out: Option<u64>,
}

/// Merging at the layers: one row for each direction.
pub(super) fn table(stat: &Stat, unit: &Unit) -> String {
    let mut table = table::table(&[
        "Layer",
        "",
        "Requests in",
        "I/Os out",
        "Merged",
        "Bytes",
        "Size in",
        "out",
        "aqu-sz",
        "p50",
        "p99",
        "p99.9",
    ]);
    for row in rows(stat) {
        for (line, (name, flow)) in flows(&row).into_iter().enumerate() {
            let mut cells = vec![if line == 0 { row.label.clone() } else { row.below.clone() }];
            cells.push(name.to_string());
            if let Some(flow) = flow {
                cells.extend(figures(row.what, name, flow, stat.seconds, unit));
            }
            table.add_row(cells);
        }
    }
    table::align_right(&mut table, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    table::text(&table)
}

/// The directions that there is something to say of; one line at least.
fn flows<'a>(row: &Row<'a>) -> Vec<(&'static str, Option<&'a Flow>)> {
    let Some(io) = row.what.io() else { return vec![("not open", None)] };
    let some = io.flows().into_iter().filter(|(_, flow)| flow.requests_in() > 0);
    let some: Vec<_> = some.map(|(name, flow)| (name, Some(flow))).collect();
    if some.is_empty() { vec![("idle", None)] } else { some }
}

fn figures(layer: Layer<'_>, name: &str, flow: &Flow, seconds: f64, unit: &Unit) -> Vec<String> {
    let passed = passed(layer, name, flow);
    let sized =
        |size: Option<u64>| size.filter(|size| *size > 0).map_or_else(String::new, size::human);
    let latency = flow.latency.as_ref();
    let times = |of: fn(&Latency) -> u64| {
        latency.map_or_else(String::new, |latency| time::short(of(latency)))
    };
    let queue =
        latency.map(|latency| latency.total_ns as f64 / 1e9 / seconds.max(f64::MIN_POSITIVE));
    vec![
        unit.count(passed.requests_in),
        unit.count(passed.requests_out),
        unit::times(passed.merge_ratio),
        unit.bytes(passed.bytes),
        sized(passed.size_in),
        sized(passed.size_out),
        queue.map_or_else(String::new, |queue| format!("{queue:.2}")),
        times(|latency| latency.p50_ns),
        times(|latency| latency.p99_ns),
        times(|latency| latency.p999_ns),
    ]
}

fn passed(layer: Layer<'_>, name: &str, flow: &Flow) -> Passed {
    let mean = |bytes: u64, requests| bytes.checked_div(requests);
    match layer {
        Layer::Member(_) => Passed {
            requests_in: flow.requests_in(),
            requests_out: flow.requests,
            merge_ratio: ratio(flow.requests_in(), flow.requests),
            bytes: flow.bytes,
            size_in: mean(flow.bytes, flow.requests_in()),
            size_out: mean(flow.bytes, flow.requests),
        },
        Layer::Array(array) => {
            let (requested, out, bytes) = array.members.iter().fold((0, 0, 0), |sum, member| {
                let below = of(member, name);
                let below =
                    below.map_or((0, 0, 0), |flow| (flow.requests_in(), flow.requests, flow.bytes));
                (sum.0 + below.0, sum.1 + below.1, sum.2 + below.2)
            });
            Passed {
                requests_in: flow.requests,
                requests_out: out,
                merge_ratio: ratio(requested, out),
                bytes: flow.bytes,
                size_in: mean(flow.bytes, flow.requests),
                size_out: mean(bytes, out),
            }
        }
    }
}

fn of<'a>(member: &'a MemberIo, name: &str) -> Option<&'a Flow> {
    let flows = member.io.as_ref()?.flows();
    flows.into_iter().find(|(known, _)| *known == name).map(|(_, flow)| flow)
}

/// Histograms of sizes: how many requests were that large at most, and larger than the column before.
pub(super) fn sizes(stat: &Stat, unit: &Unit) -> String {
    let rows = rows(stat);
    let mut bounds = BTreeSet::new();
    let mut lines: Vec<(String, String, &Sizes)> = Vec::new();
    for row in &rows {
        let mut label = row.label.clone();
        for (name, flow) in flows(row) {
            let Some(flow) = flow else { continue };
            for (end, sizes) in [(" in", &flow.sizes_in), (" out", &flow.sizes)] {
                if sizes.is_empty() || flow.bytes == 0 {
                    continue;
                }
                let end = if matches!(row.what, Layer::Array(_)) { " in" } else { end };
                bounds.extend(sizes.iter().map(|(bound, _)| bound.unwrap_or(u64::MAX)));
                let label = std::mem::replace(&mut label, row.below.clone());
                lines.push((label, format!("{name}{end}"), sizes));
            }
        }
    }
    let title = |bound: &u64| match *bound {
        u64::MAX => "more".to_string(),
        bound => format!("≤ {}", size::human(bound)),
    };
    let mut heads = vec!["Sizes".to_string(), String::new()];
    heads.extend(bounds.iter().map(title));
    let mut table = table::table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (label, name, sizes) in lines {
        let mut cells = vec![label, name];
        cells.extend(bounds.iter().map(|bound| {
            let found = sizes.iter().find(|(known, _)| known.unwrap_or(u64::MAX) == *bound);
            found.map_or_else(String::new, |(_, count)| unit.count(*count))
        }));
        table.add_row(cells);
    }
    table::align_right(&mut table, &(2..heads.len()).collect::<Vec<_>>());
    table::text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    fn squeezed(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn every_layer_tells_what_came_in_and_what_went_out() {
        let lines = squeezed(&table(&samples::stack(), &Unit::All));
        let expected = [
            "Layer Requests in I/Os out Merged Bytes Size in out aqu-sz p50 p99 p99.9",
            "top raid0 read 64 16 2:1 2 MiB 32 KiB 64 KiB 0.13 2 ms 4 ms 6 ms",
            "│ write 10 0 40 KiB 4 KiB 0.00 0 ns 0 ns 0 ns",
            "├─ array:m0[0] raid1 read 32 16 2:1 1 MiB 32 KiB 64 KiB 0.02 1 ms 2 ms 3 ms",
            "│ ├─ a[0] read 16 4 4:1 1 MiB 64 KiB 256 KiB 0.00 1 ms 2 ms 3 ms",
            "│ └─ b[1] read 16 8 2:1 1 MiB 64 KiB 128 KiB 0.01 1 ms 2 ms 3 ms",
            "└─ ram:1M[1] not open",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn sizes_stand_before_and_after_merging() {
        let lines = squeezed(&sizes(&samples::stack(), &Unit::All));
        assert_eq!(lines[0], "Sizes ≤ 4 KiB ≤ 32 KiB ≤ 64 KiB ≤ 128 KiB ≤ 256 KiB");
        assert!(lines.contains(&"│ ├─ a[0] read in 16".to_string()), "{lines:?}");
        assert!(lines.contains(&"│ │ read out 4".to_string()), "{lines:?}");
    }
}
