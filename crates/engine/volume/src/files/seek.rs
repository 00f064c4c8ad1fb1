//! The next data, the next hole.

use super::part::Files;
use braid_filesystem::{Errno, Ino, Seek};
use braid_format::volume::extent::{PER_GROUP, groups_of_copy};

impl Files {
    /// See [`braid_filesystem::FileSystem::seek`].
    pub async fn seek_file(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Errno> {
        let inode = self.inodes.file(ino).await?;
        let _held = inode.locks.shared(offset..u64::MAX).await;
        let size = inode.size();
        if offset >= size {
            return Err(Errno::Nxio);
        }
        let geometry = self.geometry;
        let mut at = offset;
        let mut next = Some(offset / geometry.stripe / PER_GROUP);
        while let Some(group) = next {
            let groups;
            (groups, next) = self.extents.groups_from(&inode.extents, group).await?;
            next = next.filter(|next| *next < groups_of_copy(1));
            for number in groups.into_iter().filter(|number| *number < groups_of_copy(1)) {
                let group = self.extents.group(&inode.extents, number).await?;
                for (stripe, _) in group.placed() {
                    let extent = self.stripe(&inode, stripe).await?.together();
                    let start = stripe * geometry.stripe;
                    if start + geometry.stripe <= at {
                        continue;
                    }
                    if what == Seek::Hole && start > at {
                        return Ok(at.min(size));
                    }
                    let from = at.max(start) - start;
                    for (run, is_written) in geometry.runs(extent, from, geometry.stripe) {
                        if is_written == (what == Seek::Data) {
                            let found = (start + run.start).max(offset);
                            return match what {
                                Seek::Data if found >= size => Err(Errno::Nxio),
                                _ => Ok(found.min(size)),
                            };
                        }
                    }
                    at = start + geometry.stripe;
                }
            }
        }
        match what {
            Seek::Hole => Ok(at.min(size)),
            Seek::Data => Err(Errno::Nxio),
        }
    }
}
