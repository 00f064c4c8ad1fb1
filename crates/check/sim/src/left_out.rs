//! Members that people left out of an assembly.

use crate::member::Member;
use std::rc::Rc;

/// A member that an assembly was not given because its metadata is damaged.
pub(crate) struct LeftOut {
    pub(crate) member: Rc<Member>,
    /// Writes that it had taken by then.
    pub(crate) writes: u32,
}
