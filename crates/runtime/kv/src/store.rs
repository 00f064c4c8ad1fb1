//! The interface of a store: keys and values, commits, errors.

use braid_mirror::MirrorError;
use std::future::Future;
use std::pin::Pin;

/// A key and its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An answer that comes later, on the shard that asked.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// A commit that is being prepared. It writes nothing to a device before [`go`](Begun::go) is called.
pub struct Begun {
    /// Lets the commit write. If it is dropped instead, the commit fails, and the store with it.
    pub go: Box<dyn FnOnce()>,
    /// The answer, like that of [`Store::commit`].
    pub done: Answer<()>,
}

/// A request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store has no room for the changes. It has changed nothing and goes on.
    #[error(
        "the metadata region is full: remove files, or make it larger: braid volume grow-metadata"
    )]
    NoSpace,
    /// The data read is not the data written, and there is no intact copy. Nothing was changed.
    #[error("the metadata is damaged: {0}")]
    Damaged(String),
    /// The store does not work any more; opening it again may help.
    #[error("the metadata store failed: {0}")]
    Failed(String),
}

impl From<MirrorError> for StoreError {
    fn from(error: MirrorError) -> StoreError {
        match error {
            MirrorError::Damaged(why) => StoreError::Damaged(why),
            MirrorError::Failed(why) => StoreError::Failed(why),
        }
    }
}

/// The capacity of a store and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes in use. Once these are all, a commit that makes the store larger may be refused; only one that makes it
    /// smaller is sure to succeed.
    pub used: u64,
    /// Changes that one commit may have. One with more may be refused for want of room.
    pub changes: u64,
}

/// Keys and values, ordered by key as bytes.
pub trait Store {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// The first `limit` pairs with keys from `from` on, before `to`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Answer<Vec<Pair>>;

    /// Makes all changes, or none, and answers when they are durable. Each key must occur at most once. Requests made
    /// before this one see the previous state, later ones the new state.
    fn commit(&self, changes: Vec<Change>) -> Answer<()>;

    /// Begins a commit while the data that it depends on is still being made durable. A store that could not prepare
    /// anything yet returns the changes; then [`commit`](Store::commit) is just as fast.
    ///
    /// # Errors
    /// Returns the changes.
    fn begin_commit(&self, changes: Vec<Change>) -> Result<Begun, Vec<Change>> {
        Err(changes)
    }

    /// The capacity and its use.
    fn space(&self) -> StoreSpace;
}
