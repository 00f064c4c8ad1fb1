//! The queues shared with the kernel. From Linux 6.1 on their entries have 128 bytes, which commands to drivers need.

use io_uring::squeue::{Entry, Entry128, Flags};
use io_uring::{IoUring, Parameters, Submitter};

/// Entries of the completion queue for each entry of the submission queue.
const COMPLETIONS: u32 = 8;

/// An encoded operation.
pub(super) enum Prepared {
    Plain(Entry),
    /// Only for queues that support commands.
    Command(Entry128),
}

impl Prepared {
    pub fn user_data(self, value: u64) -> Prepared {
        match self {
            Prepared::Plain(entry) => Prepared::Plain(entry.user_data(value)),
            Prepared::Command(entry) => Prepared::Command(entry.user_data(value)),
        }
    }

    /// Has a worker thread of the kernel start it.
    pub fn by_worker(self) -> Prepared {
        match self {
            Prepared::Plain(entry) => Prepared::Plain(entry.flags(Flags::ASYNC)),
            Prepared::Command(entry) => Prepared::Command(entry.flags(Flags::ASYNC)),
        }
    }
}

/// See the module's documentation.
pub(super) enum Queues {
    Long(IoUring<Entry128>),
    Short(IoUring),
}

impl Queues {
    /// Queues with room for `entries` submissions.
    pub fn new(entries: u32) -> std::io::Result<Queues> {
        let long = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(entries * COMPLETIONS)
            .build(entries);
        match long {
            Ok(long) => Ok(Queues::Long(long)),
            Err(_) => {
                let short = IoUring::builder().setup_cqsize(entries * COMPLETIONS).build(entries);
                short.map(Queues::Short)
            }
        }
    }

    /// True if [`Prepared::Command`] can be pushed.
    pub fn take_commands(&self) -> bool {
        matches!(self, Queues::Long(_))
    }

    /// Puts an entry into the submission queue; false when it is full.
    ///
    /// # Safety
    /// The memory that the entry points to must stay where it is until its completion has been seen.
    pub unsafe fn push(&mut self, entry: &Prepared) -> bool {
        // SAFETY: the caller's promise.
        let pushed = unsafe {
            match (self, entry) {
                (Queues::Long(queues), Prepared::Command(entry)) => queues.submission().push(entry),
                (Queues::Long(queues), Prepared::Plain(entry)) => {
                    queues.submission().push(&entry.clone().into())
                }
                (Queues::Short(queues), Prepared::Plain(entry)) => queues.submission().push(entry),
                // The ring refuses commands before they get here.
                (Queues::Short(_), Prepared::Command(_)) => Ok(()),
            }
        };
        pushed.is_ok()
    }

    /// Entries that the kernel has not accepted yet.
    pub fn unsubmitted(&mut self) -> usize {
        match self {
            Queues::Long(queues) => queues.submission().len(),
            Queues::Short(queues) => queues.submission().len(),
        }
    }

    /// True when the kernel has completions, or work that leads to some, that it delivers only when this thread enters it.
    pub fn holds_back(&mut self) -> bool {
        match self {
            Queues::Long(queues) => {
                let queue = queues.submission();
                queue.taskrun() || queue.cq_overflow()
            }
            Queues::Short(queues) => queues.submission().cq_overflow(),
        }
    }

    /// The features of the kernel's io_uring.
    pub fn parameters(&self) -> &Parameters {
        match self {
            Queues::Long(queues) => queues.params(),
            Queues::Short(queues) => queues.params(),
        }
    }

    /// System calls on the ring.
    pub fn submitter(&self) -> Submitter<'_> {
        match self {
            Queues::Long(queues) => queues.submitter(),
            Queues::Short(queues) => queues.submitter(),
        }
    }

    /// Appends the completions to `into`: `user_data` and result of each operation.
    pub fn completed(&mut self, into: &mut Vec<(u64, i32)>) {
        let pair = |entry: io_uring::cqueue::Entry| (entry.user_data(), entry.result());
        match self {
            Queues::Long(queues) => into.extend(queues.completion().map(pair)),
            Queues::Short(queues) => into.extend(queues.completion().map(pair)),
        }
    }
}
