//! Files without a name that nobody uses any more, and files that were cut: their extents are freed in the
//! background, in steps that each end in a whole state.

use crate::volume::Volume;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::keys;

/// Orphans that are looked for at a time at the mount.
const AT_ONCE: usize = 256;

impl Volume {
    /// Removes `ino` in the background, if it has no name and nobody uses it.
    pub(crate) fn remove_if_unused(&self, ino: Ino) {
        if self.inodes.is_used(ino) {
            return;
        }
        let nameless =
            self.inodes.get(ino).is_none_or(|inode| inode.with(|record| record.nlink == 0));
        if nameless {
            self.queue_removal(ino);
        }
    }

    fn queue_removal(&self, ino: Ino) {
        self.orphans.queue.borrow_mut().push_back(ino);
        let Some(own) = self.own.upgrade().filter(|_| !self.orphans.running.replace(true)) else {
            return;
        };
        self.shard.spawn(async move {
            loop {
                let next = own.orphans.queue.borrow_mut().pop_front();
                let Some(ino) = next else { break };
                if let Err(error) = own.remove_nameless(ino).await {
                    tracing::warn!(ino, "removing a file that has no name any more: {error}; the next mount tries again");
                }
            }
            own.orphans.running.set(false);
        });
    }

    /// Removes a file that has no name; trims one that was cut.
    async fn remove_nameless(&self, ino: Ino) -> Result<(), Errno> {
        let _gate = self.gate.enter().await;
        let inode = match self.inode(ino).await {
            Err(Errno::Stale) => {
                if self.stored(&keys::orphan(ino)).await?.is_some() {
                    self.transactions.set(keys::orphan(ino), None);
                }
                self.orphans.cut.borrow_mut().remove(&ino);
                return Ok(());
            }
            other => other?,
        };
        let _held = inode.locks.exclusive(crate::locks::WHOLE).await;
        if inode.with(|record| record.nlink > 0) {
            // Whoever made it grow has trimmed it.
            let is_cut = self.orphans.cut.borrow().contains(&ino);
            return if is_cut { self.trim_cut(&inode).await } else { Ok(()) };
        }
        if self.inodes.is_used(ino) {
            return Ok(());
        }
        self.trim(&inode, 0).await?;
        let attributes = self.attribute_keys(&inode).await?;
        if self.inodes.is_used(ino) {
            return Ok(());
        }
        for key in attributes {
            self.transactions.set(key, None);
        }
        inode.removed.set(true);
        self.transactions.drop_inode(ino);
        self.transactions.set(keys::inode(ino), None);
        self.transactions.set(keys::orphan(ino), None);
        self.orphans.cut.borrow_mut().remove(&ino);
        self.inodes.remove(ino);
        self.names.removed(ino);
        Ok(())
    }

    /// Queues what an earlier life left to be removed or trimmed.
    pub(crate) async fn find_orphans(&self) -> Result<(), Errno> {
        let (mut from, to) = (keys::orphan(0), keys::after(b"O"));
        loop {
            let scanned = self.transactions.scan(&from, &to, AT_ONCE).await;
            let (pairs, next) = scanned.map_err(|error| self.store_failed(&error))?;
            for ino in pairs.iter().filter_map(|(key, _)| keys::ino_of(key)) {
                self.orphans.cut.borrow_mut().insert(ino);
                self.queue_removal(ino);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}
