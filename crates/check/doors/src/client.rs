//! A client of a door, whatever the protocol.

use std::time::{Duration, Instant};

/// The target as its server describes it to a client. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Size of the target.
    pub size: u64,
    /// Offsets and lengths are multiples of this.
    pub block: u64,
    /// The largest read or write.
    pub largest: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Discards are offered.
    pub discards: bool,
    /// Write-zeroes is offered.
    pub zeroes: bool,
}

/// A request. Offsets and lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields say what they are.
pub enum Command {
    /// Reads `length` bytes.
    Read { offset: u64, length: u64 },
    /// Writes; with `fua` it is durable when it is answered. A protocol without that flushes after it.
    Write { offset: u64, data: Vec<u8>, fua: bool },
    /// Makes durable what was answered.
    Flush,
    /// Gives `length` bytes up.
    Discard { offset: u64, length: u64 },
    /// Makes `length` bytes read as zero.
    Zero { offset: u64, length: u64 },
}

/// A request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device could not do it.
    Io,
    /// It was refused: bounds, alignment, rights. A protocol that knows one error only says `Io` here, too.
    Refused,
}

/// The answer to a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request with this tag has ended; a read gives its data.
    Done(u32, Result<Vec<u8>, Failure>),
    /// Nothing came in time.
    Nothing,
    /// The server has ended the connection.
    Disconnected,
}

/// A client that is connected to a target. Dropping it cuts the connection, whatever is under way.
pub trait Client: Send {
    /// The target as the server describes it now.
    fn properties(&mut self) -> Properties;

    /// Sends a request, without waiting for its answer. At most [`DEPTH`] are under way.
    fn submit(&mut self, tag: u32, command: Command);

    /// The bytes that [`submit`](Client::submit) would send for a write of `data`; `None` where a request is more than bytes in a socket.
    fn words_of_write(&mut self, _tag: u32, _offset: u64, _data: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Sends some of those bytes.
    fn say(&mut self, _words: &[u8]) {}

    /// Waits for one answer, in whatever order they come.
    fn answer(&mut self, within: Duration) -> Answer;
}

/// Requests that a client of any door can have under way.
pub const DEPTH: usize = 32;
/// The time that an answer may take before it counts as none. The machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl dyn Client + '_ {
    /// One request and its answer.
    ///
    /// # Errors
    /// The server's.
    ///
    /// # Panics
    /// Without an answer.
    pub fn ask(&mut self, command: Command) -> Result<Vec<u8>, Failure> {
        self.submit(u32::MAX, command);
        match self.answer(PATIENCE) {
            Answer::Done(u32::MAX, result) => result,
            other => panic!("no answer but {other:?}"),
        }
    }

    /// Reads.
    ///
    /// # Panics
    /// When it fails.
    pub fn read(&mut self, offset: u64, length: u64) -> Vec<u8> {
        let data = self.ask(Command::Read { offset, length }).expect("a read");
        assert_eq!(data.len() as u64, length);
        data
    }

    /// Writes `length` bytes of `byte`.
    ///
    /// # Panics
    /// When it fails.
    pub fn fill(&mut self, offset: u64, length: u64, byte: u8) {
        let data = vec![byte; length as usize];
        self.ask(Command::Write { offset, data, fua: false }).expect("a write");
    }

    /// Makes what was answered durable.
    ///
    /// # Panics
    /// When it fails.
    pub fn flush(&mut self) {
        self.ask(Command::Flush).expect("a flush");
    }

    /// All commands, as many at a time as may be; their results in order.
    ///
    /// # Panics
    /// When an answer is missing, or comes twice.
    pub fn all(&mut self, commands: Vec<Command>) -> Vec<Result<Vec<u8>, Failure>> {
        let mut results: Vec<Option<Result<Vec<u8>, Failure>>> = vec![None; commands.len()];
        let mut under_way = 0;
        let mut next = |client: &mut dyn Client| match client.answer(PATIENCE) {
            Answer::Done(tag, result) => {
                let place = results.get_mut(tag as usize).expect("a tag of ours");
                assert!(place.replace(result).is_none(), "answered twice");
            }
            other => panic!("no answer but {other:?}"),
        };
        for (tag, command) in commands.into_iter().enumerate() {
            if under_way == DEPTH {
                next(self);
                under_way -= 1;
            }
            self.submit(tag as u32, command);
            under_way += 1;
        }
        (0..under_way).for_each(|_| next(self));
        results.into_iter().map(|result| result.expect("all were answered")).collect()
    }

    /// Waits until the server has ended the connection.
    pub fn is_disconnected(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.answer(Duration::from_millis(100)) == Answer::Disconnected {
                return true;
            }
        }
        false
    }
}
