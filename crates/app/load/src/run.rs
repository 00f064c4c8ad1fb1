//! One load from start to end: sets everything up, measures in turn, reports.

use crate::bare::{Bare, BareLoad, SOURCES_MAX};
use crate::error::LoadError;
use crate::generator::Traffic;
use crate::ideal::{self, RawLoad, memory_size, raw_load};
use crate::measure::{Contender, Until, in_turn};
use crate::on_shards::{OnShards, Place};
use crate::options::{Length, Options, Over};
use crate::report::Report;
use crate::served::Served;
use crate::under_test::UnderTest;
use braid_device::ram::Ram;
use braid_device::{Opener, Target};
use braid_layout::{Layout, Level};
use braid_shard::mailbox::Remote;
use std::sync::Arc;

/// Size of the writes that touch every page before anything is measured.
const FILL_BLOCK: u64 = 1 << 20;
/// Memory of one member of the bare loop at most; more changes nothing, no cache holds this.
const BARE_MEMBER_MAX: u64 = 512 << 20;

impl Options {
    /// How long one slice is.
    pub fn slice(&self) -> Until {
        let rounds = self.rounds.max(1) as u64;
        match self.length {
            Length::Seconds(seconds) => Until::Nanos((seconds * 1e9) as u64 / rounds),
            Length::Bytes(bytes) => Until::Requests((bytes / self.block / rounds).max(1)),
            Length::Requests(requests) => Until::Requests((requests / rounds).max(1)),
        }
    }

    /// The traffic of all shards together.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            block: self.block,
            depth: self.depth,
            reads: self.pattern.reads(),
            random: self.pattern.random(),
            fua: self.fua,
            flush_every: self.flush_every,
            seed: self.seed,
            payload: self.payload,
            latency: self.latency,
            processor_time: self.processor_time(),
        }
    }
}

/// Runs the load of `options` and what it is to be compared with. What the members held is lost.
/// Must not be called on a shard's thread.
///
/// # Errors
/// A load that cannot be, members that do not open or are too small, a request that fails.
pub fn run(options: &Options) -> Result<Report, LoadError> {
    run_beside(options, &mut [])
}

/// Like [`run`], with further contenders of the caller's in the same rounds (another program on the
/// same files, say). They are reported under their names, and the array in proportion to them.
///
/// # Errors
/// As [`run`], and the contenders' own.
pub fn run_beside(
    options: &Options,
    others: &mut [&mut dyn Contender],
) -> Result<Report, LoadError> {
    options.check()?;
    let raw = raw_load(options)?;
    let under_test = UnderTest::start(options)?;
    let mut notes = under_test.notes();
    fill(options, &under_test)?;

    let served = match options.over {
        Over::Engine => None,
        Over::Nbd => Some(Served::start(under_test.array(), under_test.remotes(), options.shards)?),
    };
    let mut array = match &served {
        None => on_array("array", under_test.remotes(), &options.traffic(), &under_test)?,
        Some(served) => served.generators(&options.traffic())?,
    };
    let mut raw_members = match options.beside.raw {
        true => Some(on_members(options, &raw, &under_test)?),
        false => None,
    };
    let mut device = match options.beside.device {
        true => on_device(options, &under_test)?,
        false => None,
    };
    let mut bare = match options.beside.bare {
        true => bare(options, &under_test, &mut notes)?,
        false => None,
    };

    let measured = {
        let mut contenders: Vec<&mut dyn Contender> = vec![&mut array];
        contenders.extend(bare.iter_mut().map(|one| one as &mut dyn Contender));
        contenders.extend(raw_members.iter_mut().map(|one| one as &mut dyn Contender));
        contenders.extend(device.iter_mut().map(|one| one as &mut dyn Contender));
        for other in others {
            contenders.push(&mut **other);
        }
        in_turn(&mut contenders, options.rounds, options.slice())?
    };
    if options.beside.raw && raw.factor.is_none() {
        notes.push(
            "writes to a degraded array have no simple ideal, so raw is not set in proportion"
                .into(),
        );
    }
    let report = Report::of(options.describe(), options.rounds, &measured, notes);
    Ok(Report { processor_time: options.processor_time(), ..report })
}

