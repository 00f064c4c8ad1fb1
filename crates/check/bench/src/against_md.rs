//! What the array adds to each write, beside what the real md adds under User Mode Linux.
//!
//! Both are measured on memory, and of each its own plain member is taken off: what the load generator, the
//! guest kernel's system calls and the copy of the data cost is on both sides of the difference.

use crate::fio;
use crate::tables::{Effort, Row, Table, demand, spread};
use anyhow::{Context, bail};
use braid_device::spec::MemberSpec;
use braid_interop::session::Session;
use braid_layout::Level;
use braid_load::{
    Clock, Contender, Length, LoadError, Options, Pattern, Report, Slice, Spread, Until,
    run_beside, significant, thousands,
};
use std::cell::RefCell;
use std::time::Duration;

/// Bytes of a member, on both sides.
const MEMBER: u64 = 256 << 20;
/// The least quotient that is demanded.
const DEMAND: f64 = 5.0;
/// A guest that takes longer than this for a slice or for the array has died.
const LIMIT: Duration = Duration::from_secs(180);

const LINES: [(&str, Pattern, u64, u32); 3] = [
    ("P5: 4K random write", Pattern::RandWrite, 4 << 10, 64),
    ("P5: 64K random write", Pattern::RandWrite, 64 << 10, 64),
    ("P5: 1M write", Pattern::Write, 1 << 20, 4),
];

/// Members that are RAM disks, one more that is in no array, and md with the cache that it is fastest with.
const ARRAY: &str = r#"
set -e
modprobe -d /run/rig/modroot brd rd_nr=6 rd_size=MEMBER_KIB
mdadm --create /dev/md0 --run --quiet --assume-clean --level 5 --raid-devices 5 --chunk 64 /dev/ram[0-4]
echo 4096 > /sys/block/md0/md/stripe_cache_size
for device in md0 ram5; do
  dd if=/dev/zero of=/dev/$device bs=1M oflag=direct status=none 2> /dev/null || true
done
xor=$(dmesg | sed -n "s/.*xor: .*function[: ]*\([a-z0-9_]*\).*/\1/p")
echo "$(uname -r) (its xor: $xor)"
"#;

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let mut guest = Session::boot(2560).context("starting the guest kernel")?;
    let script = ARRAY.replace("MEMBER_KIB", &(MEMBER / 1024).to_string());
    let made = guest.run(&script, LIMIT).context("making md's array in the guest")?;
    if made.status != 0 {
        bail!("making md's array in the guest: {}", made.text);
    }
    let guest = RefCell::new(guest);
    let row = |line| row(effort, &guest, line);
    Ok(Table {
        title: "Added time per write, beside md".to_owned(),
        about: format!(
            "RAID5 of five members of 256 MiB in memory, 64 KiB chunks, depth 64 (4 for 1 MiB requests). *Added* \
             is the time for a request to the array less the time for one to a plain member, \
             1 ÷ IOPS(array) − 1 ÷ IOPS(member), both by the wall clock. md is that of Linux {kernel} under User Mode \
             Linux on one core, with stripe_cache_size=4096 on RAM disks, under fio with batched submission; braid has \
             one shard. All four run in turn, in every round, in one run of this program: the guest waits while \
             braid is measured. Where braid adds nothing (its \
             array is as fast as one plain member) there is no quotient, and the last column counts all the time \
             that a request to the array takes as if it were added.",
            kernel = made.text.trim(),
        ),
        headings: vec![
            "load",
            "md's added ÷ braid's",
            "demand",
            "md adds, µs",
            "braid adds, µs",
            "md's IOPS (member)",
            "braid's IOPS (member)",
            "md's added ÷ all of braid's",
        ],
        rows: LINES.iter().map(row).collect::<anyhow::Result<_>>()?,
        plots: Vec::new(),
    })
}

