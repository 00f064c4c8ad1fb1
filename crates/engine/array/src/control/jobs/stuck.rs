//! Jobs that could not go on: each is tried again after a while, which doubles, and at once when members change or somebody
//! asks for it.
//!
//! Does not know what a job does, nor why it ended.

use crate::status::{JobKind, StuckJob};
use braid_shard::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// The first time a job is tried again after so long, in nanoseconds.
const FIRST: Nanos = 60 * SECOND;
/// And after so long at most.
const LONGEST: Nanos = 3600 * SECOND;

/// A job that may be stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayStick {
    Recovery,
    Resync,
    Reshape,
    Replacement,
}

impl MayStick {
    const ALL: [MayStick; 4] =
        [MayStick::Recovery, MayStick::Resync, MayStick::Reshape, MayStick::Replacement];

    fn kind(self) -> JobKind {
        match self {
            MayStick::Recovery | MayStick::Replacement => JobKind::Recover,
            MayStick::Resync => JobKind::Resync,
            MayStick::Reshape => JobKind::Reshape,
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Stuck {
    jobs: [Job; 4],
}

#[derive(Clone, Default)]
struct Job {
    /// Times that it has failed since members changed last.
    failures: u32,
    /// When it is tried again.
    again: Nanos,
    why: String,
}

impl Stuck {
    /// The job has failed for this reason; nanoseconds until it is tried again.
    pub(crate) fn failed(&mut self, job: MayStick, why: String, now: Nanos) -> Nanos {
        let job = &mut self.jobs[job as usize];
        let wait = FIRST.saturating_mul(1 << job.failures.min(16)).min(LONGEST);
        let (failures, again) = (job.failures.saturating_add(1), now.saturating_add(wait));
        *job = Job { failures, again, why };
        wait
    }

    /// The job must not be tried yet.
    pub(crate) fn holds(&self, job: MayStick, now: Nanos) -> bool {
        let job = &self.jobs[job as usize];
        job.failures > 0 && now < job.again
    }

    /// The jobs that must not be tried yet.
    pub(crate) fn waiting(&self, now: Nanos) -> Vec<StuckJob> {
        let held = MayStick::ALL.into_iter().filter(|job| self.holds(*job, now));
        held.map(|job| {
            let Job { again, why, .. } = &self.jobs[job as usize];
            StuckJob { kind: job.kind(), why: why.clone(), again_in: again - now }
        })
        .collect()
    }

    /// Nothing is as it was: all may be tried, as if none had failed.
    pub(crate) fn forget(&mut self) {
        self.jobs = Default::default();
    }

    /// The job has ended well.
    pub(crate) fn went_on(&mut self, job: MayStick) {
        self.jobs[job as usize] = Job::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_tried_again_ever_later_and_at_once_when_all_is_forgotten() {
        let mut stuck = Stuck::default();
        let (mut now, mut waits) = (7, Vec::new());
        for _ in 0..9 {
            let wait = stuck.failed(MayStick::Resync, "at byte 7".into(), now);
            assert!(stuck.holds(MayStick::Resync, now) && !stuck.holds(MayStick::Recovery, now));
            let waiting = stuck.waiting(now);
            let told = waiting.iter().map(|job| (job.kind, &*job.why, job.again_in));
            assert_eq!(told.collect::<Vec<_>>(), [(JobKind::Resync, "at byte 7", wait)]);
            now += wait;
            assert!(!stuck.holds(MayStick::Resync, now) && stuck.waiting(now).is_empty());
            waits.push(wait / SECOND);
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        stuck.failed(MayStick::Resync, String::new(), now);
        stuck.forget();
        assert!(stuck.waiting(now).is_empty());
        assert_eq!(stuck.failed(MayStick::Resync, String::new(), now), FIRST);
        stuck.went_on(MayStick::Resync);
        assert!(stuck.waiting(now).is_empty());
    }
}
