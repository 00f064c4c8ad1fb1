//! The tree as a file system, on the shard of the mount.

use crate::content::{Content, Valve};
use crate::desk::Desk;
use crate::numbers::{Numbers, join, split};
use crate::offered::{Offer, Offered};
use crate::texts::{Listed, Node, Rights, TEXT_BYTES_MAX};
use braid_filesystem::{
    Allocate, Attr, Caller, DirEntry, Entry, Errno, FileSystem, Ino, Kind, NAME_MAX, NewNode,
    Opening, RenameFlags, Seek, SetAttr, Space, Time, Writing, XattrMode,
};
use braid_shard::{Buf, Shard};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The name of a target's bytes in its folder.
pub(crate) const DATA: &str = "data";

/// A place in the tree.
enum Place {
    Folder,
    Data(Arc<Offer>),
    Text(Rights),
    Link(String),
}

/// Numbers from here on are those of targets' bytes: two targets that have the same name at different times are two files.
const DATA_NUMBERS: Ino = 1 << 48;

/// A file that is open, by its number.
enum Open {
    /// Without its content the target is not offered any more.
    Data {
        content: Option<Rc<Content>>,
        openings: u64,
    },
    Text {
        kept: Option<Rc<str>>,
        openings: u64,
    },
}

/// See the module's documentation.
pub(crate) struct View {
    shard: Shard,
    offered: Arc<Offered>,
    desk: Desk,
    valve: Rc<Valve>,
    numbers: RefCell<Numbers>,
    open: RefCell<HashMap<Ino, Open>>,
    /// The time of the mount: that of all files.
    time: Time,
    owner: Caller,
}

impl View {
    pub fn new(
        shard: &Shard,
        offered: Arc<Offered>,
        desk: Desk,
        valve: Rc<Valve>,
        (time, owner): (Time, Caller),
    ) -> View {
        let (numbers, open) = (RefCell::default(), RefCell::default());
        View { shard: shard.clone(), offered, desk, valve, numbers, open, time, owner }
    }

    fn path(&self, ino: Ino) -> Result<String, Errno> {
        let path = match ino.checked_sub(DATA_NUMBERS) {
            Some(number) => self.offered.numbered(number).map(|offer| join(&offer.name, DATA)),
            None => self.numbers.borrow().path(ino),
        };
        path.ok_or(Errno::Stale)
    }

    fn number(&self, path: &str) -> Ino {
        self.numbers.borrow_mut().of(path)
    }

    /// All entries of a folder.
    async fn list(&self, folder: &str) -> Result<Vec<(String, Place)>, Errno> {
        let texts = self.desk.list(&self.shard, folder.to_string()).await;
        let mut all = Vec::new();
        let mut known = folder.is_empty();
        if folder.is_empty() {
            let targets = self.offered.list();
            all.extend(targets.iter().map(|offer| (offer.name.clone(), Place::Folder)));
        } else if let Some(offer) = self.offered.find(folder) {
            all.push((DATA.to_string(), Place::Data(offer)));
            known = true;
        }
        let texts = match texts {
            Err(Errno::NotFound) if known => Vec::new(),
            texts => texts?,
        };
        for Listed { name, node } in texts {
            let is_new = !all.iter().any(|(other, _)| *other == name);
            if is_new && !name.is_empty() && name.len() <= NAME_MAX && !name.contains('/') {
                all.push((name, of(node)));
            }
        }
        Ok(all)
    }

    async fn place(&self, path: &str) -> Result<Place, Errno> {
        let Some((folder, name)) = split(path) else { return Ok(Place::Folder) };
        let known = self.offered.find(if folder.is_empty() { name } else { folder });
        match known {
            Some(_) if folder.is_empty() => return Ok(Place::Folder),
            Some(offer) if name == DATA => return Ok(Place::Data(offer)),
            _ => {}
        }
        let all = self.desk.list(&self.shard, folder.to_string()).await?;
        let found = all.into_iter().find(|listed| listed.name == name);
        found.map(|listed| of(listed.node)).ok_or(Errno::NotFound)
    }

    fn attr_of(&self, path: &str, place: &Place) -> Attr {
        let (kind, perm, size) = match place {
            Place::Folder => (Kind::Directory, 0o755, 0),
            Place::Data(offer) => {
                let info = offer.target.info();
                (Kind::File, if info.read_only { 0o400 } else { 0o600 }, info.device.size)
            }
            // As sysfs has them: the size is what a text can be, not what it is.
            Place::Text(Rights::Read) => (Kind::File, 0o444, TEXT_BYTES_MAX as u64),
            Place::Text(Rights::Both) => (Kind::File, 0o644, TEXT_BYTES_MAX as u64),
            Place::Text(Rights::Write) => (Kind::File, 0o200, TEXT_BYTES_MAX as u64),
            Place::Link(to) => (Kind::Symlink, 0o777, to.len() as u64),
        };
        let blocks = if matches!(place, Place::Data(_)) { size / 512 } else { 0 };
        let time = self.time;
        let ino = match place {
            Place::Data(offer) => DATA_NUMBERS + offer.number,
            _ => self.number(path),
        };
        Attr {
            ino,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            blksize: 4096,
        }
    }

