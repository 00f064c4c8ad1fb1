//! Members that are waited for, as far as the log has been told.
//!
//! Does not know why they are.

use crate::state::view::MemberNr;
use std::cell::{Cell, RefCell};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Awaited {
    /// The array cannot do without them.
    pub(super) members: RefCell<Vec<MemberNr>>,
    /// Members that do not answer are being looked at.
    pub(super) judging: Cell<bool>,
    /// Writes wait for space.
    pub(super) full: Cell<bool>,
}
