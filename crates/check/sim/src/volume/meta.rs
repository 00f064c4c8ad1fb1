//! Names and attributes, as a table that changes by whole operations.
//!
//! The same table describes the present, the durable past and every candidate of what a crash may have left.
//! Times are spans, since only the moments of asking and of answering are known; what is read narrows them.

use braid_filesystem::{Attr, FileFlags, Kind, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Names a file for the whole run, whatever number it has.
pub type Id = u32;
/// The root directory.
pub const ROOT: Id = 0;
/// Nanoseconds since 1970.
pub type Moment = i128;

/// Nanoseconds of a time.
pub fn moment(time: Time) -> Moment {
    Moment::from(time.seconds) * 1_000_000_000 + Moment::from(time.nanos)
}

/// A moment between two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Not before.
    pub from: Moment,
    /// Not after.
    pub to: Moment,
}

impl Span {
    /// Exactly then.
    pub fn at(moment: Moment) -> Span {
        Span { from: moment, to: moment }
    }

    fn has(self, time: Time) -> bool {
        (self.from..=self.to).contains(&moment(time))
    }

    /// A change within `now` came after, or beside, what this stands for.
    fn then(self, now: Span) -> Span {
        match self.to >= now.from && self.from != self.to {
            true => Span { from: self.from.min(now.from), to: self.to.max(now.to) },
            false => now,
        }
    }

    fn narrow(&mut self, time: Time) {
        *self = Span::at(moment(time));
    }
}

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Device number.
    pub rdev: u32,
    /// What a symbolic link points to.
    pub target: Vec<u8>,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; of directories nothing is known.
    pub size: u64,
    /// It may be as large as this, when a write that makes it grow may be there in part.
    pub size_most: u64,
    /// Names.
    pub nlink: u32,
    /// Last read.
    pub atime: Span,
    /// Last change of the content.
    pub mtime: Span,
    /// Last change of the attributes.
    pub ctime: Span,
    /// Creation.
    pub crtime: Span,
    /// Of a directory: the one that it is in.
    pub parent: Id,
    /// It never had a name, and may get one.
    pub unnamed: bool,
    /// The attributes of chattr(1).
    pub flags: FileFlags,
    /// The innermost folder of which snapshots were taken that it belongs to.
    pub subvolume: Id,
}

impl Node {
    /// True for directories.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// What of `attr` is not as it should be.
    pub fn differs(&self, attr: &Attr) -> Option<String> {
        let sized = matches!(self.kind, Kind::File | Kind::Symlink);
        let span = |name, span: Span, time| {
            (!span.has(time)).then(|| {
                let (from, to) = (span.from, span.to);
                format!("{name} {}, should be {from} to {to}", moment(time))
            })
        };
        if attr.kind != self.kind {
            return Some(format!("is a {:?}, should be a {:?}", attr.kind, self.kind));
        }
        if sized && !(self.size..=self.size_most.max(self.size)).contains(&attr.size) {
            return Some(format!("size {}, should be {}", attr.size, self.size));
        }
        if (attr.perm, attr.uid, attr.gid) != (self.perm, self.uid, self.gid) {
            return Some(format!(
                "mode {:o} of {}:{}, should be {:o} of {}:{}",
                attr.perm, attr.uid, attr.gid, self.perm, self.uid, self.gid
            ));
        }
        if attr.nlink != self.nlink {
            return Some(format!("nlink {}, should be {}", attr.nlink, self.nlink));
        }
        if attr.rdev != self.rdev {
            return Some(format!("rdev {}, should be {}", attr.rdev, self.rdev));
        }
        span("mtime", self.mtime, attr.mtime)
            .or_else(|| span("ctime", self.ctime, attr.ctime))
            .or_else(|| span("atime", self.atime, attr.atime))
            .or_else(|| span("crtime", self.crtime, attr.crtime))
    }

