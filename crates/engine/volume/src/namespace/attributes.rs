//! Attributes that are set.

use super::inode::{Inode, stamp};
use super::rules::clear_setid_bits;
use super::tree::Namespace;
use braid_filesystem::{Caller, Errno, MODE_MASK, SetAttr, SetTime};
use braid_format::access_list::ACCESS;
use braid_format::volume::keys;
use braid_shard::plant::planted;
use std::rc::Rc;

/// The type nibble of a directory.
const DIRECTORY: u8 = 4;

impl Namespace {
    /// Sets attributes, all but the size, which was set before. An access control list changes with the mode.
    ///
    /// # Errors
    /// When the list cannot be read; nothing was set then.
    pub async fn set_attributes(
        &self,
        caller: Caller,
        inode: &Rc<Inode>,
        set: SetAttr,
    ) -> Result<(), Errno> {
        if set == SetAttr::default() {
            return Ok(());
        }
        if let Some(perm) = set.perm
            && !planted("list-keeps-mode")
            && let Some(list) = self.list_for_mode(inode, perm).await?
        {
            self.transactions.set(keys::xattr(inode.ino(), ACCESS), Some(list));
        }
        let now = self.inodes.now();
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => stamp(time),
        };
        let needed = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
        self.inodes.edit(inode, needed, |record| {
            record.perm = set.perm.map_or(record.perm, |perm| perm & MODE_MASK);
            record.uid = set.uid.unwrap_or(record.uid);
            record.gid = set.gid.unwrap_or(record.gid);
            record.atime = set.atime.map_or(record.atime, at);
            record.mtime = set.mtime.map_or(record.mtime, at);
            record.ctime = set.ctime.map_or(now, stamp);
            // A new owner does not get the old one's rights, nor does who cuts somebody's program short.
            let owned_anew = set.uid.is_some() || set.gid.is_some();
            let cut = set.size.is_some() && caller.uid != 0;
            if set.perm.is_none() && record.kind != DIRECTORY && (owned_anew || cut) {
                clear_setid_bits(&mut record.perm);
            }
        });
        Ok(())
    }
}