fn row(
    effort: &Effort,
    guest: &RefCell<Session>,
    line: &(&str, Pattern, u64, u32),
) -> anyhow::Result<Row> {
    let (load, pattern, block, depth) = *line;
    let mut options = Options {
        depth,
        payload: u64::from(depth) * block,
        length: Length::Seconds(if effort.quick { 2.0 } else { 7.5 }),
        clock: Clock::Wall,
        members: vec![MemberSpec::Ram(MEMBER); 5],
        ..effort.on_memory(Level::Raid5, 5, pattern, block)
    };
    options.beside.raw = false;
    options.beside.bare = false;
    let of = |name, device| Guest { name, device, guest, random: pattern.random(), block, depth };
    let (mut array, mut member) = (of("md", "md0"), of("md's member", "ram5"));
    let others: &mut [&mut dyn Contender] = &mut [&mut array, &mut member];
    let report = run_beside(&options, others).with_context(|| format!("running {load:?}"))?;
    let (md, braid) = (added(&report, "md", "md's member"), added(&report, "array", "device"));
    let quotient = by_round(&md, &braid);
    // Less than nothing is added: any quotient would be met.
    let nothing = Spread::of(braid.iter().copied()).median <= 0.0;
    let whole: Vec<f64> = times(&report, "array").collect();
    let both = |array: &str, member: &str| {
        let iops = |name| report.absolute(name).map_or(0.0, |found| found.iops.median);
        format!("{} ({})", thousands(iops(array)), thousands(iops(member)))
    };
    let cells = vec![
        if nothing { "braid adds nothing".to_owned() } else { spread(Some(quotient)) },
        if nothing { format!("≥ {DEMAND:.2} met") } else { demand(DEMAND, Some(quotient)) },
        micros(&md),
        micros(&braid),
        both("md", "md's member"),
        both("array", "device"),
        spread(Some(by_round(&md, &whole))),
    ];
    Ok(Row { load: load.to_owned(), cells, report })
}

/// Seconds per request to `name`, round by round.
fn times(report: &Report, name: &str) -> impl Iterator<Item = f64> {
    let rounds = report.absolute(name).map(|found| found.rounds.as_slice()).unwrap_or_default();
    rounds.iter().map(|iops| 1.0 / iops)
}

/// Seconds that `array` adds to a request to `member`, round by round.
fn added(report: &Report, array: &str, member: &str) -> Vec<f64> {
    times(report, array).zip(times(report, member)).map(|(array, member)| array - member).collect()
}

fn by_round(of: &[f64], by: &[f64]) -> Spread {
    Spread::of(of.iter().zip(by).map(|(of, by)| of / by))
}

fn micros(seconds: &[f64]) -> String {
    let Spread { median, min, max } = Spread::of(seconds.iter().map(|seconds| seconds * 1e6));
    format!("{} ({}–{})", significant(median), significant(min), significant(max))
}

/// fio in the guest on one of its devices.
struct Guest<'a> {
    name: &'static str,
    device: &'static str,
    guest: &'a RefCell<Session>,
    random: bool,
    block: u64,
    depth: u32,
}

impl Guest<'_> {
    fn command(&self, until: Until) -> String {
        let length = match until {
            Until::Nanos(nanos) => format!("--time_based --runtime={}ms", nanos / 1_000_000),
            Until::Requests(requests) => format!("--number_ios={requests}"),
        };
        format!(
            "fio --name=load --filename=/dev/{device} --ioengine=libaio --direct=1 --rw={rw} --bs={block} \
             --iodepth={depth} --iodepth_batch_submit={submit} --iodepth_batch_complete_min={complete} {length} \
             --norandommap --randrepeat=0 --thread --output-format=json",
            device = self.device,
            rw = if self.random { "randwrite" } else { "write" },
            block = self.block,
            depth = self.depth,
            submit = self.depth.min(64),
            complete = (self.depth / 2).clamp(1, 32),
        )
    }
}

impl Contender for Guest<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn worth(&self) -> Option<f64> {
        None
    }

    fn slice(&mut self, until: Until) -> Result<Slice, LoadError> {
        let failed = |why: String| LoadError::Program { program: "fio in the guest".into(), why };
        let output = self.guest.borrow_mut().run(&self.command(until), LIMIT);
        let output = output.map_err(|error| failed(error.to_string()))?;
        if output.status != 0 {
            return Err(failed(output.text));
        }
        fio::parse(&output.text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_taken_round_by_round() {
        let quotient = by_round(&[8e-6, 9e-6, 10e-6], &[2e-6, 3e-6, 1e-6]);
        assert_eq!(format!("{:.1}", quotient.median), "4.0");
        assert_eq!(micros(&[8e-6, 9e-6, 1e-5]), "9.00 (8.00–10.0)");
    }
}
