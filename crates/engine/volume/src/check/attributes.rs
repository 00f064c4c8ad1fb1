//! Extended attributes against the files that they belong to.

use super::run::Walk;
use crate::under_way::Halt;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::inode::FLAG_NO_ATTRIBUTES;
use braid_format::volume::keys;

impl Volume {
    /// Checks that every attribute has a file, which knows that it has some.
    pub(super) async fn check_attributes(&self, walk: &Walk) -> Result<(), Halt> {
        let mut cursor = Some(b"X".to_vec());
        let mut right: Option<Ino> = None;
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(walk, &start, &keys::after(b"X")).await?;
            for (key, _) in pairs {
                let ino = keys::ino_of(&key);
                if (ino.is_none() || ino != right) && self.check_attribute(walk, &key).await? {
                    right = ino;
                }
            }
            cursor = next;
        }
        Ok(())
    }

    /// Looks at one attribute. True: its file knows of it, and so of the others that it has.
    async fn check_attribute(&self, walk: &Walk, key: &[u8]) -> Result<bool, Halt> {
        let ino = keys::ino_of(key);
        let may_have = match ino {
            Some(ino) => self.may_have_attributes(ino).await?,
            None => None,
        };
        if may_have == Some(true) {
            return Ok(true);
        }
        // Meanwhile it may have gone, with its file perhaps, or have come with another.
        if self.stored(key).await?.is_none() {
            return Ok(false);
        }
        let (Some(ino), Some(_)) = (ino, may_have) else {
            walk.problem(true, "an attribute belongs to no file".into());
            if walk.repair {
                self.transactions.set(key.to_vec(), None);
            }
            return Ok(false);
        };
        let inode = self.inode(ino).await?;
        if inode.with(|record| !record.may_have_attributes()) {
            walk.problem(true, format!("file {ino} says that it has no attributes, and has"));
            if walk.repair {
                self.edit(&inode, true, |record| record.flags &= !FLAG_NO_ATTRIBUTES);
            }
        }
        Ok(true)
    }

    /// The flag in a file's record; a file that cannot be read was reported with the files. `None`: there is no such
    /// file.
    async fn may_have_attributes(&self, ino: Ino) -> Result<Option<bool>, Errno> {
        // A new file has no record yet, but is in memory.
        if let Some(known) = self.inodes.get(ino) {
            return Ok(Some(known.with(|record| record.may_have_attributes())));
        }
        let stored = self.stored(&keys::inode(ino)).await?;
        let record = stored.map(|stored| self.record_of(ino, &stored));
        Ok(record.map(|record| record.is_none_or(|record| record.may_have_attributes())))
    }
}
