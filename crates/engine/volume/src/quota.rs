//! Limits of folders: a folder with one has a project of its own, which everything below it gets. A folder that was given a
//! project (chattr -p) keeps that, and the limit is that of all that have it.
//!
//! Giving a project to what is below a folder is a walk in small steps, each a change of whole files that leaves sums and files
//! agreeing. The folder's own record comes first, so that what is made meanwhile gets the project at once; the record of the
//! project says that the walk is under way, so that the next mount goes on with it. Below the folder, what has a project of its own keeps
//! it.

use crate::error::VolumeError;
use crate::namespace::Inode;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino, Kind, ROOT, Space};
use braid_format::volume::BLOCK;
use braid_format::volume::inode::FLAG_INHERIT_PROJECT;
use braid_format::volume::project::{Moving, ProjectRecord, UNLIMITED};
use std::collections::VecDeque;
use std::rc::Rc;

/// Entries of a folder that are given a project in one step.
const AT_ONCE: usize = 256;
/// Folders above a folder, at most: a damaged tree may go round.
const DEPTH_MAX: usize = 4096;

/// What a project may have, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of space, rounded up to blocks of 4096; `None`: any number.
    pub bytes: Option<u64>,
    /// Files, directories and other inodes, the folder included; `None`: any number.
    pub files: Option<u64>,
}

/// A project, as `braid volume quota` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectStatus {
    /// Its number.
    pub id: u32,
    /// The folder with the limit, from the root of the volume; `None`: the project was given to files one by one, or
    /// the folder is gone.
    pub folder: Option<String>,
    /// What it may have.
    pub limits: Limits,
    /// Bytes of space that its files take.
    pub bytes: u64,
    /// Its files, directories and other inodes.
    pub files: u64,
    /// What is below the folder is still being added to it, or taken from it.
    pub is_moving: bool,
}

impl Volume {
    /// The projects that have files or limits, by number.
    pub async fn projects(&self) -> Vec<ProjectStatus> {
        let mut all = Vec::new();
        for (id, record) in self.projects.all() {
            let folder = match record.folder {
                0 => None,
                folder => self.path_of(folder).await,
            };
            let limits = limits_in(&record);
            let bytes = record.blocks.saturating_mul(BLOCK);
            let (files, is_moving) = (record.files, record.moving.is_some());
            all.push(ProjectStatus { id, folder, limits, bytes, files, is_moving });
        }
        all
    }

    /// Sets what a project may have. What it has already may be more: it grows no further then.
    ///
    /// # Errors
    /// When nothing can be changed, or there is no project 0.
    pub fn limit_project(&self, id: u32, limits: Limits) -> Result<(), VolumeError> {
        self.writable_for("setting a limit")?;
        if id == 0 {
            return Err(VolumeError::Refused("files without a project have no limit".into()));
        }
        self.projects.edit(id, |record| {
            record.blocks_max = limits.bytes.map_or(UNLIMITED, |bytes| bytes.div_ceil(BLOCK));
            record.files_max = limits.files.unwrap_or(UNLIMITED);
        });
        Ok(())
    }

    /// The project whose limit that of a folder is; `None`: it has none of its own.
    ///
    /// # Errors
    /// When it is no folder.
    pub async fn project_of(&self, folder: Ino) -> Result<Option<u32>, VolumeError> {
        let doing = "looking at the project of a folder";
        let inode = self.inodes.directory(folder).await;
        let inode = inode.map_err(|errno| VolumeError::File { doing, errno })?;
        Ok(self.own_project(&inode))
    }

    /// The project that a folder was given by a limit, or by somebody who chose its number (chattr -p); not that of a folder with
    /// a limit above.
    fn own_project(&self, folder: &Inode) -> Option<u32> {
        let id = folder.with(|record| record.project);
        let of = self.projects.get(id).folder;
        (id != 0 && (of == 0 || of == folder.ino())).then_some(id)
    }

    /// The limits of a folder; those of one that has no project of its own are none.
    ///
    /// # Errors
    /// When it is no folder.
    pub async fn limits_of(&self, folder: Ino) -> Result<Limits, VolumeError> {
        let id = self.project_of(folder).await?;
        Ok(id.map_or(Limits::default(), |id| limits_in(&self.projects.get(id))))
    }

