//! The end of a request: once, with a result and its buffers.

use crate::error::{IoError, IoErrorKind};
use crate::request::Op;
use std::rc::Rc;

/// The end of a request.
#[derive(Debug)]
pub struct Outcome {
    /// Done, or why not.
    pub result: Result<(), IoError>,
    /// The operation back, with its buffers: filled, if it was a read that succeeded.
    pub op: Op,
}

impl Outcome {
    /// A success.
    pub fn ok(op: Op) -> Outcome {
        Outcome { result: Ok(()), op }
    }

    /// A failure.
    pub fn failed(error: IoError, op: Op) -> Outcome {
        Outcome { result: Err(error), op }
    }
}

/// Gets outcomes. Must not submit requests from within `complete`: it wakes somebody who does.
pub trait Sink {
    /// `token` is the one that the [`Completion`] was made with.
    fn complete(&self, token: u64, outcome: Outcome);
}

/// The obligation to complete one request. Dropped without that, it completes with
/// [`IoErrorKind::Gone`], so nobody waits for ever.
pub struct Completion {
    sink: Option<Rc<dyn Sink>>,
    token: u64,
}

impl Completion {
    /// Completes into `sink` under `token`.
    pub fn new(sink: Rc<dyn Sink>, token: u64) -> Completion {
        Completion { sink: Some(sink), token }
    }

    /// Ends the request.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(sink) = self.sink.take() {
            sink.complete(self.token, outcome);
        }
    }

    /// Ends the request with a result.
    pub fn finish(self, result: Result<(), IoError>, op: Op) {
        self.complete(Outcome { result, op });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            let error = IoError::new(IoErrorKind::Gone);
            sink.complete(self.token, Outcome::failed(error, Op::Flush));
        }
    }
}
