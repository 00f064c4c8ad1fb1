//! How fast a failed member is rebuilt onto a spare, beside what limits it.
//!
//! In each round the member of slot 0 is failed, taken out and replaced, and the array recovers it
//! with no other load. In turn: `bare` recovers the same bytes on plain memory without an engine;
//! `device` writes one plain device in memory from end to end.

use braid_device::Opener;
use braid_load::bare::SOURCES_MAX;
use braid_load::error::LoadError;
use braid_load::generator::Traffic;
use braid_load::ideal::memory_size;
use braid_load::measure::{Contender, Slice, Until, in_turn};
use braid_load::on_shards::OnShards;
use braid_load::options::Options;
use braid_load::report::Report;
use braid_load::run::{fill, plain_device};
use braid_load::under_test::{UnderTest, prepare};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that a rebuild writes at a time, for what it is compared with.
const REBUILD_BLOCK: u64 = 256 << 10;

/// Rebuilds of one member, again and again.
struct Rebuild<'a> {
    under_test: &'a UnderTest,
    /// What takes the failed member's place next.
    spare: Arc<dyn Opener>,
    /// What holds slot 0 now.
    holder: Arc<dyn Opener>,
    bytes: u64,
    processor_time: bool,
}

impl Contender for Rebuild<'_> {
    fn name(&self) -> &str {
        "rebuild"
    }

    fn slice(&mut self, _: Until) -> Result<Slice, LoadError> {
        let name = self.under_test.holder(0)?;
        self.under_test.fail(0)?;
        self.under_test.remove(name)?;
        let clock = self.seconds()?;
        self.under_test.add_and_wait(Arc::clone(&self.spare))?;
        let seconds = self.seconds()? - clock;
        std::mem::swap(&mut self.spare, &mut self.holder);
        Ok(Slice { requests: 1, bytes: self.bytes, seconds, latency: None })
    }
}

impl Rebuild<'_> {
    /// The wall clock, or the processor time that the array's shards have used.
    fn seconds(&self) -> Result<f64, LoadError> {
        if !self.processor_time {
            let now = clock_gettime(ClockId::Monotonic);
            return Ok(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9);
        }
        let mut sum = 0.0;
        for remote in self.under_test.remotes() {
            let used = remote.call(|_| {
                let now = clock_gettime(ClockId::ThreadCPUTime);
                now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
            });
            sum += used.ok_or_else(|| LoadError::ShardGone("rebuild".to_owned()))?;
        }
        Ok(sum)
    }
}

/// Measures rebuilds of an array of `options`, whose block, pattern and depth do not matter here.
/// What the members held is lost. Must not be called on a shard's thread.
///
/// # Errors
/// An array that cannot be or has no redundancy, a rebuild that does not come to its end.
pub fn rebuild(options: &Options) -> Result<Report, LoadError> {
    options.check()?;
    let options = Options { failed: 0, ..options.clone() };
    let under_test = UnderTest::start(&options)?;
    let Some((holder, place)) = under_test.member(0) else {
        return Err(LoadError::Rebuild("an array without a member in slot 0".to_owned()));
    };
    fill(&options, &under_test)?;
    let processor_time = options.processor_time();
    let (bytes, members) = (place.end - place.start, options.members.len());
    let spec = options.members.first().cloned();
    let memory = spec.as_ref().and_then(memory_size);
    // Failed members of other kinds are their own replacement: there may be no second disk.
    let spare = match (&spec, memory) {
        (Some(spec), Some(_)) => prepare(spec, members)?,
        _ => Arc::clone(&holder),
    };
    let mut rebuild = Rebuild { under_test: &under_test, spare, holder, bytes, processor_time };
    let remotes = under_test.remotes();
    let traffic = Traffic {
        block: REBUILD_BLOCK,
        reads: 0,
        random: false,
        fua: false,
        flush_every: 0,
        latency: false,
        ..options.traffic()
    };
    let (mut bare, mut device) = (None, None);
    if let (Some(size), Some(remote)) = (memory, remotes.first()) {
        if members <= SOURCES_MAX {
            let (size, block) = (bytes.min(512 << 20) as usize, REBUILD_BLOCK as usize);
            bare = Some(OnShards::bare_rebuild(remote, members, size, block, processor_time)?);
        }
        device = Some(plain_device(size, &traffic, remotes)?);
    }
    let began = Instant::now();
    let measured = {
        let mut contenders: Vec<&mut dyn Contender> = vec![&mut rebuild];
        contenders.extend(bare.iter_mut().map(|one| one as &mut dyn Contender));
        contenders.extend(device.iter_mut().map(|one| one as &mut dyn Contender));
        in_turn(&mut contenders, options.rounds, Until::Requests((bytes / REBUILD_BLOCK).max(1)))?
    };
    let load = format!(
        "rebuild of 1 of {} members of {}, chunk {}",
        members,
        options.level,
        braid_device::spec::show_size(options.chunk),
    );
    let notes = vec![format!("{:.1} s in all", began.elapsed().as_secs_f64())];
    let report = Report::of(load, options.rounds, &measured, notes);
    Ok(Report { processor_time, ..report })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::spec::MemberSpec;
    use braid_layout::Level;
    use braid_load::options::Pattern;

    #[test]
    fn rebuilds_of_parity_and_mirrors_come_to_their_end_again_and_again() {
        for (level, members) in [(Level::Raid5, 3), (Level::Raid1, 2)] {
            let members = vec![MemberSpec::Ram(16 << 20); members];
            let options =
                Options { rounds: 2, ..Options::new(level, members, Pattern::Write, 4096) };
            let report = rebuild(&options).unwrap();
            assert!(report.ratio("rebuild", "device").unwrap().median > 0.0, "{level}");
            assert!(report.ratio("rebuild", "bare").is_some());
        }
    }

    #[test]
    fn without_redundancy_there_is_no_rebuild() {
        let members = vec![MemberSpec::Ram(16 << 20); 2];
        let options = Options::new(Level::Raid0, members, Pattern::Write, 4096);
        assert!(rebuild(&options).unwrap_err().to_string().contains("no redundancy"));
    }
}
