//! Where files are told to be: many go to one brick, as one job, or a file is to stay.
//!
//! Each file is told where it is to be, which is recorded with it; the job then moves whatever of such files lies
//! elsewhere. So nothing but the brick has to be known of the job after a crash.

use super::part::Mover;
use super::running::NewJob;
use crate::error::VolumeError;
use braid_filesystem::{Ino, Kind};
use braid_format::volume::NO_BRICK;
use braid_format::volume::inode::FLAG_PINNED;
use std::rc::Rc;

impl Mover {
    /// Starts a job that moves files to a brick; what was told to be there before and is not goes there, too. When it
    /// cannot be started the files are as they were.
    ///
    /// # Errors
    /// As [`start`](Mover::start); when one of them is no file.
    pub async fn migrate_files(
        self: &Rc<Self>,
        files: &[Ino],
        brick: u16,
    ) -> Result<(), VolumeError> {
        let doing = "looking for the files to be migrated";
        let failed = |errno| VolumeError::File { doing, errno };
        self.transactions.writable().map_err(failed)?;
        let mut inodes = Vec::with_capacity(files.len());
        for ino in files {
            inodes.push(self.inodes.file(*ino).await.map_err(failed)?);
        }
        let mut before = Vec::with_capacity(inodes.len());
        for inode in inodes {
            before.push((Rc::clone(&inode), inode.with(|record| record.brick)));
            self.inodes.edit(&inode, true, |record| record.brick = brick);
        }
        let started = self.start(NewJob::MigrateTold { brick }).await;
        if started.is_err() {
            for (inode, old) in before {
                self.inodes.edit(&inode, true, |record| record.brick = old);
            }
        }
        started
    }

    /// Stripes of a file stay where they are from now on, or not. Of a directory: those of files made in it from now
    /// on. Taking a pin away also lets a file go that was migrated to a brick.
    ///
    /// # Errors
    /// When there is no such file.
    pub async fn set_pinned(&self, ino: Ino, pinned: bool) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "pinning a file", errno };
        self.transactions.writable().map_err(failed)?;
        let _gate = self.gate.enter().await;
        let inode = self.inodes.get(ino).await.map_err(failed)?;
        if !matches!(inode.kind(), Kind::File | Kind::Directory) {
            return Err(VolumeError::Refused("only files and directories can be pinned".into()));
        }
        self.inodes.edit(&inode, true, |record| {
            if pinned {
                record.flags |= FLAG_PINNED;
            } else {
                record.flags &= !FLAG_PINNED;
                record.brick = NO_BRICK;
            }
        });
        Ok(())
    }
}
