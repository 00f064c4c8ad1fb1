//! The way from an engine to the array's control on the home shard, which alone decides who is a member: news that it is
//! told, and questions that it answers.
//!
//! Control stands above the engines. They know it by [`Decides`], and it is given to them when they start.

use crate::consistency::journal::JournalBatch;
use crate::consistency::ppl::{BatchNr, LogBatch};
use crate::metadata::bitmap::BitmapNr;
use crate::state::ArrayId;
use crate::state::reports::Report;
use crate::state::view::MemberNr;
use braid_device::IoError;
use braid_layout::Slot;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::ops::Range;

/// News for control. Nothing comes back.
#[derive(Debug)]
pub(crate) enum News {
    /// The member gave an error for which it is about to be failed ([`Question::Fail`] follows): until that is recorded
    /// nothing that it makes durable counts.
    Suspect(MemberNr, IoError, Report),
    /// These component bytes of the member were bad, and have been written since.
    GoodAgain(MemberNr, Range<u64>),
    /// So many sectors of the member could not be read, and can be since they were written again.
    Corrected(MemberNr, u32),
    /// A request to a member is under way for longer than it may be.
    Overdue,
    /// Writes to a member have begun to wait for space, or do so no more.
    Space,
    /// An array above is being stopped and waits for this one.
    Hurry,
    /// All writes of a batch that the partial parity log has ([`Question::Log`]) have ended.
    LogEnded {
        /// The slot whose member has it.
        slot: Slot,
        /// The shard whose batch it is.
        shard: u16,
        nr: BatchNr,
    },
    /// All writes of a batch that the journal has ([`Question::Journal`]) have ended.
    JournalEnded {
        /// The shard whose batch it is.
        shard: u16,
        nr: BatchNr,
    },
}

/// A question that control decides, and records, before the engine goes on. The answer is yes or no.
#[derive(Debug)]
pub(crate) enum Question {
    /// May it write? Yes: the superblocks say "active", and all engines know.
    Activate,
    /// The member gave this error, and is a [suspect](News::Suspect) already. Yes: no shard uses it any more and the
    /// surviving superblocks say so. No: the array cannot do without it.
    Fail(MemberNr, IoError),
    /// Are the failures of all suspects recorded? Yes: the surviving superblocks and the views of all shards say so.
    Record,
    /// The member gave this error to a write, and is to fail fast. Yes: it has failed. No: it is to be treated like any
    /// other, because the data depends on it.
    FailFast(MemberNr, IoError),
    /// The member could not be read, and what was wanted was had from another. Yes: it has failed for it, so there is
    /// nothing to correct.
    ReadError(MemberNr, IoError),
    /// See [`BadBytes`]. Yes: its log says so and all shards know.
    RecordBad(MemberNr, BadBytes),
    /// May it write under these bits of that bitmap? Yes: they are durable on all members.
    Arm(BitmapNr, Vec<u32>),
    /// May it carry out the writes of this batch? Yes: their partial parity is durable, and stays so until
    /// [`News::LogEnded`].
    Log(LogBatch),
    /// May it carry out the writes of this batch? Yes: all of them are durable in the journal, and stay so until
    /// [`News::JournalEnded`].
    Journal(JournalBatch),
}

/// Component bytes that a member cannot hold.
#[derive(Debug)]
pub(crate) struct BadBytes {
    /// Component bytes.
    pub(crate) bytes: Vec<Range<u64>>,
    /// The error that the member gave.
    pub(crate) error: IoError,
    /// When they cannot be recorded, the member fails.
    pub(crate) or_fail: bool,
}

/// The outcome of a flush of all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Why it does not count.
    pub(crate) error: Option<IoError>,
    /// Times that acknowledged writes of this array have been lost so far.
    pub(crate) losses: u64,
}

/// Calls back with the answer to a question, from the home shard.
pub(crate) type Answer = Box<dyn FnOnce(bool) + Send>;
/// Calls back with what became of a flush, from the home shard.
pub(crate) type FlushAnswer = Box<dyn FnOnce(Flushed) + Send>;

/// The control of any array, as its engines see it. Called on the home shard.
pub(crate) trait Decides: Send + Sync {
    /// An engine of array `id` lets it know.
    fn tell(&self, shard: &Shard, id: ArrayId, news: News);

    /// An engine of array `id` asks. `answer` is called in any case, with false when the array is gone.
    fn ask(&self, shard: &Shard, id: ArrayId, question: Question, answer: Answer);

    /// A client of some shard wants array `id` to be flushed; `answer` is called when that has been tried and what
    /// failed is recorded.
    fn flush(&self, shard: &Shard, id: ArrayId, answer: FlushAnswer);
}

/// The way to the control of one array, from any shard.
#[derive(Clone)]
pub(crate) struct Home {
    remote: Remote,
    control: &'static dyn Decides,
    id: ArrayId,
}

impl Home {
    /// The control of array `id` on the shard of `remote`.
    pub(crate) fn new(remote: Remote, control: &'static dyn Decides, id: ArrayId) -> Home {
        Home { remote, control, id }
    }

    /// See [`Decides::tell`].
    pub(crate) fn tell(&self, news: News) {
        let (control, id) = (self.control, self.id);
        self.remote.run(move |shard| control.tell(shard, id, news));
    }

    /// See [`Decides::ask`].
    pub(crate) fn ask(&self, question: Question, answer: Answer) {
        let (control, id) = (self.control, self.id);
        self.remote.run(move |shard| control.ask(shard, id, question, answer));
    }

    /// See [`Decides::flush`].
    pub(crate) fn flush(&self, answer: FlushAnswer) {
        let (control, id) = (self.control, self.id);
        self.remote.run(move |shard| control.flush(shard, id, answer));
    }
}
