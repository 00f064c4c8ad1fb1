//! The doorbell of a shard: other threads ring it when they have left a message.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Wakes a shard that sleeps in its reactor.
pub struct Doorbell {
    sleeping: AtomicBool,
    event: Option<OwnedFd>,
}

impl Doorbell {
    pub(crate) fn new() -> Doorbell {
        // Without an eventfd (out of descriptors) the ring refuses to start; simulated shards
        // never sleep and need none.
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Doorbell { sleeping: AtomicBool::new(false), event }
    }

    /// The descriptor that becomes readable when the bell rings.
    pub fn event(&self) -> Option<&OwnedFd> {
        self.event.as_ref()
    }

    /// Wakes the shard if it is asleep, or about to be. The message must be visible before the call.
    pub fn ring(&self) {
        // Pairs with the fence in `going_to_sleep`: either the sleeper sees the message or the
        // sender sees the sleeper.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::AcqRel)
            && let Some(event) = &self.event
        {
            // The write fails only when the counter is full, and then the bell rings already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Announces that the shard is about to sleep. It must look for messages once more afterwards: a
    /// message sent before the announcement rang no bell.
    pub fn going_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the shard is awake: senders need not ring.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}
