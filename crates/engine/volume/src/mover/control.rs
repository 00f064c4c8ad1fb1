//! Start, pause, resume, cancel, progress.

use super::part::Mover;
use super::running::{NewJob, Running, Stop};
use crate::error::VolumeError;
use crate::progress::{JobState, JobStatus};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::{BLOCK, keys};
use std::rc::Rc;

impl Mover {
    /// Starts a job. It is durable that it was started; it runs in the background, and goes on after a crash or a remount.
    ///
    /// # Errors
    /// When another is under way, when what is to be moved does not fit, or the brick or file cannot be meant; when the store
    /// fails.
    pub async fn start(self: &Rc<Self>, new: NewJob) -> Result<(), VolumeError> {
        if self.suspended.get() {
            return Err(VolumeError::Refused("the volume is being unmounted".into()));
        }
        if let Some(current) = self.current() {
            return match self.state() {
                JobState::Failed(_) => {
                    self.undo_job(current.record.get());
                    self.forget_job();
                    Box::pin(self.start(new)).await
                }
                _ => Err(VolumeError::Busy { running: current.record.get().kind.name() }),
            };
        }
        self.transactions
            .writable()
            .map_err(|errno| VolumeError::File { doing: "starting a job", errno })?;
        let blank = blank();
        let record = match new {
            NewJob::Balance => blank,
            NewJob::Defrag => JobRecord { kind: JobKind::Defrag, ..blank },
            NewJob::Copies => JobRecord { kind: JobKind::Copies, ..blank },
            NewJob::Flush => {
                let bricks = self.bricks.all();
                let proxy = bricks.iter().find(|brick| brick.state() == BrickState::Proxy);
                let proxy =
                    proxy.ok_or_else(|| VolumeError::Refused("the volume has no proxy".into()))?;
                JobRecord { kind: JobKind::Flush, brick: Some(proxy.id), ..blank }
            }
            NewJob::Remove { brick } => {
                JobRecord { kind: JobKind::Remove, brick: Some(brick), ..blank }
            }
            NewJob::Migrate { ino, brick } => {
                JobRecord { kind: JobKind::Migrate, brick: Some(brick), ino, ..blank }
            }
            NewJob::MigrateTold { brick } => {
                JobRecord { kind: JobKind::Migrate, brick: Some(brick), ..blank }
            }
        };
        let running = Running::new(&self.shard, record);
        // From here on no other job starts.
        *self.current.borrow_mut() = Some(Rc::clone(&running));
        self.set_state(JobState::Running);
        let recorded = match self.prepare_job(record).await {
            Ok(total) => {
                running.record.set(JobRecord { total, ..record });
                self.record_job(&running);
                // Whoever is told that it was started may count on it, also after a crash.
                self.commits.make_record_durable().await.map_err(VolumeError::from)
            }
            Err(error) => Err(error),
        };
        match recorded {
            Ok(()) => self.go_on(running),
            Err(_) => {
                self.undo_job(record);
                self.forget_job();
            }
        }
        recorded
    }

    /// Says what would refuse the removal of a brick now.
    ///
    /// # Errors
    /// As [`start`](Mover::start).
    pub async fn may_remove(&self, brick: u16) -> Result<(), VolumeError> {
        if let Some(current) = self.current()
            && !matches!(self.state(), JobState::Failed(_))
        {
            return Err(VolumeError::Busy { running: current.record.get().kind.name() });
        }
        self.transactions
            .writable()
            .map_err(|errno| VolumeError::File { doing: "removing a brick", errno })?;
        let record = JobRecord { kind: JobKind::Remove, brick: Some(brick), ..blank() };
        self.may_do_without(brick, &record).await?;
        self.membership.may_remove(brick).map(|_| ())
    }

    /// Checks that a job can be done, makes the changes that go before it, and gives the bytes to be moved. A file is to be
    /// where it was when it cannot be migrated.
    async fn prepare_job(&self, record: JobRecord) -> Result<u64, VolumeError> {
        let told = match (record.kind, record.ino) {
            (JobKind::Migrate, ino) if ino != 0 => {
                let failed = |errno| VolumeError::File { doing: "preparing the job", errno };
                let inode = self.inodes.file(ino).await.map_err(failed)?;
                let before = inode.with(|record| record.brick);
                Some((inode, before))
            }
            _ => None,
        };
        let prepared = self.prepare(record).await;
        if prepared.is_err()
            && let Some((inode, before)) = told
        {
            self.inodes.edit(&inode, true, |record| record.brick = before);
        }
        prepared
    }

