//! Members by their index, and the device of the write journal, whose index is behind theirs.

use super::World;
use crate::member::Member;
use std::rc::Rc;

impl World {
    /// The member with this index.
    pub fn member(&self, index: usize) -> Rc<Member> {
        let (members, journal) = (self.members.borrow(), self.journal.borrow());
        match (members.get(index), journal.as_ref()) {
            (Some(member), _) => Rc::clone(member),
            (None, Some(journal)) => Rc::clone(journal),
            (None, None) => unreachable!("no member has the index {index}"),
        }
    }

    /// The device of the write journal.
    pub fn is_journal(&self, member: &Member) -> bool {
        self.journal.borrow().as_ref().is_some_and(|own| own.kind.index == member.kind.index)
    }
}
