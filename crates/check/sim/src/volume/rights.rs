//! What the attributes of chattr(1) forbid, and what access control lists make of modes.

use super::access_list::{ACCESS, DEFAULT, List, is_list};
use super::expected::{Plan, Thing};
use super::meta::{Change, Id, Meta, Node, ROOT};
use braid_filesystem::{Allocate, Errno, FileFlags, Kind, SetAttr, SetTime};

/// What must not have been set of a file for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    /// `+i`.
    Immutable,
    /// `+i`, or `+a`.
    Kept,
}

/// The rights of a new file.
pub struct Rights {
    /// Its mode.
    pub perm: u16,
    /// Its lists, by name.
    pub lists: Vec<(&'static [u8], Vec<u8>)>,
    /// What it inherits.
    pub flags: FileFlags,
    /// Whose snapshots have it.
    pub subvolume: Id,
}

impl Plan {
    /// The request is refused if the file has that.
    pub fn refused(&mut self, meta: &Meta, id: Id, unless: Unless) {
        self.shared(Thing::Flags(id));
        let Some(FileFlags { immutable, append, .. }) = meta.nodes.get(&id).map(|node| node.flags)
        else {
            return;
        };
        if immutable || append && unless == Unless::Kept {
            self.no(Errno::NotPermitted);
        }
    }

    /// A name of `id` goes from `dir`.
    pub fn loses_name(&mut self, meta: &Meta, dir: Id, id: Id) {
        self.refused(meta, dir, Unless::Kept);
        self.refused(meta, id, Unless::Kept);
    }

    /// `id` gets a name in `dir`, which may be for another project, or have snapshots of its own.
    pub fn comes_into(&mut self, meta: &Meta, dir: Id, id: Id) {
        self.shared(Thing::Flags(dir));
        self.shared(Thing::Flags(id));
        let flags = |id: Id| meta.nodes.get(&id).map(|node| node.flags).unwrap_or_default();
        if flags(dir).inherits_project && flags(dir).project != flags(id).project {
            self.no(Errno::CrossDevice);
        }
        let subvolume = meta.nodes.get(&dir).map(|node| node.subvolume);
        if subvolume.is_some_and(|subvolume| subvolume != meta.home_of(id)) {
            self.no(Errno::CrossDevice);
        }
    }

    /// A directory goes, which it does not as long as it has snapshots.
    pub fn ends(&mut self, meta: &Meta, dir: Id) {
        match meta.snapshots.get(&dir) {
            None => {}
            // Those that were removed may not be gone yet.
            Some(0) => self.may.push(Errno::Busy),
            Some(_) => self.no(Errno::Busy),
        }
    }

    /// Attributes are set, which a file that is kept as it is refuses; touching one that grows is no change of it.
    pub fn sets(&mut self, meta: &Meta, id: Id, set: &SetAttr) {
        let is_now = |time: Option<SetTime>| time.is_none_or(|time| time == SetTime::Now);
        let touches = SetAttr { atime: set.atime, mtime: set.mtime, ..SetAttr::default() } == *set
            && is_now(set.atime)
            && is_now(set.mtime);
        self.refused(meta, id, if touches { Unless::Immutable } else { Unless::Kept });
    }

    /// The space of a file changes.
    pub fn allocates(&mut self, meta: &Meta, id: Id, how: Allocate) {
        let adds = matches!(how, Allocate::Reserve { .. });
        self.refused(meta, id, if adds { Unless::Immutable } else { Unless::Kept });
    }

    /// What a file made in `dir` gets from there.
    pub fn inherits(
        &mut self,
        meta: &Meta,
        dir: Id,
        kind: Kind,
        (perm, umask): (u16, u16),
    ) -> Rights {
        self.refused(meta, dir, Unless::Immutable);
        self.shared(Thing::Lists(dir));
        let from = meta.nodes.get(&dir).map(|node| node.flags).unwrap_or_default();
        let subvolume = meta.nodes.get(&dir).map_or(ROOT, |node| node.subvolume);
        let flags = FileFlags {
            inherits_project: from.inherits_project && kind == Kind::Directory,
            project: if from.inherits_project { from.project } else { 0 },
            ..FileFlags::default()
        };
        let default = list_of(meta, dir, DEFAULT).filter(|_| kind != Kind::Symlink);
        let Some(default) = default else {
            return Rights { perm: perm & !umask, lists: Vec::new(), flags, subvolume };
        };
        let access = default.for_new(perm);
        let mut lists = Vec::new();
        if !access.is_plain() {
            lists.push((ACCESS, access.value()));
        }
        if kind == Kind::Directory {
            lists.push((DEFAULT, default.value()));
        }
        Rights { perm: perm & !0o777 | access.mode(), lists, flags, subvolume }
    }

    /// The mode of a file changes, and its list with it.
    pub fn changes_mode(&mut self, meta: &Meta, id: Id, perm: u16) {
        self.alone(Thing::Lists(id));
        if let Some(list) = list_of(meta, id, ACCESS) {
            let value = list.with_mode(perm).value();
            self.changes.push(Change::Xattr(id, ACCESS.to_vec(), Some(value)));
        }
    }

    /// An attribute that is a list is set; gives true where anything changes.
    pub fn sets_list(
        &mut self,
        meta: &Meta,
        id: Id,
        node: &Node,
        name: &[u8],
        value: &[u8],
    ) -> bool {
        self.alone(Thing::Lists(id));
        self.alone(Thing::Node(id));
        let Ok(list) = List::of(value) else {
            self.no(Errno::Invalid);
            return false;
        };
        let is_access = name == ACCESS;
        if list.is_some() && node.kind == Kind::Symlink {
            self.no(Errno::Unsupported);
        }
        if list.is_some() && !is_access && !node.is_dir() {
            self.no(Errno::Access);
        }
        let mode = list.as_ref().filter(|_| is_access).map(List::mode);
        let kept = list.filter(|list| !is_access || !list.is_plain()).map(|list| list.value());
        let was = meta.xattrs.contains_key(&(id, name.to_vec()));
        let changes = kept.is_some() || was || mode.is_some();
        if kept.is_some() || was {
            self.changes.push(Change::Xattr(id, name.to_vec(), kept));
        }
        if let Some(mode) = mode {
            let perm = node.perm & !0o777 | mode;
            self.changes.push(Change::Owner(id, perm, node.uid, node.gid));
        }
        changes
    }

    /// The value of a list is looked at.
    pub fn looks_at_list(&mut self, id: Id, name: &[u8]) {
        if is_list(name) {
            self.shared(Thing::Lists(id));
        }
    }
}

fn list_of(meta: &Meta, id: Id, name: &[u8]) -> Option<List> {
    List::of(meta.xattrs.get(&(id, name.to_vec()))?).ok()?
}