    async fn prepare(&self, record: JobRecord) -> Result<u64, VolumeError> {
        let failed = |errno| VolumeError::File { doing: "preparing the job", errno };
        match (record.kind, record.brick) {
            (JobKind::Remove, Some(id)) => {
                self.may_do_without(id, &record).await?;
                self.membership.begin_removal(id)?;
            }
            (JobKind::Migrate, Some(id)) => {
                let brick = self.bricks.get(id).ok_or(VolumeError::NoSuchBrick(id))?;
                if !brick.takes_data() {
                    let name = brick.name();
                    return Err(VolumeError::Refused(format!(
                        "{name} takes no data: choose another brick"
                    )));
                }
                if record.ino != 0 {
                    let inode = self.inodes.file(record.ino).await.map_err(failed)?;
                    self.inodes.edit(&inode, true, |inode| inode.brick = id);
                }
            }
            _ => {}
        }
        // Puts the extents of all earlier writes into the store, so that the walk meets them.
        self.commits.sync_all().await.map_err(failed)?;
        let total = self.bytes_to_move(&record).await.map_err(failed)?;
        if record.kind == JobKind::Migrate
            && let Some(brick) = record.brick.and_then(|id| self.bricks.get(id))
            && total / BLOCK > brick.space.blocks() - brick.space.used()
        {
            let (name, free) = (brick.name(), (brick.space.blocks() - brick.space.used()) * BLOCK);
            return Err(VolumeError::Refused(format!(
                "{total} bytes are to go to {name}, which has {free} free"
            )));
        }
        Ok(total)
    }

    fn go_on(self: &Rc<Self>, running: Rc<Running>) {
        let own = Rc::clone(self);
        self.shard.spawn(async move {
            let result = loop {
                match own.run_to_end(&running).await {
                    // Resumed before the pause took effect.
                    Err(Stop::Paused) if running.stop.borrow().is_none() => {
                        running.set_cursor((0, 0));
                    }
                    result => break result,
                }
            };
            match result {
                Ok(()) | Err(Stop::Cancelled) => {
                    if result.is_err() {
                        own.undo_job(running.record.get());
                    }
                    own.forget_job();
                }
                Err(Stop::Paused) => {
                    own.set_state(JobState::Paused);
                    own.record_job(&running);
                }
                Err(Stop::Failed(why)) => {
                    tracing::error!("{}: {why}", running.record.get().kind.name());
                    own.set_state(JobState::Failed(why));
                    own.record_job(&running);
                }
            }
        });
    }

    async fn run_to_end(self: &Rc<Self>, running: &Rc<Running>) -> Result<(), Stop> {
        self.begin_copies(running);
        let result = self.run_job(running).await;
        running.idle().await;
        result?;
        self.finish_job(running).await
    }

    async fn finish_job(self: &Rc<Self>, running: &Rc<Running>) -> Result<(), Stop> {
        let record = running.record.get();
        match (record.kind, record.brick) {
            (JobKind::Remove, Some(id)) => {
                let failed = |error: VolumeError| Stop::Failed(error.to_string());
                while !self.membership.detach(id).await.map_err(failed)? {
                    running.set_cursor((0, 0));
                    let again = self.run_job(running).await;
                    running.idle().await;
                    again?;
                }
            }
            (JobKind::Balance, _) => self.record.set_balanced(),
            (JobKind::Copies, _) => self.record.set_complete(self.missed_before.get()),
            _ => {}
        }
        Ok(())
    }

    /// A removal that was cancelled leaves the brick in use.
    fn undo_job(&self, record: JobRecord) {
        if let (JobKind::Remove, Some(id)) = (record.kind, record.brick) {
            self.membership.cancel_removal(id);
        }
    }

    fn forget_job(&self) {
        self.current.borrow_mut().take();
        self.transactions.set(keys::JOB.to_vec(), None);
        self.ended.notify_all();
    }

    /// The job under way, or that waits, or that failed.
    pub fn status(&self) -> Option<JobStatus> {
        let running = self.current()?;
        let record = running.record.get();
        Some(JobStatus {
            kind: record.kind,
            brick: record.brick,
            ino: Some(record.ino).filter(|ino| *ino != 0),
            done: running.done.get(),
            // Stripes that are written meanwhile may have to be moved too.
            total: record.total.max(running.done.get()),
            state: self.state(),
        })
    }

