//! Which step of a use is under way, for the message about what goes wrong in it.

use std::cell::RefCell;

thread_local! {
    /// What is done now: what goes wrong can be told where it came from.
    static DOING: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes what is done now.
pub fn doing(what: impl Into<String>) {
    DOING.set(what.into());
}

/// The step that was noted last on this thread.
pub fn done_last() -> String {
    DOING.with_borrow(String::clone)
}
