//! What stands in a volume after a crash, as a walk over it sees it.

use braid_filesystem::{Attr, FileFlags, Ino};
use braid_format::volume::snapshot::file_of;
use std::collections::BTreeMap;

/// Number and generation of a file, as the file system names it.
pub type Number = (Ino, u64);

/// What stands in a volume after a crash.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// By directory's number and name.
    pub names: Vec<(Number, Vec<u8>, Number)>,
    /// By number.
    pub attrs: BTreeMap<Number, Attr>,
    /// What symbolic links point to.
    pub targets: BTreeMap<Number, Vec<u8>>,
    /// The attributes of chattr(1), of those that have some, where they were asked for.
    pub flags: BTreeMap<Number, FileFlags>,
    /// Extended attributes.
    pub xattrs: BTreeMap<(Number, Vec<u8>), Vec<u8>>,
}

impl Observed {
    /// The same with the numbers that files have outside of a snapshot.
    pub fn outside(self) -> Observed {
        let of = |(ino, generation): Number| (file_of(ino), generation);
        let attr = |attr: Attr| Attr { ino: file_of(attr.ino), ..attr };
        Observed {
            names: self.names.into_iter().map(|(dir, name, id)| (of(dir), name, of(id))).collect(),
            attrs: self.attrs.into_iter().map(|(id, seen)| (of(id), attr(seen))).collect(),
            targets: self.targets.into_iter().map(|(id, target)| (of(id), target)).collect(),
            flags: self.flags.into_iter().map(|(id, flags)| (of(id), flags)).collect(),
            xattrs: self
                .xattrs
                .into_iter()
                .map(|((id, name), value)| ((of(id), name), value))
                .collect(),
        }
    }
}
