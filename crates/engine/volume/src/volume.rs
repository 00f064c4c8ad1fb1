//! A mounted volume: its parts, and the requests about it as a whole, each handed to the part that it is for.

use crate::check::{CheckEnd, CheckReport, Checks};
use crate::commit::Commits;
use crate::error::VolumeError;
use crate::extents::{Brick, Bricks, ExtentMap, trim};
use crate::file_counts::FileCounts;
use crate::files::Files;
use crate::gate::Gate;
use crate::membership::{BrickBack, BrickToAdd, Gone, Membership};
use crate::mover::{Mover, NewJob};
use crate::namespace::{Inodes, Namespace, Orphans};
use crate::pace::Pace;
use crate::progress::JobStatus;
use crate::projects::Projects;
use crate::record::Record;
use crate::snapshots::Snapshots;
use crate::status::{VolumeStatus, status_of};
use crate::stripes::Geometry;
use crate::sums::Sums;
use crate::transactions::Transactions;
use braid_filesystem::{Errno, Ino, TrimRange};
use braid_shard::Shard;
use braid_shard::plant::planted;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// A volume on one shard, which owns all of it.
pub struct Volume {
    pub(crate) shard: Shard,
    pub(crate) geometry: Geometry,
    pub(crate) record: Rc<Record>,
    pub(crate) transactions: Rc<Transactions>,
    pub(crate) commits: Rc<Commits>,
    pub(crate) bricks: Rc<Bricks>,
    pub(crate) extents: Rc<ExtentMap>,
    pub(crate) projects: Rc<Projects>,
    pub(crate) sums: Rc<Sums>,
    pub(crate) snapshots: Rc<Snapshots>,
    pub(crate) inodes: Rc<Inodes>,
    pub(crate) orphans: Rc<Orphans>,
    pub(crate) namespace: Rc<Namespace>,
    pub(crate) files: Rc<Files>,
    pub(crate) membership: Rc<Membership>,
    pub(crate) mover: Rc<Mover>,
    pub(crate) checks: Rc<Checks>,
    /// Every change goes through it; shut while a check looks at something that is wrong.
    pub(crate) gate: Rc<Gate>,
    /// The pace of jobs and checks, which see how long requests of files take.
    pub(crate) pace: Rc<Pace>,
    /// Reads and writes of files, here and on other shards.
    pub(crate) counts: Arc<FileCounts>,
    /// Files that are offered as block devices.
    pub(crate) exported: RefCell<BTreeSet<Ino>>,
}

impl Volume {
    /// Bytes of a stripe.
    pub fn stripe(&self) -> u64 {
        self.geometry.stripe
    }

    /// The bricks by number.
    pub fn bricks(&self) -> Vec<Rc<Brick>> {
        self.bricks.all()
    }

    /// One brick.
    pub fn brick(&self, id: u16) -> Option<Rc<Brick>> {
        self.bricks.get(id)
    }

    /// Blocks in use and blocks in all, over the bricks that hold data.
    pub fn usage(&self) -> (u64, u64) {
        self.bricks.usage()
    }

    /// Regions of files that were being written over when the volume was stopped, or a brick was lost, and that are not put right
    /// yet: what their copies have may differ.
    pub fn regions_in_doubt(&self) -> usize {
        self.sums.in_doubt()
    }

    /// Reads and writes of files since the mount; readers on other shards add theirs.
    pub fn file_counts(&self) -> Arc<FileCounts> {
        Arc::clone(&self.counts)
    }

    /// The status of the volume.
    pub fn status(&self) -> VolumeStatus {
        VolumeStatus {
            job: self.mover.status(),
            check: self.checks.status(),
            checksum_errors: self.sums.mismatches(),
            checksum_mended: self.sums.mended(),
            snapshot_bytes: self.snapshot_bytes(),
            ..status_of(&self.record, &self.transactions, &self.bricks, &self.extents)
        }
    }

