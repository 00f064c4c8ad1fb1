//! Room that is made on the bricks in the background, as far as a search for room has to know of it.

/// The job that is under way, as far as a search for room has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// There is none.
    None,
    /// One that puts free space together.
    Defragment,
    /// Another.
    Other,
}

/// Makes room on the bricks in the background.
pub trait Relief {
    /// Space is being given back.
    fn is_freeing(&self) -> bool;

    /// The job that is under way.
    fn work(&self) -> Work;

    /// Begins to put free space together.
    fn defragment(&self);
}
