//! The identity of a task, noted by whatever wakes it later.

/// Names a slot of a slab: a leaf future notes it and is woken by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub(crate) group: u32,
    pub(crate) index: u32,
}

impl TaskId {
    /// No task: waking it does nothing.
    pub const NONE: TaskId = TaskId { group: u32::MAX, index: u32::MAX };
}
