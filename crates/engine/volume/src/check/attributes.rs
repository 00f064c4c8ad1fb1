//! Extended attributes against the files that they belong to.

use super::one::Halt;
use super::walk::Walk;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::inode::FLAG_NO_ATTRIBUTES;
use braid_format::volume::keys;

impl Walk {
    /// Checks that every attribute has a file, which knows that it has some.
    pub(super) async fn check_attributes(&self) -> Result<(), Halt> {
        self.each_owner(b"X", async |key| self.check_attribute(key).await).await
    }

    /// Looks at one attribute. True: its file knows of it, and so of the others that it has.
    async fn check_attribute(&self, key: &[u8]) -> Result<bool, Halt> {
        let ino = keys::ino_of(key);
        let may_have = match ino {
            Some(ino) => self.may_have_attributes(ino).await?,
            None => None,
        };
        if may_have == Some(true) {
            return Ok(true);
        }
        // Meanwhile it may have gone, with its file perhaps, or have come with another.
        if self.on.transactions.stored(key).await?.is_none() {
            return Ok(false);
        }
        let (Some(ino), Some(_)) = (ino, may_have) else {
            self.problem(true, "an attribute belongs to no file".into());
            if self.repair {
                self.on.transactions.set(key.to_vec(), None);
            }
            return Ok(false);
        };
        let inode = self.on.inodes.get(ino).await?;
        if inode.with(|record| !record.may_have_attributes()) {
            self.problem(true, format!("file {ino} says that it has no attributes, and has"));
            if self.repair {
                self.on.inodes.edit(&inode, true, |record| record.flags &= !FLAG_NO_ATTRIBUTES);
            }
        }
        Ok(true)
    }

    /// The flag in a file's record; a file that cannot be read was reported with the files. `None`: there is no such
    /// file.
    async fn may_have_attributes(&self, ino: Ino) -> Result<Option<bool>, Errno> {
        // A new file has no record yet, but is in memory.
        if let Some(known) = self.on.inodes.known(ino) {
            return Ok(Some(known.with(|record| record.may_have_attributes())));
        }
        let stored = self.on.transactions.stored(&keys::inode(ino)).await?;
        let record = stored.map(|stored| self.on.inodes.record_of(ino, &stored));
        Ok(record.map(|record| record.is_none_or(|record| record.may_have_attributes())))
    }
}