    /// Limits what is in a folder, and gives it a project of its own if it has none. One that was chosen for it (chattr -p)
    /// stays: it has the limit then, with all that have it. Durable when this comes back. Gives the project.
    ///
    /// # Errors
    /// When it is no folder, or the volume's root; when something below it cannot be read: the next mount goes on.
    pub async fn limit_folder(&self, folder: Ino, limits: Limits) -> Result<u32, VolumeError> {
        let doing = "setting a limit";
        self.writable_for(doing)?;
        let failed = |errno| VolumeError::File { doing, errno };
        let inode = self.inodes.directory(folder).await.map_err(failed)?;
        if folder == ROOT {
            let why = "the volume itself has the size of its bricks: a limit is for a folder in it";
            return Err(VolumeError::Refused(why.into()));
        }
        let id = match self.own_project(&inode) {
            Some(own) => own,
            None => {
                let from = inode.with(|record| record.project);
                let id = self.projects.new_id();
                let id = id.ok_or_else(|| {
                    VolumeError::Refused("no number for a project is left".into())
                })?;
                self.projects.edit(id, |record| {
                    record.folder = folder;
                    record.moving = Some(Moving { from, to: id });
                });
                id
            }
        };
        self.limit_project(id, limits)?;
        self.go_on_with(id).await.map_err(failed)?;
        self.sync_all().await.map_err(failed)?;
        Ok(id)
    }

    /// Takes the limit of a folder away, and its project: what is in it belongs to that of the folder above again. A project that
    /// was chosen for it (chattr -p) stays, without limits. Durable when this comes back.
    ///
    /// # Errors
    /// When the folder has no limit of its own; as [`limit_folder`](Volume::limit_folder).
    pub async fn unlimit_folder(&self, folder: Ino) -> Result<(), VolumeError> {
        let doing = "taking a limit away";
        self.writable_for(doing)?;
        let failed = |errno| VolumeError::File { doing, errno };
        let inode = self.inodes.directory(folder).await.map_err(failed)?;
        let id = self.own_project(&inode).map(|id| (id, self.projects.get(id)));
        let id = match id {
            Some((id, record)) if record.folder == folder => id,
            Some((id, record)) if limits_in(&record) != Limits::default() => {
                self.limit_project(id, Limits::default())?;
                return self.sync_all().await.map_err(failed);
            }
            _ => {
                return Err(VolumeError::Refused(
                    "it has no limit of its own; see: braid volume quota".into(),
                ));
            }
        };
        let parent = inode.with(|record| record.parent);
        let above = self.inodes.directory(parent).await.map_err(failed)?;
        let to =
            above.with(
                |record| {
                    if record.flags & FLAG_INHERIT_PROJECT != 0 { record.project } else { 0 }
                },
            );
        self.projects.edit(id, |record| {
            (record.blocks_max, record.files_max) = (UNLIMITED, UNLIMITED);
            record.moving = Some(Moving { from: id, to });
        });
        self.go_on_with(id).await.map_err(failed)?;
        self.sync_all().await.map_err(failed)
    }

    /// Goes on with the walks that an earlier life left unfinished.
    pub(crate) fn resume_projects(self: &Rc<Self>) {
        let moving = self.projects.all().into_iter().filter(|(_, record)| record.moving.is_some());
        for (id, _) in moving {
            let own = Rc::downgrade(self);
            self.shard.spawn(async move {
                let Some(volume) = own.upgrade() else { return };
                if let Err(error) = volume.go_on_with(id).await {
                    tracing::warn!(project = id, "adding up what is in a folder with a limit: {error}; the next mount tries again");
                }
            });
        }
    }

