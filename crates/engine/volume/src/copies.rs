//! The number of copies that files are to have: told to a file, or to a folder and everything below it.
//!
//! The files are told first; a job then makes the copies that are missing, and frees those that are too many.

use crate::create::{check_copies, check_domains};
use crate::error::VolumeError;
use crate::mover::NewJob;
use crate::namespace::Inode;
use crate::progress::{JobState, JobStatus};
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino, Kind};
use std::collections::VecDeque;
use std::rc::Rc;

/// Entries of a folder that are told in one step.
const AT_ONCE: usize = 256;

impl Volume {
    /// The number of copies that a file is to have; of a folder: that of what is made in it.
    ///
    /// # Errors
    /// When there is no such file.
    pub async fn copies_of(&self, ino: Ino) -> Result<u8, VolumeError> {
        let doing = "looking at the copies of a file";
        let inode = self.inodes.get(ino).await;
        let inode = inode.map_err(|errno| VolumeError::File { doing, errno })?;
        Ok(inode.with(|record| record.copies))
    }

    /// A file is to have so many copies of each stripe, 1 to 4; of a folder: everything in it, and what is made there
    /// from now on. When this comes back it is durable that they are to have them, and a job that makes them is under way.
    ///
    /// # Errors
    /// When the volume has too few bricks, they are in too few domains for more copies than it is to have, or no checksums, another job is under way, or something below the folder cannot be
    /// read: what was told stays so, and the same can be asked again.
    pub async fn set_copies(&self, ino: Ino, copies: u8) -> Result<(), VolumeError> {
        let failed = |errno| VolumeError::File { doing: "setting the number of copies", errno };
        self.transactions.writable().map_err(failed)?;
        let bricks = self.bricks.all();
        let placed = bricks.iter().filter(|brick| brick.is_placed());
        check_copies(copies, self.record.has_checksums(), placed.clone().count())?;
        let busy = |job: &JobStatus| !matches!(job.state, JobState::Failed(_));
        if let Some(job) = self.mover.status().filter(busy) {
            return Err(VolumeError::Busy { running: job.kind.name() });
        }
        let inode = self.inodes.get(ino).await.map_err(failed)?;
        if !matches!(inode.kind(), Kind::File | Kind::Directory) {
            return Err(VolumeError::Refused("only files and directories have copies".into()));
        }
        // Those that it is to have already are made wherever there is room: better together than none.
        if copies > inode.with(|record| record.copies) {
            check_domains(copies, placed.map(|brick| brick.domain.as_str()))?;
        }
        if copies > 1 {
            self.record.note_copies();
        }
        self.tell_copies(inode, copies).await.map_err(failed)?;
        self.sync_all().await.map_err(failed)?;
        self.start_job(NewJob::Copies).await
    }

    async fn tell_copies(&self, inode: Rc<Inode>, copies: u8) -> Result<(), Errno> {
        let mut folders = VecDeque::new();
        self.tell_one(&inode, copies, &mut folders).await;
        while let Some(folder) = folders.pop_front() {
            let mut cookie = 0;
            loop {
                let entries = self.namespace.next_entries(folder, &mut cookie, AT_ONCE).await?;
                if entries.is_empty() {
                    break;
                }
                for entry in &entries {
                    match self.inodes.get(entry.ino).await {
                        Err(Errno::Stale) => {}
                        other => self.tell_one(&other?, copies, &mut folders).await,
                    }
                }
                self.transactions.room().await;
                self.shard.next_turn().await;
            }
        }
        Ok(())
    }

    async fn tell_one(&self, inode: &Rc<Inode>, copies: u8, folders: &mut VecDeque<Ino>) {
        let _gate = self.gate.enter().await;
        match inode.kind() {
            Kind::Directory => folders.push_back(inode.ino()),
            Kind::File => {}
            _ => return,
        }
        if inode.with(|record| record.copies) != copies {
            self.inodes.edit(inode, true, |record| record.set_copies(copies));
        }
    }
}
