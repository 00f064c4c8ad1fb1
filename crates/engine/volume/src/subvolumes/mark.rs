//! A folder becomes a subvolume: all files in it get its number.
//!
//! The folder comes first, so that what is made in it meanwhile gets the number, too, and nothing of it can go where files have
//! another one. If that is interrupted, the next mount goes on.

use crate::error::VolumeError;
use crate::namespace::Inode;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino, Kind};
use braid_format::volume::snapshot::SubvolumeRecord;
use braid_shard::range_locks::WHOLE;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Entries of a folder that are marked in one step.
const AT_ONCE: usize = 256;

/// Why a folder cannot be a subvolume.
enum Stop {
    Refused(String),
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failed(errno)
    }
}

/// Files with several names, and how many of these were met.
type Names = BTreeMap<Ino, (Rc<Inode>, u32)>;

impl Volume {
    /// The subvolume of a folder, which becomes one if it is none.
    ///
    /// # Errors
    /// When a file in it has a name elsewhere, too; when something in it cannot be read: what was marked stays so.
    pub(super) async fn make_subvolume(&self, folder: &Rc<Inode>) -> Result<u16, VolumeError> {
        let doing = "preparing the folder for snapshots";
        let failed = |errno| VolumeError::File { doing, errno };
        let known = self.snapshots.subvolume_at(folder.ino());
        let id = match known {
            Some(id) if self.snapshots.subvolume(id).is_none_or(|record| record.made) => {
                return Ok(id);
            }
            Some(id) => id,
            None => {
                let id = self.record.new_subvolume().ok_or_else(|| {
                    VolumeError::Refused("no number for a folder with snapshots is left".into())
                })?;
                let parent = folder.with(|record| record.subvolume);
                let record =
                    SubvolumeRecord { root: folder.ino(), parent, made: false, gone: false };
                self.snapshots.set_subvolume(id, Some(record));
                id
            }
        };
        match self.mark_all(id).await {
            Ok(()) => self.sync_all().await.map_err(failed)?,
            Err(Stop::Failed(errno)) => return Err(failed(errno)),
            Err(Stop::Refused(why)) => {
                self.unmark_all(id).await.map_err(failed)?;
                self.sync_all().await.map_err(failed)?;
                return Err(VolumeError::Refused(why));
            }
        }
        Ok(id)
    }

    /// Goes on with what an earlier life left unfinished.
    pub(super) fn resume_marking(self: &Rc<Self>) {
        for id in self.snapshots.unmade() {
            let own = Rc::clone(self);
            self.shard.spawn(async move {
                let _taking = own.snapshots.taking.exclusive(WHOLE).await;
                let marked = match own.mark_all(id).await {
                    Err(Stop::Refused(_)) => own.unmark_all(id).await,
                    Err(Stop::Failed(errno)) => Err(errno),
                    Ok(()) => Ok(()),
                };
                if let Err(error) = marked {
                    tracing::warn!(
                        subvolume = id,
                        "preparing a folder for snapshots: {error}; the next mount tries again"
                    );
                }
            });
        }
    }

    async fn mark_all(&self, id: u16) -> Result<(), Stop> {
        let Some(record) = self.snapshots.subvolume(id) else { return Ok(()) };
        let mut names = Names::new();
        self.mark_below(record.root, (record.parent, id), &mut names).await?;
        for (inode, met) in names.values() {
            if inode.with(|record| record.nlink) > *met {
                return Err(Stop::Refused(format!(
                    "file {} has a name outside of the folder, too: snapshots are of folders whose files have all their names \
                     in them; find it with: find -inum {0}",
                    inode.ino()
                )));
            }
        }
        self.snapshots.set_subvolume(id, Some(SubvolumeRecord { made: true, ..record }));
        Ok(())
    }

    async fn unmark_all(&self, id: u16) -> Result<(), Errno> {
        let Some(record) = self.snapshots.subvolume(id) else { return Ok(()) };
        match self.mark_below(record.root, (id, record.parent), &mut Names::new()).await {
            // A file of a third one is left as it is.
            Ok(()) | Err(Stop::Refused(_)) => {}
            Err(Stop::Failed(errno)) => return Err(errno),
        }
        self.snapshots.set_subvolume(id, None);
        Ok(())
    }

    /// Gives the number `to` to a folder and everything in it that has the number `from`.
    async fn mark_below(
        &self,
        root: Ino,
        numbers: (u16, u16),
        names: &mut Names,
    ) -> Result<(), Stop> {
        let mut folders = VecDeque::from([root]);
        let mut stray = None;
        while let Some(folder) = folders.pop_front() {
            if self.transactions.is_ended() {
                return Err(Stop::Failed(Errno::Io));
            }
            {
                let _gate = self.gate.enter().await;
                match self.inodes.get(folder).await {
                    Err(Errno::Stale) => continue,
                    other => self.mark_one(&other?, numbers),
                };
            }
            let mut cookie = 0;
            loop {
                let gate = self.gate.enter().await;
                let entries = self.namespace.next_entries(folder, &mut cookie, AT_ONCE).await?;
                if entries.is_empty() {
                    break;
                }
                for entry in &entries {
                    let inode = match self.inodes.get(entry.ino).await {
                        Err(Errno::Stale) => continue,
                        other => other?,
                    };
                    if !self.mark_one(&inode, numbers) {
                        match self.adopt(&inode, numbers) {
                            true => {}
                            false => stray = Some(inode.ino()),
                        }
                        continue;
                    }
                    if inode.kind() == Kind::Directory {
                        folders.push_back(inode.ino());
                    } else if inode.with(|record| record.nlink) > 1 {
                        names.entry(inode.ino()).or_insert_with(|| (Rc::clone(&inode), 0)).1 += 1;
                    }
                }
                drop(gate);
                self.transactions.room().await;
                self.shard.next_turn().await;
            }
        }
        match stray {
            None => Ok(()),
            Some(ino) => Err(Stop::Refused(format!(
                "file {ino} belongs to another folder with snapshots, where it has a name, too; find it with: find -inum {ino}"
            ))),
        }
    }

    /// Marks one file. False: it belongs to neither.
    fn mark_one(&self, inode: &Rc<Inode>, (from, to): (u16, u16)) -> bool {
        let own = inode.with(|record| record.subvolume);
        if own == from {
            self.inodes.edit(inode, true, |record| record.subvolume = to);
            inode.extents.set_subvolume(to);
        }
        own == from || own == to
    }

    /// The folder of a subvolume that lay in `from` lies in `to` now. False: it is none.
    fn adopt(&self, inode: &Inode, (from, to): (u16, u16)) -> bool {
        let Some(id) = self.snapshots.subvolume_at(inode.ino()) else { return false };
        if let Some(record) = self.snapshots.subvolume(id).filter(|record| record.parent == from) {
            self.snapshots.set_subvolume(id, Some(SubvolumeRecord { parent: to, ..record }));
        }
        true
    }
}
