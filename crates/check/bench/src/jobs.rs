//! P13: jobs at the speed of the slowest member while nobody else wants it, and out of the way when somebody does.

use crate::loads::jobs::{Job, job_in_virtual_time};
use crate::tables::{Effort, Row, Table};
use anyhow::Context;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Options, Pattern};

/// Modelled members: a name, and what they are.
const MEMBERS: [(&str, &str); 3] = [
    ("hard disks", "model:hdd,2G"),
    ("SATA SSDs", "model:sata-ssd,768M"),
    ("NVMe SSDs", "model:nvme,768M"),
];
const JOBS: [(&str, Job); 3] =
    [("rebuild", Job::Rebuild), ("check", Job::Check), ("reshape to one more", Job::Reshape)];
/// The least part of what the slowest member can do.
const OF_MEMBER: f64 = 0.95;
/// The most that p99 of a client may grow by.
const P99: f64 = 2.0;
/// Requests of the client in flight.
const DEPTH: u32 = 4;

/// Each job on each kind of member.
pub fn table(_: &Effort) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    for (name, member) in MEMBERS {
        let member: MemberSpec = member.parse().context("a modelled member")?;
        for level in [Level::Raid5, Level::Raid6] {
            for (what, job) in JOBS {
                let options = Options {
                    depth: DEPTH,
                    rounds: 1,
                    ..Options::new(level, vec![member.clone(); 5], Pattern::RandRead, 4096)
                };
                let outcome = job_in_virtual_time(&options, job)?;
                let verdict = |met: bool| if met { "met" } else { "**not met**" };
                let cells = vec![
                    format!("{:.2}", outcome.of_member),
                    format!("≥ {OF_MEMBER} {}", verdict(outcome.of_member >= OF_MEMBER)),
                    format!("{:.2}", outcome.p99),
                    format!("≤ {P99} {}", verdict(outcome.p99 <= P99)),
                ];
                rows.push(Row {
                    load: format!("{what}, {level} of five {name}"),
                    cells,
                    report: outcome.report,
                });
            }
        }
    }
    Ok(Table {
        title: "Jobs, alone and beside a client".to_owned(),
        about: "Modelled members, one shard, 64 KiB chunks; time is the members'. \"Of the member\": seconds that the slowest \
                member would need for its part by itself, reading and writing in order, ÷ seconds of the job with no other \
                load. A reshape reads and writes on the same members, so its part is both, one after the other: \
                the data is read (heads pass over the parity), and all rows are written. Data starts at 129 MiB, as on disks of \
                128 GiB and more. The client \
                reads 4 KiB at random places, four at a time; its p99 beside the job ÷ p99 alone, with the speed limits that \
                are set unless told otherwise."
            .to_owned(),
        headings: vec!["load", "of the member", "P13 demand", "client's p99 ÷ alone", "P13 demand"],
        rows,
        plots: Vec::new(),
    })
}
