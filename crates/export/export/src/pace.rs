//! The pace of handshakes: a shard gives clients that have not shown yet who they are a part of its time, not all of it.
//!
//! A handshake of TLS, or of a host that proves its name, costs the server a signature or a key exchange, some milliseconds of
//! computing at most, and costs a client that asks for thousands of them next to nothing. After each piece of one the shard leaves three times as long to others.

use std::cell::Cell;

use braid_shard::{Nanos, Shard};

/// The part of the time that others have, for each part that handshakes take.
const OTHERS: Nanos = 3;

/// The pace on one shard.
#[derive(Default)]
pub struct Pace {
    free_at: Cell<Nanos>,
}

impl Pace {
    /// The time from now on that others have; zero when a handshake may compute.
    fn wait(&self, now: Nanos) -> Nanos {
        self.free_at.get().saturating_sub(now)
    }

    fn took(&self, began: Nanos, ended: Nanos) {
        let took = ended.saturating_sub(began);
        self.free_at.set(ended.saturating_add(took.saturating_mul(OTHERS)));
    }

    /// Does a piece of a handshake when it is its turn on this shard.
    pub async fn compute<T>(shard: &Shard, piece: impl FnOnce() -> T) -> T {
        let pace = shard.local::<Pace>();
        loop {
            match pace.wait(shard.now()) {
                0 => break,
                // Several may wait: one goes first, and the others see that when they wake.
                wait => shard.sleep(wait).await,
            }
        }
        let began = shard.now();
        let done = piece();
        pace.took(began, shard.now());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_leave_three_quarters_of_the_time_to_others() {
        let pace = Pace::default();
        let (mut now, mut computed) = (1_000, 0);
        for took in [500_000, 20_000, 0, 800_000] {
            now += pace.wait(now);
            pace.took(now, now + took);
            now += took;
            computed += took;
        }
        now += pace.wait(now);
        assert_eq!(now - 1_000, 4 * computed);
        assert_eq!(pace.wait(now + 1), 0, "time that nobody wanted is not owed");
    }
}