    /// What was seen is known exactly from now on.
    pub fn seen(&mut self, attr: &Attr) {
        self.mtime.narrow(attr.mtime);
        self.ctime.narrow(attr.ctime);
        self.atime.narrow(attr.atime);
        self.crtime.narrow(attr.crtime);
        if self.kind == Kind::File {
            (self.size, self.size_most) = (attr.size, attr.size);
        }
    }
}

/// Which times an operation changes to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Content.
    pub mtime: bool,
    /// Attributes.
    pub ctime: bool,
    /// It may, and need not.
    pub perhaps: bool,
}

/// One part of an operation.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new file, its times those of the operation.
    Make(Id, Box<Node>),
    /// The entry of a directory.
    Name(Id, Vec<u8>, Option<Id>),
    /// An extended attribute.
    Xattr(Id, Vec<u8>, Option<Vec<u8>>),
    /// Permission bits, owner, group.
    Owner(Id, u16, u32, u32),
    /// The size.
    Size(Id, u64),
    /// A size that is at least that.
    Grow(Id, u64),
    /// More or fewer names.
    Links(Id, i32),
    /// Times become those of the operation.
    Touch(Id, Touch),
    /// Times become these: last read, last change, last change of attributes.
    Times(Id, [Option<Moment>; 3]),
    /// The last read is the operation's time.
    Read(Id),
    /// A directory is in another.
    Parent(Id, Id),
    /// The attributes of chattr(1).
    Flags(Id, FileFlags),
}

/// What a change is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Attributes of a file.
    Node(Id),
    /// An entry.
    Name(Id, Vec<u8>),
    /// An extended attribute.
    Xattr(Id, Vec<u8>),
}

impl Change {
    /// It may turn out to be no change at all.
    pub fn is_perhaps(&self) -> bool {
        matches!(self, Change::Touch(_, Touch { perhaps: true, .. }) | Change::Grow(..))
    }

    /// The file whose size it may change.
    pub fn sizes(&self) -> Option<Id> {
        match self {
            Change::Size(id, _) | Change::Grow(id, _) => Some(*id),
            _ => None,
        }
    }

