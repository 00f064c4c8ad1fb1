//! P15: the cost of a closed write hole, which a partial parity log brings.

use crate::loads::sweep::Variant;
use crate::loads::virtual_time::sweep_in_virtual_time;
use crate::tables::{Effort, Row, Table};
use crate::tuning::rates;
use anyhow::Context;
use braid_array::settings::Settings;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Length, Options, Pattern, Report};

/// Modelled members: a name, and what they are.
const MEMBERS: [(&str, &str); 4] = [
    ("SATA SSDs, flush and FUA 0.1 ms", "model:sata-ssd,256M,flush=100us"),
    ("SATA SSDs, flush and FUA 0.5 ms", "model:sata-ssd,256M,flush=500us"),
    ("NVMe SSDs, flush and FUA 20 us", "model:nvme,256M,flush=20us"),
    ("NVMe SSDs, flush and FUA 0.1 ms", "model:nvme,256M,flush=100us"),
];
/// Requests in flight.
const DEPTHS: [u32; 3] = [32, 128, 512];
/// The most that it may cost.
const DEMAND: f64 = 0.20;

fn rate(options: &Options) -> anyhow::Result<(f64, Report)> {
    let variant = Variant { name: "array".to_owned(), settings: Settings::default() };
    let report = sweep_in_virtual_time(options, &[variant])?;
    let rate = rates(&report).next().context("nothing was measured")?;
    Ok((rate / 4096.0, report))
}

/// The same writes without a log and with one.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    for (name, member) in MEMBERS {
        let member: MemberSpec = member.parse().context("a modelled SSD")?;
        for depth in DEPTHS {
            let without = Options {
                depth,
                length: Length::Seconds(0.2 * effort.seconds()),
                rounds: 1,
                ..Options::new(Level::Raid5, vec![member.clone(); 5], Pattern::RandWrite, 4096)
            };
            let (before, _) = rate(&without)?;
            let (after, report) = rate(&Options { ppl: true, ..without })?;
            let cost = 1.0 - after / before;
            let verdict = if cost <= DEMAND { "met" } else { "**not met**" };
            let cells = vec![
                format!("{:.0} %", 100.0 * cost),
                format!("≤ {:.0} % {verdict}", 100.0 * DEMAND),
                format!("{:.0}", before / 1000.0),
                format!("{:.0}", after / 1000.0),
            ];
            rows.push(Row { load: format!("{name}, depth {depth}"), cells, report });
        }
    }
    Ok(Table {
        title: "The cost of a partial parity log".to_owned(),
        about: "RAID5 of five modelled SSDs with volatile caches, one shard, 64 KiB chunks, random writes of 4 KiB; time is the \
                members'. The log makes a write wait for one more write with FUA, and its member for a flush before the \
                next: with few requests in flight that is latency, which no log can hide; with many it is what the \
                devices do more. md's authors name 30 to 40 %."
            .to_owned(),
        headings: vec!["load", "cost", "P15 demand", "k writes/s without", "with"],
        rows,
        plots: Vec::new(),
    })
}
