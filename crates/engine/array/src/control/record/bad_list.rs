//! The bad blocks of one member as control keeps them: what is bad, and what its log says.

use crate::state::bad_blocks::BadBlocks;

/// The bad blocks of one member, in sectors of the member.
#[derive(Default)]
pub(crate) struct Bad {
    /// Those that are bad.
    pub(crate) now: BadBlocks,
    /// Those that its log lists.
    pub(crate) logged: BadBlocks,
    /// A list that fits the log and has all that is bad: a hole in a range can take more entries than
    /// there are.
    pub(crate) fits: BadBlocks,
}

impl Bad {
    /// As the log says.
    pub(crate) fn logged(list: BadBlocks) -> Bad {
        Bad { now: list.clone(), logged: list.clone(), fits: list }
    }
}
