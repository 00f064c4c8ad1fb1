//! What mounted volumes say of themselves.

use super::domains;
use super::hosted::{Hosted, Sample, locked};
use anyhow::Result;
use braid_control::protocol::Job;
use braid_control::protocol::volume::{
    BrickDetail, CheckDetail, ListedVolume, LostDetail, VolumeDetail, VolumeJobDetail,
};
use braid_control::wanted::weight;
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::BrickState;
use braid_volume::{BrickStatus, CheckReport, JobState, JobStatus, Lost, VolumeStatus};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Rates are those of at least so long a time.
const SAMPLE_MIN: Duration = Duration::from_millis(250);
/// A sample that is older says nothing of now.
const SAMPLE_MAX: Duration = Duration::from_secs(10);

/// A job with its rate in bytes per second, where that is known.
pub fn job_of(status: &JobStatus, rate: Option<u64>) -> Job {
    let left = status.total.saturating_sub(status.done);
    let rate = rate.unwrap_or(0);
    Job {
        kind: status.kind.name().to_string(),
        done: status.done,
        total: status.total,
        rate,
        eta_seconds: left.checked_div(rate),
        mismatches: 0,
    }
}

impl Hosted {
    /// How the volume is.
    ///
    /// # Errors
    /// When it is not mounted any more.
    pub fn status(&self) -> Result<VolumeStatus> {
        self.with(|here| async move {
            let mut status = here.volume.status();
            status.failure = status.failure.or_else(|| here.opened.superblocks.stopped());
            status
        })
    }

    /// A line of a list.
    ///
    /// # Errors
    /// As [`Hosted::status`].
    pub fn listed(&self) -> Result<ListedVolume> {
        let status = self.status()?;
        let (used, size) = usage(&status);
        Ok(ListedVolume {
            name: self.name.clone(),
            uuid: self.uuid.to_string(),
            dir: Some(self.dir.display().to_string()),
            state: self.state(&status),
            used,
            size,
            bricks: self.bricks().into_iter().map(|brick| brick.name).collect(),
        })
    }

    /// All of it, with rates of a moment.
    ///
    /// # Errors
    /// As [`Hosted::status`].
    pub fn detail(&self) -> Result<VolumeDetail> {
        let before = self.sample()?;
        self.detail_since(Some(before))
    }

    /// The same without rates, at once.
    ///
    /// # Errors
    /// As [`Hosted::status`].
    pub fn figures(&self) -> Result<VolumeDetail> {
        self.detail_since(None)
    }

    fn detail_since(&self, before: Option<Sample>) -> Result<VolumeDetail> {
        let status = self.status()?;
        let asks = before.is_some();
        let before = before.unwrap_or_else(|| sample_of(&status));
        let (seconds, now) = (before.at.elapsed().as_secs_f64().max(0.001), sample_of(&status));
        let rate = |id: u16, part: fn(&(u64, u64)) -> u64| {
            let (Some(old), Some(new)) = (before.bricks.get(&id), now.bricks.get(&id)) else {
                return 0;
            };
            (part(new).saturating_sub(part(old)) as f64 / seconds) as u64
        };
        let metadata = self.with(|here| async move { here.opened.store.bricks() })?;
        let counts = self.with(|here| async move { here.volume.file_counts().get() })?;
        let (reads, writes) = counts;
        let copies = self.copies_in_root()?;
        let domains = domains::count(&status.bricks, None, None);
        let snapshots = self.with(|here| async move { here.volume.snapshots().await })?;
        let snapshots = snapshots.iter().filter(|snapshot| !snapshot.is_going).count();
        let name_of = |id: u16| {
            let brick = status.bricks.iter().find(|brick| brick.id == id);
            brick.map_or_else(|| format!("brick {id}"), |brick| self.name_of(brick))
        };
        let bricks = status.bricks.iter().map(|brick| BrickDetail {
            name: self.name_of(brick),
            read_rate: rate(brick.id, |counts| counts.0),
            write_rate: rate(brick.id, |counts| counts.1),
            ..brick_detail(brick)
        });
        let written: u64 =
            status.bricks.iter().map(|brick| rate(brick.id, |counts| counts.1)).sum();
        let detail = |job: &JobStatus, rate: u64| {
            let (state, error) = match &job.state {
                JobState::Running => ("running", None),
                JobState::Paused => ("paused", None),
                JobState::Failed(why) => ("failed", Some(why.clone())),
            };
            let rate = (job.state == JobState::Running).then_some(rate);
            VolumeJobDetail {
                job: job_of(job, rate),
                brick: job.brick.map(name_of),
                state: state.to_string(),
                error,
            }
        };
        let job = status.job.as_ref().map(|job| detail(job, written));
        let checked = now.checked.saturating_sub(before.checked) as f64 / seconds;
        let check = status.check.as_ref().map(|job| detail(job, checked as u64));
        let (used, size) = usage(&status);
        if asks {
            *locked(&self.sample) = Some(now.clone());
        }
        Ok(VolumeDetail {
            name: self.name.clone(),
            uuid: self.uuid.to_string(),
            dir: self.dir.display().to_string(),
            over_io_uring: self.is_over_io_uring(),
            state: self.state(&status),
            read_only: self.read_only,
            allow_other: self.allow_other,
            no_suid: self.without.setuid,
            no_dev: self.without.devices,
            no_exec: self.without.programs,
            stripe: status.stripe,
            checksums: status.checksums,
            checksum_errors: status.checksum_errors,
            checksum_mended: status.checksum_mended,
            copies,
            domains,
            copies_share_domain: usize::from(copies) > domains,
            incomplete: status.incomplete,
            snapshots: snapshots as u64,
            snapshot_bytes: status.snapshot_bytes,
            used,
            size,
            metadata_used: status.metadata.used,
            metadata_size: status.metadata.capacity,
            metadata_on: metadata.into_iter().map(name_of).collect(),
            unbalanced: status.unbalanced,
            proxy: status.proxy,
            bricks: bricks.collect(),
            job,
            job_speed: *locked(&self.job_speed),
            job_latency: *locked(&self.job_latency),
            check,
            failure: status.failure.clone(),
            lease: None,
            reads: reads.requests,
            read_bytes: reads.bytes,
            read_ns: reads.nanos,
            writes: writes.requests,
            written_bytes: writes.bytes,
            write_ns: writes.nanos,
            seconds: self.since.elapsed().as_secs_f64(),
            exports: self.exported(),
        })
    }

