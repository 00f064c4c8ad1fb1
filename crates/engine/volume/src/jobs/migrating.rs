//! Many files go to one brick, as one job.
//!
//! Each file is told where it is to be, which is recorded with it; the job then moves whatever of such files lies
//! elsewhere. So nothing but the brick has to be known of the job after a crash.

use crate::error::VolumeError;
use crate::under_way::NewJob;
use crate::volume::Volume;
use braid_filesystem::Ino;
use std::rc::Rc;

impl Volume {
    /// Starts a job that moves files to a brick; what was told to be there before and is not goes there, too. When it
    /// cannot be started the files are as they were.
    ///
    /// # Errors
    /// As [`start_job`](Volume::start_job); when one of them is no file.
    pub async fn migrate_files(
        self: &Rc<Self>,
        files: &[Ino],
        brick: u16,
    ) -> Result<(), VolumeError> {
        let doing = "looking for the files to be migrated";
        let failed = |errno| VolumeError::File { doing, errno };
        self.writable().map_err(failed)?;
        let mut inodes = Vec::with_capacity(files.len());
        for ino in files {
            inodes.push(self.file(*ino).await.map_err(failed)?);
        }
        let mut before = Vec::with_capacity(inodes.len());
        for inode in inodes {
            before.push((Rc::clone(&inode), inode.with(|record| record.brick)));
            self.edit(&inode, true, |record| record.brick = brick);
        }
        let started = self.start_job(NewJob::MigrateTold { brick }).await;
        if started.is_err() {
            for (inode, old) in before {
                self.edit(&inode, true, |record| record.brick = old);
            }
        }
        started
    }
}
