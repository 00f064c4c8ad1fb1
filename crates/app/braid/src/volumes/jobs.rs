//! Jobs of a mounted volume: started, steered, waited for; and what is to be done when one has ended.

use super::details::job_of;
use super::here::Here;
use super::hosted::{Hosted, locked};
use super::inside::inside;
use super::tell::Tell;
use crate::output::size;
use anyhow::{Context, Result, anyhow, bail};
use braid_control::protocol::Answer;
use braid_control::protocol::volume::{CopiesDetail, FileName, JobDeed, VolumeJob};
use braid_format::volume::BLOCK;
use braid_format::volume::job::JobKind;
use braid_volume::{BrickStatus, JobState, JobStatus, NewJob, Volume, VolumeError};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// A rate is that of about so long a time.
const RATE_OVER: Duration = Duration::from_secs(3);

/// What a removal that was started is called begins so.
const REMOVAL: &str = "removal of";

/// Bricks that were let go are closed within so long.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

impl Hosted {
    /// Starts a job.
    ///
    /// # Errors
    /// When another is under way, or it cannot be done; nothing has moved then.
    pub fn start_job(&self, job: &VolumeJob) -> Result<String> {
        let name = &self.name;
        let (new, what) = match job {
            VolumeJob::Balance => (NewJob::Balance, format!("balance of volume {name}")),
            VolumeJob::Flush => (NewJob::Flush, format!("flush of the proxy of volume {name}")),
            VolumeJob::Defrag => (NewJob::Defrag, format!("defrag of volume {name}")),
            VolumeJob::Check { repair } => return self.start_check(*repair),
            VolumeJob::Scrub => return self.start_scrub(),
            VolumeJob::Remove { brick, dry_run } => {
                let brick = self.select(brick)?;
                let shown = self.called(&brick);
                self.check_removal(&brick, 0)?;
                let id = brick.id;
                self.with(move |here| async move { here.opened.can_remove(id) })??;
                if *dry_run {
                    self.sync_from_above();
                    let may =
                        self.with(move |here| async move { here.volume.may_remove(id).await })?;
                    may.with_context(|| format!("removing {shown} of volume {name}"))?;
                    return Ok(format!(
                        "{shown} can be removed: {} would move to the others{}",
                        size::human(brick.used * BLOCK),
                        self.domains_after(Some(id), None)?
                    ));
                }
                let said = self.domains_after(Some(id), None)?;
                let what = format!("{REMOVAL} {shown}");
                let new = NewJob::Remove { brick: id };
                let started =
                    self.begin(what, move |here| async move { here.volume.start_job(new).await })?;
                return Ok(format!("{started}{said}"));
            }
            VolumeJob::Migrate { files, brick } => return self.start_migration(files, brick),
            VolumeJob::Copies { file, copies } => return self.start_copies(file, *copies),
        };
        self.begin(what, move |here| async move { here.volume.start_job(new).await })
    }

    /// Files go to a brick: one job for all of them.
    fn start_migration(&self, files: &[FileName], brick: &str) -> Result<String> {
        let brick = self.select(brick)?;
        let mut inos = Vec::with_capacity(files.len());
        for file in files {
            let path = inside(&self.dir, file);
            let wanted = path.clone();
            let ino =
                self.with(move |here| async move { here.volume.resolve(wanted.as_bytes()).await })?;
            inos.push(ino.with_context(|| format!("migrating {path}"))?);
        }
        let of = match files {
            [only] => inside(&self.dir, only),
            many => format!("{} files", many.len()),
        };
        let what = format!("migration of {of} to {}", self.name_of(&brick));
        let id = brick.id;
        self.begin(what, move |here| async move {
            match inos.as_slice() {
                [ino] => here.volume.start_job(NewJob::Migrate { ino: *ino, brick: id }).await,
                many => here.volume.migrate_files(many, id).await,
            }
        })
    }

    /// A file, or a folder with what is in it, gets so many copies.
    fn start_copies(&self, file: &FileName, copies: u8) -> Result<String> {
        let path = inside(&self.dir, file);
        let wanted = path.clone();
        let each = if copies == 1 { "1 copy".to_string() } else { format!("{copies} copies") };
        let started = self.begin(format!("giving {path} {each}"), move |here| async move {
            let ino = here.volume.resolve(wanted.as_bytes()).await?;
            here.volume.set_copies(ino, copies).await
        });
        let started = started.with_context(|| format!("copies of {path}"))?;
        // Of files that were removed no job gives these more: whoever relies on copies is to know.
        let alone = self.with(|here| async move { here.volume.status().snapshot_bytes })?;
        if alone == 0 {
            return Ok(started);
        }
        let alone = size::human(alone);
        Ok(format!(
            "{started}; what snapshots alone hold ({alone}) keeps the copies that it has, and gets more where the file is still there"
        ))
    }