    /// Where a brick is, also one that is missing.
    pub fn name_of(&self, brick: &BrickStatus) -> String {
        self.brick_name(brick.uuid).unwrap_or_else(|| brick.name.clone())
    }

    /// A brick in a sentence: where it is, or of one that was never there its number.
    pub fn called(&self, brick: &BrickStatus) -> String {
        self.brick_name(brick.uuid).map_or_else(
            || match brick.name.starts_with("brick ") {
                true => brick.name.clone(),
                false => format!("brick {}", brick.name),
            },
            |name| format!("brick {name}"),
        )
    }

    fn state(&self, status: &VolumeStatus) -> String {
        let missing = status.bricks.iter().filter(|brick| !brick.is_there).count();
        let mut words = Vec::new();
        if status.failure.is_some() {
            words.push("failed".to_string());
        }
        match missing {
            0 => {}
            1 => words.push("degraded, 1 brick is missing".to_string()),
            some => words.push(format!("degraded, {some} bricks are missing")),
        }
        if self.read_only {
            words.push("read-only".to_string());
        }
        if let Some(job) = &status.job {
            let paused = if job.state == JobState::Running { "" } else { " (stopped)" };
            words.push(format!("{}{paused}", job.kind.name()));
        } else if status.unbalanced {
            words.push("unbalanced".to_string());
        }
        if status.incomplete && status.job.is_none() {
            words.push("copies are missing".to_string());
        }
        if let Some(check) = &status.check {
            words.push(check.kind.name().to_string());
        }
        if words.is_empty() { "clean".to_string() } else { words.join(", ") }
    }

    /// What had been done a moment ago; waits for the moment where nobody asked then.
    fn sample(&self) -> Result<Sample> {
        let last = locked(&self.sample).clone();
        if let Some(last) = last
            && (SAMPLE_MIN..SAMPLE_MAX).contains(&last.at.elapsed())
        {
            return Ok(last);
        }
        let first = sample_of(&self.status()?);
        std::thread::sleep(SAMPLE_MIN);
        Ok(first)
    }

    /// What a check found.
    pub fn check_detail(&self, report: CheckReport) -> CheckDetail {
        let ranges = |ranges: Vec<(u64, u64)>| {
            ranges.into_iter().map(|(from, to)| (from, to - from)).collect()
        };
        let files_of = |list: Vec<Lost>| {
            let list = list.into_iter();
            list.map(|lost| LostDetail { file: lost.path, ranges: ranges(lost.ranges) }).collect()
        };
        CheckDetail {
            name: self.name.clone(),
            files: report.files,
            directories: report.directories,
            stripes: report.stripes,
            bytes: report.bytes,
            problems: report.problems,
            found: report.found,
            repaired: report.repaired,
            leaked: report.leaked_blocks * BLOCK,
            lacking: report.lacking,
            lost: files_of(report.lost),
            scrub: report.scrub,
            rotten: files_of(report.rotten),
            mended: files_of(report.mended),
            sealed: report.sealed,
        }
    }
}

fn sample_of(status: &VolumeStatus) -> Sample {
    let of =
        |brick: &BrickStatus| (brick.id, (brick.counts.bytes_read, brick.counts.bytes_written));
    let bricks: BTreeMap<u16, (u64, u64)> = status.bricks.iter().map(of).collect();
    let checked = status.check.as_ref().map_or(0, |check| check.done);
    Sample { at: Instant::now(), bricks, checked }
}

fn usage(status: &VolumeStatus) -> (u64, u64) {
    let there = status.bricks.iter().filter(|brick| brick.is_there);
    there.fold((0, 0), |(used, size), brick| {
        (used + brick.used * BLOCK, size + brick.blocks * BLOCK)
    })
}

fn brick_detail(brick: &BrickStatus) -> BrickDetail {
    let state = match brick.state {
        BrickState::Lost => "lost",
        _ if !brick.is_there => "missing",
        BrickState::Data => "data",
        BrickState::Removing => "removing",
        BrickState::Proxy => "proxy",
        BrickState::MetadataOnly => "metadata-only",
    };
    let counts = brick.counts;
    BrickDetail {
        id: brick.id,
        uuid: brick.uuid.to_string(),
        state: state.to_string(),
        failure: brick.failure.clone(),
        weight: weight::shown(brick.weight, brick.blocks),
        domain: brick.domain.clone(),
        size: brick.blocks * BLOCK,
        used: brick.used * BLOCK,
        fair_share: brick.fair_share,
        share: brick.share,
        reads: counts.reads,
        read_bytes: counts.bytes_read,
        writes: counts.writes,
        written_bytes: counts.bytes_written,
        errors: counts.errors,
        ..BrickDetail::default()
    }
}
