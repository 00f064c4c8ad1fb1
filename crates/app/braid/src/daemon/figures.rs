//! What running arrays say that they have done, as it is sent over the control socket.

use super::jobs::job_of;
use super::orders::stopped;
use super::running::Running;
use super::stacking::array_of;
use anyhow::Result;
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::figures::{ArrayFigures, MemberFigures};
use braid_array::status::Counters as EngineCounters;
use braid_array::status::{ArrayStatus, MemberState, MemberStatus};
use braid_control::protocol::{Cache, Counters, Flow, Io, Latency, MemberIo, Sizes, Stat};
use braid_device::counts::{Counts, Direction, class_limit};
use braid_device::meter::{Figures, Latency as Measured};
use braid_format::uuid_text;
use std::rc::Rc;

/// Buckets of latencies for each doubling: 2 to the power of this.
const BUCKETS_SHIFT: u32 = 3;
/// Members of one array above which there is one bucket for each doubling, so that the answer stays a line.
const MEMBERS_IN_DETAIL: usize = 64;

impl Running {
    /// What an array has done, and those below it.
    pub(super) fn stat(&self, array: &Array) -> Result<Stat> {
        let both =
            |control: Rc<Control>| async move { (control.status().await, control.figures().await) };
        let (status, figures) = array.control(both).ok_or_else(|| stopped(array))?;
        let nested = |member: &str| {
            let name = array_of(member)?;
            let array = self.arrays().iter().find(|array| array.name() == name).cloned()?;
            // One that has just been stopped is a member that is gone.
            self.stat(&array).ok().map(Box::new)
        };
        Ok(stat(&status, &figures, nested))
    }

    /// What each array has done, those below others as well.
    pub fn stats(&self) -> Vec<Stat> {
        let arrays = self.arrays().clone();
        arrays.iter().filter_map(|array| self.stat(array).ok()).collect()
    }
}

/// What an array has done since it was started; `nested` gives that of a member that is an array,
/// by its name.
fn stat(
    status: &ArrayStatus,
    figures: &ArrayFigures,
    nested: impl Fn(&str) -> Option<Box<Stat>>,
) -> Stat {
    let cache = &status.cache;
    let shift = if status.members.len() > MEMBERS_IN_DETAIL { 0 } else { BUCKETS_SHIFT };
    let members = status.members.iter().map(|member| {
        let array = nested(&member.name);
        MemberIo { array, ..member_io(member, figures.member(member.nr), shift) }
    });
    Stat {
        name: status.name.clone(),
        uuid: uuid_text::format(&status.uuid),
        level: status.level.to_string(),
        state: status.state_line(),
        degraded: status.degraded,
        waiting_for_space: status.members.iter().map(|member| member.waiting_for_space).sum(),
        mismatch_count: status.mismatch_cnt,
        job: status.job.as_ref().map(job_of),
        seconds: figures.requests.age as f64 / 1e9,
        shards: status.shards,
        io: io(&figures.requests, None, shift),
        counters: counters(&status.counters),
        cache: Cache {
            capacity: cache.capacity,
            lines: cache.lines,
            bytes: cache.bytes,
            hits: cache.hits,
            misses: cache.misses,
            evictions: cache.evictions,
        },
        members: members.collect(),
    }
}

/// The counters of an array.
pub fn counters(counters: &EngineCounters) -> Counters {
    Counters {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes,
        written_bytes: counters.written_bytes,
        pieces: counters.pieces,
        batches: counters.batches,
        lookups: counters.lookups,
        member_reads: counters.member_reads,
        member_writes: counters.member_writes,
        full_stripes: counters.full_stripes,
        read_modify_writes: counters.rmw,
        reconstruct_writes: counters.reconstruct,
        recovered_reads: counters.recovered_reads,
        corrected_reads: counters.corrected_reads,
    }
}

/// The state of a member in one or two words.
pub fn member_state(state: MemberState) -> String {
    match state {
        MemberState::Rebuilding { .. } => "rebuilding".to_string(),
        other => other.to_string(),
    }
}

fn member_io(member: &MemberStatus, figures: Option<&MemberFigures>, shift: u32) -> MemberIo {
    let counted = figures.map(|figures| (&figures.requested, &figures.io.counts));
    MemberIo {
        number: member.nr,
        name: member.name.clone(),
        slot: member.slot,
        state: member_state(member.state),
        requests_in: counted.map_or(0, |(requested, _)| requested.requests()),
        requests_out: counted.map_or(0, |(_, io)| io.requests()),
        bytes: counted.map_or(0, |(_, io)| io.reads.bytes + io.writes.bytes),
        io: figures.map(|figures| io(&figures.io, Some(&figures.requested), shift)),
        array: None,
    }
}

fn io(figures: &Figures, requested: Option<&Counts>, shift: u32) -> Io {
    let flow = |direction| flow(figures, requested, direction, shift);
    Io {
        read: flow(Direction::Read),
        write: flow(Direction::Write),
        discard: flow(Direction::Discard),
        flush: flow(Direction::Flush),
        timed: figures.timed,
        in_flight: figures.in_flight,
        busy_ns: figures.busy,
    }
}

/// `requested` is what there was before merging.
fn flow(figures: &Figures, requested: Option<&Counts>, direction: Direction, shift: u32) -> Flow {
    let io = figures.counts.of(direction);
    let requested = requested.map(|requested| requested.of(direction));
    Flow {
        requests: io.requests,
        merged: requested.map_or(0, |requested| requested.requests.saturating_sub(io.requests)),
        bytes: io.bytes,
        sizes: sizes(&io.sizes),
        sizes_in: requested.map_or_else(Vec::new, |requested| sizes(&requested.sizes)),
        latency: latency(figures.latency(direction), shift),
    }
}

fn sizes(classes: &[u64]) -> Sizes {
    let all = classes.iter().enumerate().map(|(class, count)| (class_limit(class), *count));
    all.filter(|(_, count)| *count > 0).collect()
}

fn latency(measured: &Measured, shift: u32) -> Option<Latency> {
    let histogram = measured.histogram.as_ref()?;
    let requests = measured.requests();
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let bound = bound(value.value_iterated_to(), shift);
        let count = value.count_since_last_iteration();
        match buckets.last_mut() {
            Some((last, sum)) if *last == bound => *sum += count,
            _ => buckets.push((bound, count)),
        }
    }
    Some(Latency {
        requests,
        total_ns: measured.total,
        mean_ns: measured.total.checked_div(requests).unwrap_or(0),
        p50_ns: measured.quantile(0.5),
        p90_ns: measured.quantile(0.9),
        p99_ns: measured.quantile(0.99),
        p999_ns: measured.quantile(0.999),
        max_ns: measured.max,
        buckets,
    })
}

/// The upper bound of the bucket that holds `value`, where each doubling has 2 to the power of `shift` of them.
fn bound(value: u64, shift: u32) -> u64 {
    let digits = u64::BITS - value.leading_zeros();
    let width = digits.saturating_sub(shift + 1);
    value | ((1 << width) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_latencies_part_each_doubling_in_eight() {
        for (value, up_to) in [(0, 0), (7, 7), (8, 8), (15, 15), (16, 17), (17, 17), (18, 19)] {
            assert_eq!(bound(value, 3), up_to, "{value}");
        }
        for (value, up_to) in [(1024, 1151), (1151, 1151), (1152, 1279), (2047, 2047), (2048, 2303)]
        {
            assert_eq!(bound(value, 3), up_to, "{value}");
        }
        assert_eq!((bound(1024, 0), bound(2047, 0), bound(u64::MAX, 3)), (2047, 2047, u64::MAX));
    }
}