    /// Gives files below the folder of project `id` the project that they are to have, until all have it.
    async fn go_on_with(&self, id: u32) -> Result<(), Errno> {
        let ProjectRecord { folder, moving: Some(moving), .. } = self.projects.get(id) else {
            return Ok(());
        };
        let mut folders = VecDeque::from([folder]);
        while let Some(at) = folders.pop_front() {
            if self.transactions.is_ended() {
                return Ok(());
            }
            let inode = match self.inodes.get(at).await {
                Err(Errno::Stale) => continue,
                other => other?,
            };
            // It may have gone elsewhere meanwhile.
            if at != folder && !self.is_below(&inode, moving.to).await? {
                continue;
            }
            {
                let _gate = self.gate.enter().await;
                self.move_one(&inode, moving);
            }
            let mut cookie = 0;
            loop {
                let gate = self.gate.enter().await;
                let entries = self.namespace.read_entries(at, cookie, AT_ONCE).await?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in entries {
                    if entry.kind == Kind::Directory {
                        folders.push_back(entry.ino);
                        continue;
                    }
                    match self.inodes.get(entry.ino).await {
                        Ok(inode) => self.move_one(&inode, moving),
                        Err(Errno::Stale) => {}
                        Err(error) => return Err(error),
                    }
                }
                drop(gate);
                self.transactions.room().await;
            }
        }
        self.projects.edit(id, |record| {
            record.moving = None;
            if moving.to != id {
                record.folder = 0;
            }
        });
        Ok(())
    }

    /// The directory that it is in has the project that it is to have.
    async fn is_below(&self, inode: &Inode, to: u32) -> Result<bool, Errno> {
        let parent = inode.with(|record| record.parent);
        match self.inodes.get(parent).await {
            Ok(parent) => Ok(parent.with(|record| record.project == to)),
            Err(Errno::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives one file the other project, if it has the one that is left.
    fn move_one(&self, inode: &Rc<Inode>, moving: Moving) {
        if inode.with(|record| record.project != moving.from) {
            return;
        }
        let inherits = inode.kind() == Kind::Directory && moving.to != 0;
        self.inodes.edit(inode, true, |record| {
            record.project = moving.to;
            record.flags = match inherits {
                true => record.flags | FLAG_INHERIT_PROJECT,
                false => record.flags & !FLAG_INHERIT_PROJECT,
            };
        });
    }

    /// Space, of which a project has what its limits say.
    pub(crate) fn space_of(&self, project: u32, whole: Space) -> Space {
        let record = self.projects.get(project);
        if project == 0 {
            return whole;
        }
        let (mut space, left) = (whole, self.projects.room(project));
        if let Some(blocks) = limit(record.blocks_max) {
            space.blocks = whole.blocks.min(blocks);
            space.free = whole.free.min(left);
            space.available = whole.available.min(left);
        }
        if let Some(files) = limit(record.files_max) {
            space.files = whole.files.min(files);
            space.files_free = whole.files_free.min(files.saturating_sub(record.files));
        }
        space
    }

    /// The path of a directory, from the root; `None`: it is gone.
    pub(crate) async fn path_of(&self, folder: Ino) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = folder;
        while at != ROOT && parts.len() < DEPTH_MAX {
            let parent = self.inodes.directory(at).await.ok()?.with(|record| record.parent);
            parts.push(self.name_in(parent, at).await?);
            at = parent;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }

    async fn name_in(&self, parent: Ino, ino: Ino) -> Option<String> {
        let mut cookie = 0;
        loop {
            let entries = self.namespace.read_entries(parent, cookie, AT_ONCE).await.ok()?;
            let found = entries.iter().find(|entry| entry.ino == ino);
            if let Some(found) = found {
                return Some(String::from_utf8_lossy(&found.name).into_owned());
            }
            cookie = entries.last()?.cookie;
        }
    }

    fn writable_for(&self, doing: &'static str) -> Result<(), VolumeError> {
        self.transactions.writable().map_err(|errno| VolumeError::File { doing, errno })
    }
}

fn limits_in(record: &ProjectRecord) -> Limits {
    Limits {
        bytes: limit(record.blocks_max).map(|blocks| blocks.saturating_mul(BLOCK)),
        files: limit(record.files_max),
    }
}

fn limit(max: u64) -> Option<u64> {
    Some(max).filter(|max| *max != UNLIMITED)
}
