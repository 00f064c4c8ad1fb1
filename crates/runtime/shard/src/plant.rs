//! Bugs planted on purpose, which show that the simulator finds bugs of their kind.
//!
//! The code around a planted bug asks [`planted`] for it by name. Without the feature `plants` the answer is a
//! constant false and the bug is not compiled. With it, [`select`] switches on one bug at a time for a thread; the
//! simulator carries out each run on one thread, so runs with different bugs do not affect each other.
//!
//! The table of names belongs to the simulator.

#[cfg(feature = "plants")]
mod selected {
    use std::cell::Cell;

    std::thread_local! {
        static SELECTED: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<bool> = const { Cell::new(false) };
    }

    /// True when this thread has selected the bug `name`.
    #[inline]
    pub fn planted(name: &'static str) -> bool {
        let on = SELECTED.get() == Some(name);
        if on {
            REACHED.set(true);
        }
        on
    }

    /// Switches on the bug `name` on this thread, or none, from now on.
    pub fn select(name: Option<&'static str>) {
        SELECTED.set(name);
        REACHED.set(false);
    }

    /// True when the code with the selected bug has run since it was selected.
    pub fn reached() -> bool {
        REACHED.get()
    }
}

#[cfg(feature = "plants")]
pub use selected::{planted, reached, select};

/// False: no bugs are planted in this build.
#[cfg(not(feature = "plants"))]
#[inline(always)]
pub const fn planted(_: &'static str) -> bool {
    false
}

/// Without effect: no bugs can be planted in this build.
#[cfg(not(feature = "plants"))]
pub const fn select(_: Option<&'static str>) {}

/// False: no bugs are planted in this build.
#[cfg(not(feature = "plants"))]
pub const fn reached() -> bool {
    false
}
