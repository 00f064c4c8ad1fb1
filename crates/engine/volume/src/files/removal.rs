//! Files without a name that nobody uses any more, and files that were cut: their extents are freed in the
//! background, in steps that each end in a whole state.

use super::part::Files;
use super::verify::sums_of;
use braid_filesystem::{Errno, Ino};
use braid_shard::range_locks::WHOLE;
use std::rc::Rc;

impl Files {
    /// Removes files for as long as there are some to be removed.
    pub fn start_removing(self: &Rc<Self>) {
        let own = Rc::clone(self);
        self.shard.spawn(async move {
            while let Some(ino) = own.orphans.next() {
                if let Err(error) = own.remove_nameless(ino).await {
                    tracing::warn!(ino, "removing a file that has no name any more: {error}; the next mount tries again");
                }
            }
        });
    }

    /// Removes a file that has no name; trims one that was cut.
    async fn remove_nameless(&self, ino: Ino) -> Result<(), Errno> {
        let _gate = self.gate.enter().await;
        let inode = match self.inodes.get(ino).await {
            Err(Errno::Stale) => return self.orphans.forget_stray(ino).await,
            other => other?,
        };
        let _held = inode.locks.exclusive(WHOLE).await;
        if inode.with(|record| record.nlink > 0) {
            // Whoever made it grow has trimmed it.
            return if self.orphans.is_cut(ino) { self.trim_cut(&inode).await } else { Ok(()) };
        }
        if self.inodes.is_used(ino) {
            return Ok(());
        }
        self.trim(&inode, 0).await?;
        let attributes = self.namespace.attribute_keys(&inode).await?;
        if self.inodes.is_used(ino) {
            return Ok(());
        }
        for key in attributes {
            self.transactions.set(key, None);
        }
        let subvolume = inode.with(|record| record.subvolume);
        let is_seen = self.snapshots.newest(subvolume, ino).is_some();
        self.sums.remove(sums_of(&inode), is_seen);
        self.inodes.remove(&inode);
        self.orphans.forget(ino);
        self.namespace.removed(ino);
        Ok(())
    }
}
