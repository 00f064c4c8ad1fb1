//! Request after request on one connection.

use super::reply::{PLAIN, Reply};
use super::request::{Came, Incoming, Request};
use super::stream::Stream;
use std::time::Duration;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A request must have come, and an answer have been taken, within this.
    pub patience: Duration,
    /// Bytes of a request's body at most.
    pub body_max: usize,
}

/// Why no more requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer is gone or says nothing, or was told that this is all.
    Closed,
    /// The peer sends lines of JSON without HTTP around them, and waits for such a line.
    SpokeLines,
}

/// Answers requests with `answer` until the peer has gone. A request that cannot be read is answered by `wrong`.
pub fn converse(
    stream: &mut dyn Stream,
    limits: Limits,
    answer: &mut dyn FnMut(&Request, &mut Reply<'_>),
    wrong: &dyn Fn(u16, &str, &mut Reply<'_>),
) -> Ended {
    let mut incoming = Incoming::default();
    loop {
        // A peer that is slow or gone has no use for the error.
        let Ok(came) = incoming.next(stream, limits.body_max, limits.patience) else {
            return Ended::Closed;
        };
        match came {
            Came::End => return Ended::Closed,
            Came::Line => return Ended::SpokeLines,
            Came::Wrong(status, why) => {
                turn_away(stream, limits, |reply| wrong(status, why, reply));
                return Ended::Closed;
            }
            Came::Request(request) => {
                let mut reply =
                    Reply::new(stream, (request.method == "HEAD", request.keep), limits.patience);
                answer(&request, &mut reply);
                if !reply.end() {
                    return Ended::Closed;
                }
            }
        }
    }
}

/// Gives the one answer of a connection that ends, to a request that was not read or not understood.
pub fn turn_away(stream: &mut dyn Stream, limits: Limits, say: impl FnOnce(&mut Reply<'_>)) {
    let mut reply = Reply::new(stream, (false, false), limits.patience);
    say(&mut reply);
    reply.end();
}

/// Says in a sentence why a request could not be read.
pub fn plainly(status: u16, why: &str, reply: &mut Reply<'_>) {
    // The peer may be gone.
    let _ = reply.whole(status, PLAIN, format!("{why}\n").as_bytes());
}