/// Writes every block of the array once, so that no page is touched for the first time later.
/// Members that take their time get none of this.
pub fn fill(options: &Options, under_test: &UnderTest) -> Result<(), LoadError> {
    if options
        .members
        .iter()
        .any(|member| matches!(member, braid_device::spec::MemberSpec::Model(_)))
    {
        return Ok(());
    }
    fill_all(options, under_test)
}

/// [`fill`], whatever the members are.
pub fn fill_all(options: &Options, under_test: &UnderTest) -> Result<(), LoadError> {
    let size = under_test.array().info().device.size;
    let shards = u64::from(options.shards);
    let block = FILL_BLOCK.min(size / shards / 4096 * 4096).max(4096);
    let traffic = Traffic {
        block,
        depth: 4 * u32::from(options.shards),
        reads: 0,
        random: false,
        flush_every: 0,
        fua: false,
        latency: false,
        payload: 4 * block,
        ..options.traffic()
    };
    let mut filler = on_array("filling the array", under_test.remotes(), &traffic, under_test)?;
    filler.slice(Until::Requests(size / block))?;
    Ok(())
}

/// Generators on the array's shards.
///
/// # Errors
/// When it cannot be opened there.
pub fn on_array(
    name: &str,
    remotes: &[Remote],
    traffic: &Traffic,
    under_test: &UnderTest,
) -> Result<OnShards, LoadError> {
    let array = Arc::clone(under_test.array());
    OnShards::generators(name, remotes, traffic, move |shard, done| {
        let opened = array.open(shard).map_err(LoadError::from);
        done(opened.map(|device| {
            let size = device.info().size;
            vec![(device, 0..size)]
        }));
    })
}

fn on_members(
    options: &Options,
    raw: &RawLoad,
    under_test: &UnderTest,
) -> Result<OnShards, LoadError> {
    let members: Vec<_> = (options.failed..options.members.len())
        .filter_map(|slot| under_test.member(slot))
        .collect();
    let traffic = Traffic {
        block: raw.block,
        depth: raw.depth,
        reads: raw.reads,
        random: raw.random,
        ..options.traffic()
    };
    let raw_members =
        OnShards::generators("raw", under_test.remotes(), &traffic, move |shard, done| {
            let open = |(opener, place): &(Arc<dyn Opener>, std::ops::Range<u64>)| {
                let device = opener.open(shard)?;
                // As in the array, requests to a disk are collected and merged first.
                let device = match device.info().wants_plug {
                    true => braid_device::plug::Plug::new(shard, device),
                    false => return Ok((device, place.clone())),
                };
                Ok((device as std::rc::Rc<dyn braid_device::Device>, place.clone()))
            };
            done(members.iter().map(open).collect::<Result<Vec<Place>, LoadError>>());
        })?;
    Ok(raw_members.worth(raw.factor))
}

/// One plain device in memory, as large as a member, when the members are in memory.
fn on_device(options: &Options, under_test: &UnderTest) -> Result<Option<OnShards>, LoadError> {
    let Some(size) = options.members.iter().map(memory_size).collect::<Option<Vec<u64>>>() else {
        return Ok(None);
    };
    let size = size.into_iter().min().unwrap_or_default();
    plain_device(size, &options.traffic(), under_test.remotes()).map(Some)
}

/// A plain RAM device of `size` bytes, every page of it touched, under `traffic`.
pub fn plain_device(
    size: u64,
    traffic: &Traffic,
    remotes: &[Remote],
) -> Result<OnShards, LoadError> {
    let ram = Arc::new(Ram::try_new("ram", size)?);
    let on_ram = |traffic: &Traffic, remotes: &[Remote]| {
        let ram = Arc::clone(&ram);
        OnShards::generators("device", remotes, traffic, move |shard, done| {
            let opened = ram.open(shard).map_err(LoadError::from);
            done(opened.map(|device| vec![(device, 0..size / 4096 * 4096)]));
        })
    };
    let filling = Traffic {
        block: 4096,
        depth: 8,
        reads: 0,
        random: false,
        latency: false,
        flush_every: 0,
        ..traffic.clone()
    };
    on_ram(&filling, remotes.get(..1).unwrap_or_default())?.slice(Until::Requests(size / 4096))?;
    on_ram(traffic, remotes)
}

