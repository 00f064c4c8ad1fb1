//! Access control lists: set, given to new files, changed with the mode. Access itself is judged by the kernel.

use super::inode::Inode;
use super::tree::Namespace;
use braid_filesystem::{Errno, Kind, NewNode};
use braid_format::access_list::{ACCESS, AccessList, DEFAULT};
use braid_format::volume::keys;
use braid_shard::plant::planted;
use std::rc::Rc;

/// The bits of a mode that a list stands for.
const LISTED: u16 = 0o777;

/// The rights of a new file.
pub(super) struct Rights {
    /// Its mode, within [`braid_filesystem::MODE_MASK`].
    pub perm: u16,
    /// Its lists: attribute and value.
    pub lists: Vec<(&'static [u8], Vec<u8>)>,
}

impl Rights {
    /// Bytes of metadata that the lists take.
    pub fn bytes(&self) -> u64 {
        self.lists.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }
}

/// True of the name of an attribute that is a list.
pub(super) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Namespace {
    /// The rights of what is made as `node` in `directory`. Its default list takes the place of the umask.
    pub(super) async fn rights_for_new(
        &self,
        directory: &Rc<Inode>,
        node: &NewNode<'_>,
    ) -> Result<Rights, Errno> {
        let default = match node.kind {
            Kind::Symlink => None,
            _ if planted("default-list-stays") => None,
            _ => self.stored_list(directory, DEFAULT).await?,
        };
        let Some(default) = default else {
            return Ok(Rights { perm: node.masked(), lists: Vec::new() });
        };
        let access = default.for_new(node.perm);
        let mut lists = Vec::new();
        if !access.is_just_a_mode() {
            lists.push((ACCESS, access.encode()));
        }
        if node.kind == Kind::Directory {
            lists.push((DEFAULT, default.encode()));
        }
        Ok(Rights { perm: (node.perm & !LISTED) | access.mode(), lists })
    }

    /// Sets a list, which is the value of attribute `name`; one without entries is removed.
    pub(super) async fn set_list(
        &self,
        inode: &Rc<Inode>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Errno> {
        let list = AccessList::parse(value).map_err(|_| Errno::Invalid)?;
        let is_access = name == ACCESS;
        if list.is_some() {
            match inode.kind() {
                Kind::Symlink => return Err(Errno::Unsupported),
                kind if kind != Kind::Directory && !is_access => return Err(Errno::Access),
                _ => {}
            }
        }
        let mode = list.as_ref().filter(|_| is_access).map(AccessList::mode);
        match list.filter(|list| !is_access || !list.is_just_a_mode()) {
            Some(list) => self.put_attribute(inode, name, list.encode()),
            None => match self.remove_stored(inode, name).await {
                Ok(()) | Err(Errno::NoData) => {}
                Err(error) => return Err(error),
            },
        }
        if let Some(mode) = mode {
            self.inodes.touch(inode, false);
            self.inodes.edit(inode, true, |record| record.perm = (record.perm & !LISTED) | mode);
        }
        Ok(())
    }

    /// The access list of a file whose mode becomes `perm`, as it is to be recorded with it.
    pub(super) async fn list_for_mode(
        &self,
        inode: &Rc<Inode>,
        perm: u16,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let list = self.stored_list(inode, ACCESS).await?;
        Ok(list.map(|mut list| {
            list.set_mode(perm);
            list.encode()
        }))
    }

    async fn stored_list(
        &self,
        inode: &Rc<Inode>,
        name: &[u8],
    ) -> Result<Option<AccessList>, Errno> {
        let stored = self.stored_attribute(inode, &keys::xattr(inode.ino(), name)).await?;
        let Some(value) = stored else { return Ok(None) };
        AccessList::parse(&value).map_err(|error| {
            tracing::error!(ino = inode.ino(), "{error}");
            Errno::Io
        })
    }
}
