//! The queues shared with the kernel. Those of a kernel that can (Linux 6.1) have entries that are long enough for
//! commands to drivers.

use io_uring::squeue::{Entry, Entry128, Flags};
use io_uring::{IoUring, Parameters, Submitter};

/// Room for completions, for each entry of the submission queue.
const COMPLETIONS: u32 = 8;

/// An operation in the kernel's form.
pub(super) enum Prepared {
    Plain(Entry),
    /// Only for queues that take commands.
    Command(Entry128),
}

impl Prepared {
    pub fn user_data(self, value: u64) -> Prepared {
        match self {
            Prepared::Plain(entry) => Prepared::Plain(entry.user_data(value)),
            Prepared::Command(entry) => Prepared::Command(entry.user_data(value)),
        }
    }

    /// Begun by a thread of the kernel's.
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
    /// With `entries` places for submissions.
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

    /// True if [`Prepared::Command`] has room.
    pub fn take_commands(&self) -> bool {
        matches!(self, Queues::Long(_))
    }

    /// Puts an entry into the submission queue; false when it is full.
    ///
    /// # Safety
    /// The memory that the entry points to stays as it is until its completion was seen.
    pub unsafe fn push(&mut self, entry: &Prepared) -> bool {
        // SAFETY: the caller's promise.
        let pushed = unsafe {
            match (self, entry) {
                (Queues::Long(queues), Prepared::Command(entry)) => queues.submission().push(entry),
                (Queues::Long(queues), Prepared::Plain(entry)) => {
                    queues.submission().push(&entry.clone().into())
                }
                (Queues::Short(queues), Prepared::Plain(entry)) => queues.submission().push(entry),
                // Refused before it comes here.
                (Queues::Short(_), Prepared::Command(_)) => Ok(()),
            }
        };
        pushed.is_ok()
    }

    /// Entries that the kernel has not taken yet.
    pub fn unsubmitted(&mut self) -> usize {
        match self {
            Queues::Long(queues) => queues.submission().len(),
            Queues::Short(queues) => queues.submission().len(),
        }
    }

    /// The kernel has completions, or work that leads to some, that wait for this thread to enter it.
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

    /// Takes what has completed: numbers of operations and results.
    pub fn completed(&mut self, into: &mut Vec<(u64, i32)>) {
        let pair = |entry: io_uring::cqueue::Entry| (entry.user_data(), entry.result());
        match self {
            Queues::Long(queues) => into.extend(queues.completion().map(pair)),
            Queues::Short(queues) => into.extend(queues.completion().map(pair)),
        }
    }
}