    /// The copies that a file is to have.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn copies(&self, file: &FileName) -> Result<CopiesDetail> {
        let path = inside(&self.dir, file);
        let wanted = path.clone();
        let found = self.with(|here| async move {
            let ino = here.volume.resolve(wanted.as_bytes()).await?;
            let copies = here.volume.copies_of(ino).await?;
            Ok::<_, VolumeError>((copies, here.volume.status().incomplete))
        })?;
        let (copies, incomplete) = found.with_context(|| path.clone())?;
        Ok(CopiesDetail { file: path, copies, volume_incomplete: incomplete })
    }

    /// Has `start` start a job, and notes it as `what`.
    fn begin<F, W>(&self, what: String, start: F) -> Result<String>
    where
        F: FnOnce(Rc<Here>) -> W + Send + 'static,
        W: Future<Output = Result<(), VolumeError>> + 'static,
    {
        let name = &self.name;
        self.sync_from_above();
        self.with(start)?.with_context(|| format!("volume {name}"))?;
        *locked(&self.started) = Some(what.clone());
        Ok(format!("{what} started; `braid volume jobs {name} --wait` follows it"))
    }

    /// Does something about the job under way, or about the check with `check` and where there is nothing else.
    ///
    /// # Errors
    /// When there is none. With [`JobDeed::Wait`], why it failed.
    pub fn steer_job(&self, deed: JobDeed, check: bool, tell: &mut Tell<'_>) -> Result<String> {
        if let JobDeed::Speed { bytes } = deed {
            self.with(move |here| async move { here.volume.set_job_speed(bytes) })?;
            *locked(&self.job_speed) = bytes;
            let limit = bytes.map_or("no limit".to_string(), |bytes| {
                format!("{} per second", size::human(bytes))
            });
            return Ok(format!("jobs of volume {} move at most: {limit}", self.name));
        }
        if let JobDeed::Latency { micros } = deed {
            let nanos = micros.map(|micros| micros.saturating_mul(1000));
            self.with(move |here| async move { here.volume.set_job_latency(nanos) })?;
            *locked(&self.job_latency) = micros;
            let target = nanos.map_or(
                "what the kind of its bricks is due".to_string(),
                crate::output::time::short,
            );
            return Ok(format!(
                "jobs of volume {} slow down while requests take longer than {target}",
                self.name
            ));
        }
        let job = self.job()?;
        if check || job.is_none() && self.check_job()?.is_some() {
            return self.steer_check(deed, tell);
        }
        if deed == JobDeed::Wait {
            return self.wait_job(tell);
        }
        let Some(job) = job else { bail!("volume {} has no job under way", self.name) };
        let kind = job.kind.name();
        let said = match deed {
            JobDeed::Pause => "paused; --resume goes on with it",
            JobDeed::Resume => "goes on",
            _ => "cancelled; what was moved stays moved",
        };
        self.with(move |here| async move {
            match deed {
                JobDeed::Pause => here.volume.pause_job(),
                JobDeed::Resume => here.volume.resume_job(),
                _ => here.volume.cancel_job(),
            }
            here.volume.make_job_durable().await
        })?
        .with_context(|| format!("volume {}", self.name))?;
        Ok(format!("{kind} of volume {}: {said}", self.name))
    }

    fn job(&self) -> Result<Option<JobStatus>> {
        self.with(|here| async move { here.volume.job() })
    }

    fn wait_job(&self, tell: &mut Tell<'_>) -> Result<String> {
        let name = &self.name;
        let started = locked(&self.started).take();
        let Some(mut last) = self.job()? else {
            // A job may end before the first question about it.
            self.wait_until_closed()?;
            return Ok(match started {
                Some(what) if what.starts_with(REMOVAL) => {
                    format!("{what} has ended{}", self.domains_after(None, None)?)
                }
                Some(what) => format!("{what} has ended"),
                None => format!("volume {name} has no job under way"),
            });
        };
        let (send, ended) = mpsc::channel();
        self.with(move |here| async move {
            let shard = here.shard.clone();
            shard.spawn(async move {
                let result = here.volume.wait_job().await;
                // The command that waits may have gone away.
                let _ = send.send(result.map_err(|error| error.to_string()));
            });
        })?;
        let result = self.tell_until(&ended, Volume::job, &mut last, tell)?;
        self.wait_until_closed()?;
        let kind = last.kind.name();
        if let Err(why) = result {
            return Err(anyhow!(
                "{kind} of volume {name} failed: {why}; `braid volume jobs {name} --resume` tries again, --cancel gives \
                 it up"
            ));
        }
        Ok(match self.job()? {
            Some(job) if job.state == JobState::Paused => {
                format!(
                    "{kind} of volume {name} is paused; `braid volume jobs {name} --resume` goes on with it"
                )
            }
            Some(JobStatus { state: JobState::Failed(why), .. }) => {
                bail!("{kind} of volume {name} failed: {why}")
            }
            _ => {
                let what = started.unwrap_or(format!("{kind} of volume {name}"));
                let together = match last.kind {
                    JobKind::Remove => self.domains_after(None, None)?,
                    _ => String::new(),
                };
                format!("{what} has ended{together}")
            }
        })
    }

    /// Tells the progress of the job that `look` finds until something is received. `last`: how it was last.
    pub(super) fn tell_until<T>(
        &self,
        ended: &Receiver<T>,
        look: fn(&Volume) -> Option<JobStatus>,
        last: &mut JobStatus,
        tell: &mut Tell<'_>,
    ) -> Result<T> {
        let mut rates = Rates::new(last.done);
        loop {
            match ended.recv_timeout(PROGRESS_EVERY) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("volume {} is being unmounted", self.name)
                }
                Err(RecvTimeoutError::Timeout) => {
                    let Some(job) = self.with(move |here| async move { look(&here.volume) })?
                    else {
                        continue;
                    };
                    let rate = rates.after(job.done);
                    if !tell(Answer::Progress { job: job_of(&job, rate) }) {
                        bail!("the client went away");
                    }
                    *last = job;
                }
            }
        }
    }

    /// Waits until bricks that the volume has no more are closed, so that they can be used for something else.
    fn wait_until_closed(&self) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < CLOSED_WITHIN {
            let bricks: HashSet<Uuid> =
                self.status()?.bricks.iter().map(|brick| brick.uuid).collect();
            if self.bricks().iter().all(|held| bricks.contains(&held.uuid)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// A brick: by its number, its UUID, or where it is.
    ///
    /// # Errors
    /// When there is none; with those that there are.
    pub fn select(&self, wanted: &str) -> Result<BrickStatus> {
        let bricks = self.status()?.bricks;
        let (number, uuid) = (wanted.parse::<u16>().ok(), Uuid::parse_str(wanted).ok());
        let is = |brick: &&BrickStatus| {
            let name = self.name_of(brick);
            let same = crate::members::same_device(name.as_ref(), wanted.as_ref());
            name == wanted || same || Some(brick.uuid) == uuid
        };
        let by_number = || bricks.iter().find(|brick| Some(brick.id) == number);
        if let Some(found) = bricks.iter().find(is).or_else(by_number) {
            return Ok(found.clone());
        }
        let there: Vec<String> =
            bricks.iter().map(|brick| format!("{} ({})", brick.id, self.name_of(brick))).collect();
        bail!("volume {} has no brick {wanted}; it has {}", self.name, there.join(", "))
    }

    /// Refuses a removal where the others, and `more` blocks of one that is to be added, have no room for what is on the brick.
    ///
    /// # Errors
    /// When they have not, and when there are none.
    pub(super) fn check_removal(&self, brick: &BrickStatus, more: u64) -> Result<()> {
        let status = self.status()?;
        let others = status.bricks.iter().filter(|other| other.id != brick.id && other.is_there);
        let others: Vec<&BrickStatus> = others.filter(|other| other.weight > 0).collect();
        let shown = self.called(brick);
        if others.is_empty() && more == 0 {
            bail!("{shown} is the last one of volume {}: add another first", self.name);
        }
        let free = others.iter().map(|other| other.blocks.saturating_sub(other.used));
        let room = more.saturating_add(free.sum());
        if brick.used > room {
            bail!(
                "{} on {shown} do not fit on the others, which have {} free: add a brick, a larger one, or remove \
                 files first",
                size::human(brick.used * BLOCK),
                size::human(room * BLOCK)
            );
        }
        Ok(())
    }
}

/// The rate of a job over the last seconds.
struct Rates {
    seen: Vec<(Instant, u64)>,
}

impl Rates {
    fn new(done: u64) -> Rates {
        Rates { seen: vec![(Instant::now(), done)] }
    }

    fn after(&mut self, done: u64) -> Option<u64> {
        let now = Instant::now();
        self.seen.retain(|(at, _)| now.duration_since(*at) <= RATE_OVER);
        let rate = self.seen.first().map(|(at, before)| {
            let seconds = now.duration_since(*at).as_secs_f64().max(0.001);
            (done.saturating_sub(*before) as f64 / seconds) as u64
        });
        self.seen.push((now, done));
        rate
    }
}