    /// The open content of a target's file.
    fn content(&self, ino: Ino) -> Option<Rc<Content>> {
        match self.open.borrow().get(&ino) {
            Some(Open::Data { content, .. }) => content.clone(),
            _ => None,
        }
    }

    /// Ends the openings of a target: what is under way is carried out, what comes fails.
    pub fn withdraw(&self, number: u64) {
        if let Some(Open::Data { content, .. }) =
            self.open.borrow_mut().get_mut(&(DATA_NUMBERS + number))
        {
            *content = None;
        }
    }

    /// A text as it is now, kept for reads that go on with it.
    async fn text(&self, ino: Ino, from_start: bool) -> Result<Rc<str>, Errno> {
        if !from_start
            && let Some(Open::Text { kept: Some(text), .. }) = self.open.borrow().get(&ino)
        {
            return Ok(Rc::clone(text));
        }
        let text: Rc<str> = self.desk.read(&self.shard, self.path(ino)?).await?.into();
        if let Some(Open::Text { kept, .. }) = self.open.borrow_mut().get_mut(&ino) {
            *kept = Some(Rc::clone(&text));
        }
        Ok(text)
    }

    async fn device_of(&self, offer: &Arc<Offer>) -> Result<Rc<Content>, Errno> {
        let valve = Rc::clone(&self.valve);
        Content::open(&self.shard, Arc::clone(offer), valve).await.map(Rc::new)
    }

    /// Counts an opening of a file that is open already.
    fn opened_again(&self, ino: Ino) -> bool {
        let mut open = self.open.borrow_mut();
        match open.get_mut(&ino) {
            Some(Open::Data { openings, .. } | Open::Text { openings, .. }) => *openings += 1,
            None => return false,
        }
        true
    }
}

fn of(node: Node) -> Place {
    match node {
        Node::Folder => Place::Folder,
        Node::Text(rights) => Place::Text(rights),
        Node::Link(to) => Place::Link(to),
    }
}

fn kind_of(place: &Place) -> Kind {
    match place {
        Place::Folder => Kind::Directory,
        Place::Data(_) | Place::Text(_) => Kind::File,
        Place::Link(_) => Kind::Symlink,
    }
}

