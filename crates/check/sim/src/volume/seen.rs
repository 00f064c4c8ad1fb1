//! What stands in a volume after a crash, as a walk over it sees it.

use braid_filesystem::{Attr, FileFlags, Ino};
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
