//! A number by which the owner of something tells other shards that it changes.
//!
//! The owner changes the number *before* it changes anything that others may have been told of, or gives a place away that
//! they may be looking at. Whoever was told notes the number with it, uses what it was told, and looks at the number again
//! afterwards: if it is the same, what was used was right at that moment. Nobody has to be reached before a change, and
//! nobody waits.
//!
//! That holds for bytes of a device, too, with the order of memory that a seqlock has. Let a reader have seen, in what a
//! device gave it, anything of a write that the owner submitted after [`Version::changes`]. The device (a system call, or memory that
//! is copied by atomic accesses) has ordered that write before that read. So the owner's fence came before the write, and
//! the write before the reader's fence in [`Seen::is_current`]: the reader's look at the number comes after the owner's change of it
//! and finds another one. The other way round: a reader that begins after a change was acknowledged, to anybody, has the
//! acknowledgement's order behind it, and sees the change before it reads.

use crate::plant::planted;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of something that is no more.
const GONE: u64 = u64::MAX;

/// The owner's side. Costs nothing until somebody is told of what it is about.
#[derive(Default)]
pub struct Version(OnceCell<Arc<AtomicU64>>);

/// The side of whoever was told.
#[derive(Clone, Debug)]
pub struct Seen {
    now: Arc<AtomicU64>,
    was: u64,
}

impl Version {
    /// A change begins of what this is about.
    #[inline]
    pub fn changes(&self) {
        if let Some(now) = self.0.get()
            && !planted("lease-outlives-change")
        {
            // Only the owner's thread changes it.
            now.store(now.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// The number as it is, for somebody who is told now.
    pub fn seen(&self) -> Seen {
        let now = Arc::clone(self.0.get_or_init(Arc::default));
        let was = now.load(Ordering::Relaxed);
        Seen { now, was }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        if let Some(now) = self.0.get() {
            now.store(GONE, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }
}

impl Seen {
    /// The number that was seen.
    pub fn number(&self) -> u64 {
        self.was
    }

    /// Nothing has changed since.
    #[inline]
    pub fn is_current(&self) -> bool {
        // Reads before this come before that of the number, and reads after it come after.
        fence(Ordering::SeqCst);
        self.now.load(Ordering::Acquire) == self.was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::SharedMemory;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_change_and_the_end_are_seen_by_whoever_was_told_before() {
        let version = Version::default();
        version.changes();
        let first = version.seen();
        assert!(first.is_current());
        version.changes();
        let second = version.seen();
        assert!(!first.is_current() && second.is_current());
        drop(version);
        assert!(!second.is_current());
    }

    /// A reader on another thread never takes bytes for good that were written after it was told.
    #[test]
    fn what_was_written_after_the_change_is_never_taken_for_what_was_told() {
        const LEN: usize = 512;
        let memory = SharedMemory::new(LEN);
        let version = Version::default();
        let told = std::sync::Mutex::new((0u8, version.seen()));
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let mut good = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let (expected, seen) = told.lock().unwrap().clone();
                    let mut bytes = [0; LEN];
                    memory.read(0, &mut bytes);
                    if seen.is_current() {
                        assert_eq!(bytes, [expected; LEN]);
                        good += 1;
                    }
                }
                good
            });
            for round in 0..20_000u32 {
                let byte = round as u8;
                version.changes();
                memory.write(0, &[byte; LEN]);
                *told.lock().unwrap() = (byte, version.seen());
                std::hint::spin_loop();
            }
            stop.store(true, Ordering::Relaxed);
            let _ = reader.join().unwrap();
        });
    }
}
