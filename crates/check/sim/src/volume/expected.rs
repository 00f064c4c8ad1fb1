//! What must come of a request: its errors or its changes, and what must not go on beside it so that there is one right
//! answer.

use super::meta::{Change, Id, Meta, Touch};
use super::stamp::Version;
use braid_filesystem::{Errno, NAME_MAX};
use std::ops::Range;

/// What a request needs to itself, or shares with its like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// An entry of a directory.
    Name(Id, Vec<u8>),
    /// That a directory is there, and has or has not got entries.
    Entries(Id),
    /// The size of a file, and that its attributes change only in ways that do not depend on order.
    Node(Id),
    /// How many names a file has.
    Links(Id),
    /// All extended attributes of a file.
    Xattrs(Id),
    /// The attributes of chattr(1).
    Flags(Id),
    /// Access control lists of a file.
    Lists(Id),
    /// Which directory is in which.
    Tree,
    /// Bytes of a file, in whole sectors.
    Bytes(Id, Range<u64>),
}

/// A thing, and whether it is needed alone.
#[derive(Clone, Debug)]
pub struct Need {
    /// What.
    pub thing: Thing,
    /// Nobody else may have it.
    pub alone: bool,
}

impl Need {
    /// True when both cannot go on at once.
    pub fn excludes(&self, other: &Need) -> bool {
        let same = match (&self.thing, &other.thing) {
            (Thing::Bytes(one, range), Thing::Bytes(two, other)) => {
                one == two && range.start < other.end && other.start < range.end
            }
            (one, two) => one == two,
        };
        same && (self.alone || other.alone)
    }
}

/// Bytes that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Of which file.
    pub id: Id,
    /// Which.
    pub range: Range<u64>,
    /// To what.
    pub version: Version,
    /// They were cut or punched.
    pub firm: bool,
}

/// What is to happen.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What must not go on beside it.
    pub needs: Vec<Need>,
    /// The errors of which one is right; none: it must go well.
    pub errors: Vec<Errno>,
    /// Errors that are right as well as success is.
    pub may: Vec<Errno>,
    /// What it changes.
    pub changes: Vec<Change>,
    /// Bytes that it changes.
    pub bytes: Vec<Bytes>,
    /// The file that it makes.
    pub makes: Option<Id>,
}

impl Plan {
    pub(super) fn alone(&mut self, thing: Thing) {
        self.needs.push(Need { thing, alone: true });
    }

    pub(super) fn shared(&mut self, thing: Thing) {
        self.needs.push(Need { thing, alone: false });
    }

    pub(super) fn touch(&mut self, id: Id, touch: Touch) {
        self.changes.push(Change::Touch(id, touch));
    }

    pub(super) fn no(&mut self, error: Errno) {
        self.errors.push(error);
    }

    /// The directory of a request on one of its names.
    pub(super) fn dir(&mut self, meta: &Meta, dir: Id, name: &[u8]) {
        if name.len() > NAME_MAX {
            self.no(Errno::NameTooLong);
        }
        match meta.nodes.get(&dir) {
            Some(node) if !node.is_dir() => self.no(Errno::NotDirectory),
            Some(node) if node.nlink == 0 => self.no(Errno::NotFound),
            Some(_) => {}
            None => self.no(Errno::NotFound),
        }
        self.shared(Thing::Entries(dir));
    }

    /// What a rule says when it gets to its end.
    pub(super) fn finish(mut self) -> Plan {
        if !self.errors.is_empty() {
            self.changes.clear();
            self.bytes.clear();
            self.makes = None;
        }
        self
    }
}
