//! One shard beside two, and what follows from that for more.

use crate::loads::sweep::scaling;
use crate::tables::{Effort, Row, Table, demand, spread};
use crate::tuning::rates;
use anyhow::Context;
use braid_device::spec::MemberSpec;
use braid_layout::Level;
use braid_load::{Length, Options, Pattern, Report, megabytes, significant};

/// Numbers of shards beyond two: measured where the machine has so many processors, projected where not.
const MORE: [u16; 3] = [4, 16, 64];

/// What a request takes of shards, in seconds.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// When its stripe belongs to the shard that it came to.
    own: f64,
    /// More, on both shards together, when it does not.
    crossing: f64,
}

impl Costs {
    /// From one shard and two, on which half of the requests cross.
    fn of(report: &Report) -> Option<Costs> {
        let rate = |name: &str| report.absolute(name).map(|absolute| absolute.iops.median);
        let (one, two) = (rate("1 shard")?, rate("2 shards")?);
        let (own, both) = (1.0 / one, 2.0 / two);
        Some(Costs { own, crossing: (2.0 * (both - own)).max(0.0) })
    }

    /// Seconds of shards for a request when there are `shards` of them.
    fn request(&self, shards: f64) -> f64 {
        self.own + self.crossing * (shards - 1.0) / shards
    }

    /// How much faster `shards` shards are than one.
    fn speedup(&self, shards: f64) -> f64 {
        shards * self.own / self.request(shards)
    }
}

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let ram = |level, members: usize, pattern, block: u64, depth| {
        let member = MemberSpec::Ram(if effort.quick { 34 << 20 } else { 128 << 20 });
        Options {
            depth,
            clock: braid_load::Clock::Wall,
            length: Length::Seconds(2.0 * effort.seconds()),
            ..Options::new(level, vec![member; members], pattern, block)
        }
    };
    let full = 8 * (64 << 10);
    // The last: bytes that a request moves between processor and memory. Small writes read and write
    // data and parity; whole stripes are written past the caches, which reads nothing of the members.
    let loads = [
        (
            "RAID6 8+2, whole stripes",
            ram(Level::Raid6, 10, Pattern::Write, full, 4),
            Some(1.6),
            (full + full / 8 * 10) as f64,
        ),
        (
            "RAID6 8+2, 4K random write",
            ram(Level::Raid6, 10, Pattern::RandWrite, 4 << 10, 32),
            Some(1.6),
            7.0 * 4096.0,
        ),
        (
            "RAID5 4+1, 4K random write",
            ram(Level::Raid5, 5, Pattern::RandWrite, 4 << 10, 32),
            None,
            5.0 * 4096.0,
        ),
        (
            "RAID5 4+1, 4K random read",
            ram(Level::Raid5, 5, Pattern::RandRead, 4 << 10, 32),
            None,
            2.0 * 4096.0,
        ),
    ];
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut rows = Vec::new();
    for (name, options, least, moved) in loads {
        let measured = MORE.into_iter().filter(|shards| usize::from(*shards) <= processors);
        let counts: Vec<u16> = [2, 1].into_iter().chain(measured).collect();
        let report = scaling(&options, &counts).with_context(|| format!("running {name:?}"))?;
        let ratio = report.ratio("2 shards", "1 shard");
        let mut cells = vec![spread(ratio)];
        cells.push(least.map_or("–".to_owned(), |least| demand(least, ratio)));
        cells.extend(rates(&report).take(2).map(megabytes));
        let costs = Costs::of(&report);
        cells.push(costs.map_or("–".to_owned(), |costs| significant(costs.own * 1e6)));
        cells.push(costs.map_or("–".to_owned(), |costs| significant(costs.crossing * 1e6)));
        for shards in MORE {
            let one = report.absolute("1 shard").map(|one| one.iops.median);
            let many = report.absolute(&format!("{shards} shards")).map(|many| many.iops.median);
            let speedup =
                one.zip(many).map(|(one, many)| format!("{} measured", significant(many / one)));
            let projected = costs.map(|costs| significant(costs.speedup(shards.into())));
            cells.push(speedup.or(projected).unwrap_or_else(|| "–".to_owned()));
        }
        cells.push(costs.map_or("–".to_owned(), |costs| {
            significant(moved * 64.0 / costs.request(64.0) / 1e9)
        }));
        rows.push(Row { load: name.to_owned(), cells, report });
    }
    Ok(Table {
        title: "Shards: two beside one".to_owned(),
        about: "Members in memory, 64 KiB chunks; a generator on each shard with a part of the array for itself, whose \
                stripes belong to all shards, so that with two shards half of the pieces cross. Depth is per \
                shard. The arrays are measured in turn in one process, on the wall clock. *Own* is a shard's time for a \
                request whose stripe is its own (one shard's), *crossing* is what a request costs more, on both shards \
                together, when its stripe belongs to another (from the difference of two shards, where half of them \
                cross). With n shards (n − 1) ÷ n of all requests cross, so n shards would be n × own ÷ (own + crossing × \
                (n − 1) ÷ n) times one: the columns for more than two shards are this projection, where they do not say \
                that so many were measured. The last column is what memory would have to move at 64 shards: where it is above what the \
                machine's memory gives, memory saturates first. Healthy reads never cross."
            .to_owned(),
        headings: vec![
            "load", "2 shards ÷ 1", "demand", "2 shards, MB/s", "1 shard, MB/s", "own µs", "crossing µs",
            "4 shards ÷ 1", "16", "64", "64: memory, GB/s",
        ],
        rows,
        plots: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projection_gives_back_what_it_was_made_from() {
        // One shard: 1 µs. Two: 1.6 times as much, so a request takes 1.25 µs, half of them cross.
        let costs = Costs { own: 1e-6, crossing: 0.5e-6 };
        assert!((costs.speedup(1.0) - 1.0).abs() < 1e-9);
        assert!((costs.speedup(2.0) - 1.6).abs() < 1e-9);
        assert!(costs.speedup(64.0) > 42.0 && costs.speedup(64.0) < 43.0);
    }
}
