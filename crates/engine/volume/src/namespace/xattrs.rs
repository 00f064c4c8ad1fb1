//! Extended attributes.

use super::access_lists::is_list;
use super::flags::may_be_changed;
use super::inode::Inode;
use super::tree::Namespace;
use braid_filesystem::{Errno, Ino, XATTR_NAME_MAX, XATTR_VALUE_MAX, XattrMode};
use braid_format::volume::inode::FLAG_NO_ATTRIBUTES;
use braid_format::volume::keys;
use std::rc::Rc;

/// Attributes that are looked for at a time.
const AT_ONCE: usize = 256;

/// Refuses what cannot be the name of an attribute. Of those of `system.` there are the access control lists.
fn check(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::Range);
    }
    if is_list(name) {
        return Ok(());
    }
    let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match known.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some(b"") => Err(Errno::Invalid),
        Some(_) => Ok(()),
        None => Err(Errno::Unsupported),
    }
}

impl Namespace {
    /// See [`braid_filesystem::FileSystem::set_xattr`].
    pub async fn set_attribute(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        check(name)?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TooLarge);
        }
        self.transactions.may_grow().await?;
        let inode = self.inodes.get(ino).await?;
        may_be_changed(&inode)?;
        let key = keys::xattr(ino, name);
        match (self.stored_attribute(&inode, &key).await?.is_some(), mode) {
            (true, XattrMode::Create) => return Err(Errno::Exists),
            (false, XattrMode::Replace) => return Err(Errno::NoData),
            _ => {}
        }
        // Others may have asked meanwhile, and values are long.
        self.transactions.has_room_for(value.len() as u64)?;
        if is_list(name) {
            return self.set_list(&inode, name, value).await;
        }
        self.put_attribute(&inode, name, value.to_vec());
        Ok(())
    }

    /// See [`braid_filesystem::FileSystem::xattr`].
    pub async fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check(name)?;
        let inode = self.inodes.get(ino).await?;
        self.stored_attribute(&inode, &keys::xattr(ino, name)).await?.ok_or(Errno::NoData)
    }

    /// The attribute of that key. Linux asks for one before it first writes to a file, so those that have none must say so
    /// fast.
    pub(super) async fn stored_attribute(
        &self,
        inode: &Rc<Inode>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Errno> {
        match inode.with(|record| record.may_have_attributes()) {
            true => self.transactions.stored(key).await,
            false => Ok(None),
        }
    }

    /// See [`braid_filesystem::FileSystem::xattrs`].
    pub async fn attributes(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        let inode = self.inodes.get(ino).await?;
        let keys = self.attribute_keys(&inode).await?;
        Ok(keys.iter().filter_map(|key| keys::name_of(key)).map(<[u8]>::to_vec).collect())
    }

    /// The keys of all attributes of a file.
    pub async fn attribute_keys(&self, inode: &Rc<Inode>) -> Result<Vec<Vec<u8>>, Errno> {
        if !inode.with(|record| record.may_have_attributes()) {
            return Ok(Vec::new());
        }
        let ino = inode.ino();
        let (mut from, to) = (keys::xattr(ino, b""), keys::after(&keys::xattr(ino, b"")));
        let mut found = Vec::new();
        loop {
            let (pairs, next) = self.transactions.scanned(&from, &to, AT_ONCE).await?;
            found.extend(pairs.into_iter().map(|(key, _)| key));
            match next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }

    /// See [`braid_filesystem::FileSystem::remove_xattr`].
    pub async fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        check(name)?;
        self.transactions.writable()?;
        let inode = self.inodes.get(ino).await?;
        self.remove_stored(&inode, name).await
    }

    /// Removes one that is recorded.
    pub(super) async fn remove_stored(&self, inode: &Rc<Inode>, name: &[u8]) -> Result<(), Errno> {
        let key = keys::xattr(inode.ino(), name);
        if self.stored_attribute(inode, &key).await?.is_none() {
            return Err(Errno::NoData);
        }
        may_be_changed(inode)?;
        self.transactions.set(key, None);
        self.inodes.touch(inode, false);
        self.inodes.note_change(inode);
        Ok(())
    }

    /// Records one, whatever was there before.
    pub(super) fn put_attribute(&self, inode: &Rc<Inode>, name: &[u8], value: Vec<u8>) {
        self.transactions.set(keys::xattr(inode.ino(), name), Some(value));
        self.inodes.touch(inode, false);
        inode.edit(|record| record.flags &= !FLAG_NO_ATTRIBUTES);
        self.inodes.note_change(inode);
    }
}