    /// What it is of.
    pub fn key(&self) -> Key {
        match self {
            Change::Name(dir, name, _) => Key::Name(*dir, name.clone()),
            Change::Xattr(id, name, _) => Key::Xattr(*id, name.clone()),
            Change::Make(id, _)
            | Change::Owner(id, ..)
            | Change::Size(id, _)
            | Change::Grow(id, _)
            | Change::Links(id, _)
            | Change::Touch(id, _)
            | Change::Times(id, _)
            | Change::Read(id)
            | Change::Parent(id, _)
            | Change::Flags(id, _) => Key::Node(*id),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// The directory that everything is in.
    pub root: Id,
    /// Folders that have, or had, snapshots, and how many.
    pub snapshots: BTreeMap<Id, usize>,
    /// Attributes, also of files without a name.
    pub nodes: BTreeMap<Id, Node>,
    /// Entries.
    pub names: BTreeMap<(Id, Vec<u8>), Id>,
    /// Extended attributes.
    pub xattrs: BTreeMap<(Id, Vec<u8>), Vec<u8>>,
}

impl Meta {
    /// Makes the change of an operation that was under way during `now`. `whole`: it has ended; otherwise parts of
    /// what grows may be missing.
    pub fn apply(&mut self, change: &Change, now: Span, whole: bool) {
        match change {
            Change::Make(id, node) => {
                let mut node = Node::clone(node);
                (node.atime, node.mtime, node.ctime, node.crtime) = (now, now, now, now);
                self.nodes.insert(*id, node);
            }
            Change::Name(dir, name, id) => {
                let key = (*dir, name.clone());
                match id {
                    Some(id) => self.names.insert(key, *id),
                    None => self.names.remove(&key),
                };
            }
            Change::Xattr(id, name, value) => {
                let key = (*id, name.clone());
                match value {
                    Some(value) => self.xattrs.insert(key, value.clone()),
                    None => self.xattrs.remove(&key),
                };
            }
            Change::Owner(id, ..)
            | Change::Size(id, _)
            | Change::Grow(id, _)
            | Change::Links(id, _)
            | Change::Touch(id, _)
            | Change::Times(id, _)
            | Change::Read(id)
            | Change::Parent(id, _)
            | Change::Flags(id, _) => {
                if let Some(node) = self.nodes.get_mut(id) {
                    apply_to(node, change, now, whole);
                }
            }
        }
    }

    /// The entries of a directory.
    pub fn entries(&self, dir: Id) -> impl Iterator<Item = (&[u8], Id)> {
        self.names
            .range((dir, Vec::new())..(dir + 1, Vec::new()))
            .map(|((_, name), id)| (name.as_slice(), *id))
    }

    /// True when a directory has no entries.
    pub fn is_empty_dir(&self, dir: Id) -> bool {
        self.entries(dir).next().is_none()
    }

    /// True when `id` is `below` or a directory above it.
    pub fn is_above(&self, id: Id, mut below: Id) -> bool {
        loop {
            if id == below {
                return true;
            }
            match self.nodes.get(&below) {
                Some(node) if below != ROOT && node.parent != below => below = node.parent,
                _ => return false,
            }
        }
    }

    /// The subvolume that the name of a file belongs to: the folder of one lies in another.
    pub fn home_of(&self, id: Id) -> Id {
        let subvolume = |id: Id| self.nodes.get(&id).map_or(ROOT, |node| node.subvolume);
        match self.nodes.get(&id) {
            Some(node) if node.subvolume == id => subvolume(node.parent),
            _ => subvolume(id),
        }
    }

    /// A directory and everything in it.
    pub fn below(&self, dir: Id) -> BTreeSet<Id> {
        let (mut found, mut left) = (BTreeSet::from([dir]), vec![dir]);
        while let Some(dir) = left.pop() {
            left.extend(self.entries(dir).map(|(_, id)| id).filter(|id| found.insert(*id)));
        }
        found
    }

    /// Files that have a name, and the root.
    pub fn named(&self) -> BTreeSet<Id> {
        self.names.values().copied().chain([self.root]).collect()
    }
}

fn apply_to(node: &mut Node, change: &Change, now: Span, whole: bool) {
    match change {
        Change::Owner(_, perm, uid, gid) => (node.perm, node.uid, node.gid) = (*perm, *uid, *gid),
        Change::Size(_, size) => (node.size, node.size_most) = (*size, *size),
        Change::Grow(_, end) if whole => {
            node.size = node.size.max(*end);
            node.size_most = node.size_most.max(*end);
        }
        Change::Grow(_, end) => node.size_most = node.size_most.max(node.size).max(*end),
        Change::Links(_, by) => {
            node.nlink = node.nlink.saturating_add_signed(*by);
            node.unnamed &= *by < 0;
        }
        Change::Touch(_, touch) => {
            let later = |old: Span| match touch.perhaps {
                true => Span { from: old.from.min(now.from), to: old.to.max(now.to) },
                false => old.then(now),
            };
            if touch.mtime {
                node.mtime = later(node.mtime);
            }
            if touch.ctime {
                node.ctime = later(node.ctime);
            }
        }
        Change::Times(_, times) => {
            let places = [&mut node.atime, &mut node.mtime, &mut node.ctime];
            for (place, time) in places.into_iter().zip(times) {
                if let Some(time) = time {
                    *place = Span::at(*time);
                }
            }
        }
        Change::Read(_) => node.atime = now,
        Change::Parent(_, parent) => node.parent = *parent,
        Change::Flags(_, flags) => node.flags = *flags,
        Change::Make(..) | Change::Name(..) | Change::Xattr(..) => {}
    }
}