    /// The file that a path from the root names; symbolic links are not followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub async fn resolve(&self, path: &[u8]) -> Result<Ino, VolumeError> {
        let doing = "looking a file up by its path";
        let found = self.namespace.resolve(path).await;
        found.map_err(|errno| VolumeError::File { doing, errno })
    }

    /// Adds a brick and gives its number. New stripes go there at once; what is there already stays until a balance.
    ///
    /// # Errors
    /// When it is a brick of the volume already, has weight 0 or no room, or would be a second proxy.
    pub async fn add_brick(&self, new: BrickToAdd) -> Result<u16, VolumeError> {
        self.membership.add(new).await
    }

    /// Changes a brick's part in placement. One that was a proxy, and is none any more, becomes a data brick.
    ///
    /// # Errors
    /// When there is no such brick, the weight is 0, or it is being removed or still the proxy.
    pub async fn set_weight(&self, id: u16, weight: u64) -> Result<(), VolumeError> {
        self.membership.set_weight(id, weight).await
    }

    /// Makes a brick the proxy: it takes all new stripes, and has no part in placement any more. `None`: no brick is
    /// the proxy any more; what lies on the one that was is flushed by a job.
    ///
    /// # Errors
    /// When there is no such brick, it is the last that data can be on, or another is the proxy.
    pub async fn set_proxy(&self, proxy: Option<u16>) -> Result<(), VolumeError> {
        self.membership.set_proxy(proxy).await
    }

    /// A brick that was lost, or was missing at the mount, is used again: see [`take_back`](crate::take_back), which also has
    /// the superblocks say so: `note` does that when what the next mount has to know of the failure is durable.
    ///
    /// # Errors
    /// When it is no brick of the volume, is there, or is another; when `note` fails. It is away as before then.
    pub async fn take_back_brick<E: From<VolumeError>>(
        &self,
        back: BrickBack,
        note: impl AsyncFnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let brick = self.membership.may_take_back(back.id, back.uuid, back.blocks)?;
        self.membership.prepare_take_back(&brick).await?;
        note().await?;
        self.membership.take_back(&brick, back.device, back.data_offset).await?;
        if planted("returned-taken-for-whole") {
            for unsettled in self.sums.unsettled() {
                self.sums.filled(unsettled.region, &[back.id]);
            }
        }
        self.files.start_settling();
        self.mover.bricks_are_back();
        Ok(())
    }

    /// Bricks that were detached since this was asked last: their superblocks are to be erased, and the others not to name them
    /// any more.
    pub fn take_gone(&self) -> Vec<Gone> {
        self.membership.take_gone()
    }

    /// Stripes of a file stay where they are from now on, or not. Of a directory: those of files made in it from now
    /// on. Taking a pin away also lets a file go that was migrated to a brick.
    ///
    /// # Errors
    /// When there is no such file.
    pub async fn set_pinned(&self, ino: Ino, pinned: bool) -> Result<(), VolumeError> {
        self.mover.set_pinned(ino, pinned).await
    }

    /// Starts a job. It runs in the background, and goes on after a crash or a remount.
    ///
    /// # Errors
    /// When another is under way, when what is to be moved does not fit, or the brick or file cannot be meant.
    pub async fn start_job(&self, new: NewJob) -> Result<(), VolumeError> {
        self.mover.start(new).await
    }

    /// A brick can be removed now.
    ///
    /// # Errors
    /// As [`start_job`](Volume::start_job) of its removal.
    pub async fn may_remove(&self, brick: u16) -> Result<(), VolumeError> {
        self.mover.may_remove(brick).await
    }

    /// Another brick can take the place of this one now.
    ///
    /// # Errors
    /// When there is no such brick, it has no part in placement, or is missing with content that no other has.
    pub fn may_be_replaced(&self, brick: u16) -> Result<(), VolumeError> {
        self.membership.may_be_replaced(brick).map(|_| ())
    }

    /// Starts a job that moves files to a brick; what was told to be there before and is not goes there, too. When it
    /// cannot be started the files are as they were.
    ///
    /// # Errors
    /// As [`start_job`](Volume::start_job); when one of them is no file.
    pub async fn migrate_files(&self, files: &[Ino], brick: u16) -> Result<(), VolumeError> {
        self.mover.migrate_files(files, brick).await
    }

    /// The job under way, or that waits, or that failed.
    pub fn job(&self) -> Option<JobStatus> {
        self.mover.status()
    }

    /// Stops the job after the moves under way; it can be resumed.
    pub fn pause_job(&self) {
        self.mover.pause();
    }

    /// Goes on with a job that was paused or failed.
    pub fn resume_job(&self) {
        self.mover.resume();
    }

    /// Ends the job after the moves under way. What was moved stays where it is.
    pub fn cancel_job(&self) {
        self.mover.cancel();
    }

    /// Waits until a job that was cancelled has ended, and until what was said of jobs (pause, resume, cancel) is durable.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn make_job_durable(&self) -> Result<(), VolumeError> {
        self.mover.make_durable().await
    }

    /// Waits until no job runs.
    ///
    /// # Errors
    /// When it failed.
    pub async fn wait_job(&self) -> Result<(), VolumeError> {
        self.mover.wait().await
    }

    /// Limits the bytes that jobs move in a second.
    pub fn set_job_speed(&self, bytes_per_second: Option<u64>) {
        self.pace.set_speed(bytes_per_second);
    }

    /// Sets the latency of requests of files, in nanoseconds, above which jobs slow down; `None`: by the kind of the
    /// bricks.
    pub fn set_job_latency(&self, nanos: Option<u64>) {
        self.pace.set_target(nanos);
    }

    /// Checks all metadata, with `repair` puts right what can be, and waits for the end.
    ///
    /// # Errors
    /// As [`start_check`](Volume::start_check); when metadata cannot be read at all, or the check was cancelled.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, VolumeError> {
        self.checks.check(repair).await
    }

    /// Starts a check of all metadata. It runs in the background, in small steps, and beside another job.
    ///
    /// # Errors
    /// When one is under way, the volume is being unmounted, or `repair` is wanted and nothing can be changed.
    pub fn start_check(&self, repair: bool) -> Result<(), VolumeError> {
        self.checks.start(repair)
    }

    /// Starts to read all data and to hold it against its checksums: a scrub. It is steered, waited for and reported as a check.
    ///
    /// # Errors
    /// As [`start_check`](Volume::start_check), and when the volume has no checksums.
    pub fn start_scrub(&self) -> Result<(), VolumeError> {
        self.checks.start_scrub()
    }

    /// The check under way.
    pub fn check_job(&self) -> Option<JobStatus> {
        self.checks.status()
    }

    /// The end of the last check since the mount; `None`: none has, or one is under way.
    pub fn last_check(&self) -> Option<CheckEnd> {
        self.checks.last()
    }

    /// The check stops after the step under way; what it has seen stays good.
    pub fn pause_check(&self) {
        self.checks.set_paused(true);
    }

    /// A check that was paused goes on.
    pub fn resume_check(&self) {
        self.checks.set_paused(false);
    }

    /// Ends the check after the step under way.
    pub fn cancel_check(&self) {
        self.checks.cancel();
    }

    /// Waits until no check is under way, or it is paused.
    pub async fn wait_check(&self) {
        self.checks.wait().await;
    }

    /// See [`braid_filesystem::FileSystem::trim`].
    ///
    /// # Errors
    /// As there.
    pub async fn trim_free_space(&self, range: TrimRange) -> Result<u64, Errno> {
        self.transactions.writable()?;
        trim(&self.bricks, &self.transactions, &self.gate, range).await
    }

    /// See [`braid_filesystem::FileSystem::sync`].
    ///
    /// # Errors
    /// When not everything could be made durable.
    pub async fn sync_all(&self) -> Result<(), Errno> {
        self.commits.sync_all().await
    }

    /// Ends the volume in order: everything is durable afterwards, and nothing runs any more.
    ///
    /// # Errors
    /// When a commit failed.
    pub async fn close(&self) -> Result<(), Errno> {
        self.mover.hold();
        self.checks.suspend().await;
        self.mover.suspend().await;
        self.sums.close_soon();
        let mut synced = self.commits.sync_all().await;
        if synced.is_ok() && self.extents.has_left() {
            // The next mount finds blocks that are not freed now.
            let _ = self.extents.free_left().await;
            synced = self.commits.sync_all().await;
        }
        self.transactions.end();
        synced
    }
}
