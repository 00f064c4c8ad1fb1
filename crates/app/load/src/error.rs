//! Why a run did not come to its end.

use crate::options::OptionsError;
use braid_array::error::{AssembleError, ControlError, CreateError};
use braid_device::{IoError, OpenError};
use braid_nbd::client::ConnectError;
use braid_nbd::serve::ServeError;
use braid_shard::threads::StartError;

/// See the variants.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load cannot be run on any machine.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No shards.
    #[error("preparing the load: {0}")]
    Start(#[from] StartError),
    /// A member or the array did not open.
    #[error("preparing the load: {0}")]
    Open(#[from] OpenError),
    /// The array was not created.
    #[error("preparing the load: {0}")]
    Create(#[source] Box<CreateError>),
    /// The array was not started.
    #[error("preparing the load: {0}")]
    Assemble(#[source] Box<AssembleError>),
    /// A member was not failed or replaced.
    #[error("preparing the load: {0}")]
    Control(#[source] Box<ControlError>),
    /// No server.
    #[error("preparing the load over NBD: {0}")]
    Serve(#[from] ServeError),
    /// No connection.
    #[error("preparing the load over NBD: {0}")]
    Connect(#[from] ConnectError),
    /// No folder for the socket.
    #[error("making a folder for the socket of the load over NBD: {0}; is there room in TMPDIR?")]
    Socket(std::io::Error),
    /// A request failed.
    #[error("{contender}: a request of the load failed: {error}; the figures would mean nothing")]
    Io {
        /// What was being measured.
        contender: String,
        /// What the device said.
        error: IoError,
    },
    /// A shard has gone.
    #[error("{0}: a shard's thread has ended while the load ran; see what it printed before")]
    ShardGone(String),
    /// A rebuild did not end well.
    #[error("measuring the rebuild: it ended as {0}")]
    Rebuild(String),
    /// Another program that is measured beside the array.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What went wrong and what to do.
        why: String,
    },
}

impl From<CreateError> for LoadError {
    fn from(error: CreateError) -> LoadError {
        LoadError::Create(Box::new(error))
    }
}

impl From<AssembleError> for LoadError {
    fn from(error: AssembleError) -> LoadError {
        LoadError::Assemble(Box::new(error))
    }
}

impl From<ControlError> for LoadError {
    fn from(error: ControlError) -> LoadError {
        LoadError::Control(Box::new(error))
    }
}