/// The bare loop, where there is one: members in memory, one shard, at most one failed member.
fn bare(
    options: &Options,
    under_test: &UnderTest,
    notes: &mut Vec<String>,
) -> Result<Option<OnShards>, LoadError> {
    let degraded =
        options.failed == 1 && options.level.is_parity() && options.pattern.reads() == 100;
    let possible = options.in_memory()
        && options.shards == 1
        && options.members.len() <= SOURCES_MAX
        && (options.failed == 0 || degraded);
    let Some(remote) = under_test.remotes().first().filter(|_| possible) else {
        notes.push("no bare loop: it is made for members in memory, one shard, and reads when a member has failed".into());
        return Ok(None);
    };
    let component = match under_test.member(0) {
        Some((_, place)) => (place.end - place.start).min(BARE_MEMBER_MAX),
        None => return Ok(None),
    };
    let layout: Layout = ideal::layout(options, component)?;
    if options.level == Level::Linear || layout.array_size() < options.block {
        return Ok(None);
    }
    let load = BareLoad {
        block: options.block,
        reads: options.pattern.reads(),
        random: options.pattern.random(),
        seed: options.seed,
        // A generator that reads and writes has as much for each direction.
        payload: options.payload.max(u64::from(options.depth) * options.block),
        degraded,
    };
    let clock = options.processor_time();
    OnShards::bare("bare", remote, options.block, clock, move |shard| {
        Bare::new(shard.pool(), layout, load)
    })
    .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Beside, Pattern};
    use braid_device::spec::MemberSpec;

    fn quick(level: Level, members: usize, pattern: Pattern, block: u64) -> Options {
        Options {
            length: Length::Requests(200),
            rounds: 2,
            depth: 4,
            payload: 1 << 20,
            ..Options::new(level, vec![MemberSpec::Ram(16 << 20); members], pattern, block)
        }
    }

    #[test]
    fn every_level_is_measured_beside_all_it_can_be_compared_with() {
        for (level, members) in [
            (Level::Raid0, 2),
            (Level::Raid1, 2),
            (Level::Raid5, 3),
            (Level::Raid6, 4),
            (Level::Raid10, 4),
        ] {
            for pattern in [Pattern::RandMix(30), Pattern::Write] {
                let report = run(&quick(level, members, pattern, 8192)).unwrap();
                let names: Vec<&str> =
                    report.absolutes.iter().map(|absolute| absolute.name.as_str()).collect();
                assert_eq!(names, ["array", "bare", "raw", "device"], "{level}");
                assert!(report.ratios.iter().all(|ratio| ratio.ratio.median > 0.0));
                assert!(report.ratios.len() == 3);
            }
        }
    }

    #[test]
    fn degraded_reads_are_measured_and_too_many_failures_refused() {
        let options = Options { failed: 1, ..quick(Level::Raid5, 3, Pattern::RandRead, 4096) };
        let report = run(&options).unwrap();
        assert!(report.load.contains("1 failed"));
        assert!(report.ratio("array", "bare").is_some());
        let error = run(&Options { failed: 2, ..options }).unwrap_err().to_string();
        assert!(error.contains("survives 1"), "{error}");
    }

    #[test]
    fn the_same_load_goes_over_nbd_and_over_two_shards() {
        let options = Options {
            over: Over::Nbd,
            shards: 2,
            latency: true,
            beside: Beside { raw: true, bare: false, device: false },
            ..quick(Level::Raid5, 3, Pattern::RandMix(50), 16384)
        };
        let report = run(&options).unwrap();
        let array = report.absolute("array over NBD").unwrap();
        assert!(array.p99_us >= array.p50_us && array.p50_us > Some(0.0));
        assert!(report.ratio("array over NBD", "raw ideal").is_some());
    }

    #[test]
    fn members_that_are_too_small_are_refused_in_words() {
        let mut options = quick(Level::Raid5, 3, Pattern::Write, 1 << 20);
        options.members = vec![MemberSpec::Ram(1 << 20); 3];
        options.shards = 4;
        options.depth = 4;
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains("small") || error.contains("large"), "{error}");
    }
}
