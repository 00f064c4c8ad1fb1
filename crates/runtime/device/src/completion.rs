//! The completion of a request: exactly once, with a result and its buffers.

use crate::error::{IoError, IoErrorKind};
use crate::request::Op;
use std::rc::Rc;

/// The outcome of a request.
#[derive(Debug)]
pub struct Outcome {
    /// Success, or the error.
    pub result: Result<(), IoError>,
    /// The operation with its buffers, which a successful read has filled.
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

/// Receives outcomes. `complete` must not submit requests; it should wake a task that does.
pub trait Sink {
    /// Takes an outcome. `token` is that of the [`Completion`].
    fn complete(&self, token: u64, outcome: Outcome);
}

/// The obligation to complete one request. If it is dropped the request completes with
/// [`IoErrorKind::Gone`], so that nobody waits for ever.
pub struct Completion {
    sink: Option<Rc<dyn Sink>>,
    token: u64,
}

impl Completion {
    /// Completes into `sink` under `token`.
    #[inline]
    pub fn new(sink: Rc<dyn Sink>, token: u64) -> Completion {
        Completion { sink: Some(sink), token }
    }

    /// Ends the request.
    #[inline(always)]
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(sink) = self.sink.take() {
            sink.complete(self.token, outcome);
        }
    }

    /// The receiver of the answer, and its token: from here on the caller has the obligation.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<(Rc<dyn Sink>, u64)> {
        self.sink.take().map(|sink| (sink, self.token))
    }

    /// Ends the request with a result.
    #[inline(always)]
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