    /// Stops the job after the moves under way; it can be resumed.
    pub fn pause(&self) {
        if let Some(running) = self.current() {
            self.set_paused(&running, true);
            running.ask_stop(Stop::Paused);
        }
    }

    fn set_paused(&self, running: &Running, paused: bool) {
        running.is_paused.set(paused);
        // One that is still being prepared may be refused.
        if running.is_recorded.get() {
            self.record_job(running);
        }
    }

    /// Goes on with a job that was paused or failed.
    pub fn resume(self: &Rc<Self>) {
        let Some(running) = self.current().filter(|_| !self.suspended.get()) else {
            return;
        };
        self.set_paused(&running, false);
        if self.state() == JobState::Running {
            running.stop.borrow_mut().take_if(|stop| matches!(stop, Stop::Paused));
            return;
        }
        running.errors.set(0);
        running.stop.borrow_mut().take();
        running.set_cursor((0, 0));
        self.set_state(JobState::Running);
        self.go_on(running);
    }

    /// Ends the job after the moves under way. What was moved stays where it is.
    pub fn cancel(&self) {
        if let Some(running) = self.current() {
            match self.state() {
                JobState::Running => running.ask_stop(Stop::Cancelled),
                _ => {
                    self.undo_job(running.record.get());
                    self.forget_job();
                }
            }
        }
    }

    /// Waits until a job that was cancelled has ended, and until what was said of jobs is durable.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn make_durable(&self) -> Result<(), VolumeError> {
        let is_cancelled =
            |running: &Rc<Running>| matches!(&*running.stop.borrow(), Some(Stop::Cancelled));
        if let Some(running) = self.current().filter(is_cancelled) {
            let is_it = |current: &Rc<Running>| Rc::ptr_eq(current, &running);
            self.ended
                .wait_for(|| (!self.current().is_some_and(|one| is_it(&one))).then_some(()))
                .await;
        }
        Ok(self.commits.make_record_durable().await?)
    }

    /// Waits until no job runs.
    ///
    /// # Errors
    /// When it failed.
    pub async fn wait(&self) -> Result<(), VolumeError> {
        self.ended
            .wait_for(|| match (self.current(), self.state()) {
                (None, _) | (Some(_), JobState::Paused) => Some(Ok(())),
                (Some(_), JobState::Failed(why)) => Some(Err(VolumeError::Refused(why))),
                (Some(_), JobState::Running) => None,
            })
            .await
    }

    /// Starts a flush when the proxy has become half full, if nothing else is under way.
    pub async fn flush_when_full(self: &Rc<Self>) {
        let proxy = self.record.proxy().and_then(|id| self.bricks.get(id));
        let Some(proxy) = proxy.filter(|proxy| proxy.is_there() && self.current().is_none()) else {
            return;
        };
        if proxy.space.used() * 2 > proxy.space.blocks()
            && let Err(error) = self.start(NewJob::Flush).await
        {
            tracing::warn!("flushing the proxy: {error}");
        }
    }

    /// Goes on with what an earlier life left unfinished.
    pub async fn resume_recorded(self: &Rc<Self>) -> Result<(), VolumeError> {
        let Some(bytes) = self.transactions.get(keys::JOB).await? else { return Ok(()) };
        let record = JobRecord::parse(&bytes)?;
        let running = Running::new(&self.shard, record);
        running.is_recorded.set(true);
        *self.current.borrow_mut() = Some(Rc::clone(&running));
        if record.paused {
            self.set_state(JobState::Paused);
        } else {
            self.go_on(running);
        }
        Ok(())
    }

    /// No job starts or goes on any more.
    pub fn hold(&self) {
        self.suspended.set(true);
    }

    /// Stops the job, if there is one, so that the volume can be closed; the next mount goes on with it.
    pub async fn suspend(&self) {
        let Some(running) = self.current().filter(|_| self.state() == JobState::Running) else {
            return;
        };
        running.ask_stop(Stop::Paused);
        let stopped =
            || (self.current().is_none() || self.state() != JobState::Running).then_some(());
        self.ended.wait_for(stopped).await;
    }
}

/// The record of a job that has done nothing yet.
fn blank() -> JobRecord {
    JobRecord {
        kind: JobKind::Balance,
        brick: None,
        ino: 0,
        cursor: (0, 0),
        done: 0,
        total: 0,
        paused: false,
    }
}