impl FileSystem for View {
    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let folder = self.path(parent)?;
        let path = match name {
            b"." => folder,
            b".." => split(&folder).map_or_else(String::new, |(above, _)| above.to_string()),
            _ => join(&folder, std::str::from_utf8(name).map_err(|_| Errno::NotFound)?),
        };
        let place = self.place(&path).await?;
        Ok(Entry { attr: self.attr_of(&path, &place), generation: 0 })
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    async fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let path = self.path(ino)?;
        let place = self.place(&path).await?;
        Ok(self.attr_of(&path, &place))
    }

    async fn set_attr(&self, _caller: Caller, ino: Ino, set: SetAttr) -> Result<Attr, Errno> {
        if set.perm.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Errno::NotPermitted);
        }
        let attr = self.attr(ino).await?;
        match set.size {
            // O_TRUNC does nothing to devices and attributes.
            None | Some(0) => Ok(attr),
            Some(size) if size == attr.size => Ok(attr),
            Some(_) => Err(Errno::Invalid),
        }
    }

    async fn make(&self, _: Caller, _: Ino, _: &[u8], _: NewNode<'_>) -> Result<Entry, Errno> {
        Err(Errno::NotPermitted)
    }

    async fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        match self.place(&self.path(ino)?).await? {
            Place::Link(to) => Ok(to.into_bytes()),
            _ => Err(Errno::Invalid),
        }
    }

    async fn link(&self, _: Ino, _: Ino, _: &[u8]) -> Result<Entry, Errno> {
        Err(Errno::NotPermitted)
    }

    async fn unlink(&self, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NotPermitted)
    }

    async fn remove_dir(&self, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NotPermitted)
    }

    async fn rename(
        &self,
        _: Ino,
        _: &[u8],
        _: Ino,
        _: &[u8],
        _: RenameFlags,
    ) -> Result<(), Errno> {
        Err(Errno::NotPermitted)
    }

    async fn open(&self, ino: Ino, _how: Opening) -> Result<(), Errno> {
        let path = self.path(ino)?;
        let opened = match self.place(&path).await? {
            // Counted before anything is waited for, so that a target that is about to be used is not taken away.
            Place::Data(offer) if self.offered.open(&offer) => {
                let known = self.content(ino);
                let content = match known {
                    Some(content) => Ok(content),
                    None => self.device_of(&offer).await,
                };
                Open::Data { content: Some(content.inspect_err(|_| offer.closed())?), openings: 1 }
            }
            Place::Data(_) => return Err(Errno::Nxio),
            Place::Text(_) => Open::Text { kept: None, openings: 1 },
            Place::Folder => return Err(Errno::IsDirectory),
            Place::Link(_) => return Err(Errno::Loop),
        };
        // One that was opened by somebody else meanwhile is used by both.
        if !self.opened_again(ino) {
            self.open.borrow_mut().insert(ino, opened);
        }
        Ok(())
    }

    fn close(&self, ino: Ino) {
        let mut open = self.open.borrow_mut();
        let openings = match open.get_mut(&ino) {
            Some(Open::Data { content, openings }) => {
                content.iter().for_each(|content| content.closed());
                openings
            }
            Some(Open::Text { openings, .. }) => openings,
            None => return,
        };
        *openings -= 1;
        if *openings == 0 {
            open.remove(&ino);
        }
    }

    fn is_nearly_full(&self, _ino: Ino) -> bool {
        false
    }

    fn is_uncached(&self, _ino: Ino) -> bool {
        true
    }

    async fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Buf, Errno> {
        if let Some(content) = self.content(ino) {
            return content.read(offset, len).await;
        }
        let text = self.text(ino, offset == 0).await?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let to = from.saturating_add(len).min(text.len());
        let part = text.as_bytes().get(from..to).unwrap_or_default();
        Ok(self.shard.pool().copy_of(part).freeze())
    }

    async fn write(&self, ino: Ino, offset: u64, data: Buf, _: Writing) -> Result<(), Errno> {
        if let Some(content) = self.content(ino) {
            return content.write(offset, data).await;
        }
        if data.len() > TEXT_BYTES_MAX {
            return Err(Errno::TooLarge);
        }
        // Wherever it is written, it is one order.
        let text = std::str::from_utf8(&data).map_err(|_| Errno::Invalid)?.to_string();
        self.desk.write(&self.shard, self.path(ino)?, text).await
    }

    async fn fsync(&self, ino: Ino, _data_only: bool) -> Result<(), Errno> {
        match self.content(ino) {
            Some(content) => content.flush().await,
            None => Ok(()),
        }
    }

    async fn sync(&self) -> Result<(), Errno> {
        let contents: Vec<Rc<Content>> = self
            .open
            .borrow()
            .values()
            .filter_map(|open| match open {
                Open::Data { content, .. } => content.clone(),
                Open::Text { .. } => None,
            })
            .collect();
        for content in contents {
            content.flush().await?;
        }
        Ok(())
    }

    async fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<(), Errno> {
        let content = self.content(ino).ok_or(Errno::Unsupported)?;
        match how {
            Allocate::PunchHole => content.zero(offset, len, true).await,
            Allocate::ZeroRange { .. } => content.zero(offset, len, false).await,
            Allocate::Reserve { .. } => Err(Errno::Unsupported),
        }
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Errno> {
        let size = self.attr(ino).await?.size;
        if offset >= size {
            return Err(Errno::Nxio);
        }
        Ok(if what == Seek::Data { offset } else { size })
    }

    async fn read_dir(&self, ino: Ino, cookie: u64, max: usize) -> Result<Vec<DirEntry>, Errno> {
        let all = self.read_dir_plus(ino, cookie, max).await?;
        Ok(all.into_iter().map(|(entry, _)| entry).collect())
    }

    async fn read_dir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        max: usize,
    ) -> Result<Vec<(DirEntry, Option<Entry>)>, Errno> {
        let folder = self.path(ino)?;
        let all = self.list(&folder).await?;
        let entry = |(name, place): (String, Place)| {
            let path = join(&folder, &name);
            let attr = self.attr_of(&path, &place);
            // Numbers of paths stay, so that reading goes on where it was though others come and go.
            let (ino, kind, cookie) = (attr.ino, kind_of(&place), attr.ino);
            let entry = DirEntry { ino, kind, cookie, name: name.into_bytes() };
            (entry, Some(Entry { attr, generation: 0 }))
        };
        let mut entries: Vec<(DirEntry, Option<Entry>)> = all.into_iter().map(entry).collect();
        entries.sort_by_key(|(entry, _)| entry.cookie);
        Ok(entries.into_iter().filter(|(entry, _)| entry.cookie > cookie).take(max).collect())
    }

    async fn parent(&self, ino: Ino) -> Result<Ino, Errno> {
        let path = self.path(ino)?;
        Ok(self.number(split(&path).map_or("", |(above, _)| above)))
    }

    async fn space(&self, _ino: Ino) -> Result<Space, Errno> {
        Ok(Space {
            block: 4096,
            blocks: 0,
            free: 0,
            available: 0,
            files: 0,
            files_free: 0,
            name_max: NAME_MAX as u32,
        })
    }

    async fn set_xattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<(), Errno> {
        Err(Errno::Unsupported)
    }

    async fn xattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::Unsupported)
    }

    async fn xattrs(&self, _: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    async fn remove_xattr(&self, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::Unsupported)
    }
}
