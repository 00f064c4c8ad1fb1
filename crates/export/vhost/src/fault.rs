//! Mapped files that a client may make shorter: to touch what is gone does not end the process.
//!
//! The kernel answers an access beyond the end of a mapped file with SIGBUS, which ends a process that says nothing else. The
//! handler here puts zeroes in place of a mapping that is [guarded](Guard), and marks it; the access goes on, and whoever
//! has mapped it looks at the mark. SIGBUS anywhere else is answered as before.
//!
//! Invariant: a range is guarded only while it is mapped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that can be guarded at a time, in the whole process: as many clients as there may be have 512 each of eight.
const GUARDS_MAX: usize = 4096;

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    /// 0: nothing is guarded.
    end: AtomicUsize,
    broken: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; GUARDS_MAX];

/// The action at SIGBUS before; `None` when that could not be changed.
static BEFORE: OnceLock<Option<Before>> = OnceLock::new();

struct Before(libc::sigaction);

/// A mapping that is guarded, until this is dropped, which must be before it is unmapped.
pub struct Guard(&'static Slot);

impl Guard {
    /// Guards the mapping of `bytes` bytes from `start` on; `None` when there are too many, or the system has no handler
    /// for it.
    pub fn new(start: *mut u8, bytes: usize) -> Option<Guard> {
        BEFORE.get_or_init(install).as_ref()?;
        let free = |slot: &&Slot| {
            let taken =
                slot.taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        let slot = SLOTS.iter().find(free)?;
        slot.broken.store(false, Ordering::SeqCst);
        slot.start.store(start as usize, Ordering::SeqCst);
        slot.end.store(start as usize + bytes, Ordering::SeqCst);
        Some(Guard(slot))
    }

    /// Some of it was gone when it was touched: since then all of it is zeroes of this process.
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::SeqCst);
        self.0.start.store(0, Ordering::SeqCst);
        self.0.taken.store(false, Ordering::SeqCst);
    }
}

fn install() -> Option<Before> {
    // SAFETY: sigaction is plain data for which all zero bytes are valid: no flags, an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigbus as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both structures outlive the call, and the handler has the form that SA_SIGINFO announces.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &action, &mut before) };
    (set == 0).then_some(Before(before))
}

/// Calls only what a handler may call: atomics, mmap, sigaction.
extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo that is valid during the call, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(Ordering::SeqCst), slot.end.load(Ordering::SeqCst));
        if (start..end).contains(&address) && put_zeroes(start, end - start) {
            slot.broken.store(true, Ordering::SeqCst);
            return;
        }
    }
    if let Some(Some(Before(before))) = BEFORE.get() {
        // SAFETY: the structure is what sigaction gave. The access is made once more when this returns, and is answered
        // as it would have been.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

fn put_zeroes(start: usize, bytes: usize) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: errno is the thread's own, and is as before when the interrupted code goes on. The range is a mapping of
    // its owner's alone, which takes any content there at any time, as the client may change it; it stays mapped with the
    // same rights.
    unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(start as *mut libc::c_void, bytes, rights, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}
