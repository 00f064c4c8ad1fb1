//! The number of moves in flight, and their speed.
//!
//! While others use the volume, as many as keep a brick busy that answers soon, and no more: what waits in a brick's queue
//! only makes others wait. When requests of files take longer than the target, half as many, again and again; when
//! they do not, a few more. While there are none, more and more, since a brick may answer late and be quick all the same (one
//! over a network, or that is held to a rate): what it is to do must be there before the answers come. When nobody has asked for
//! anything for a while, or since a job began, as many as there is memory for.

use braid_shard::Nanos;
use braid_shard::version::Version;
use std::cell::Cell;

/// Moves under way when nobody waits for anything else, or a brick has heads: neighbours among so many become large
/// requests, which cost few seeks.
const MOVES_MAX: u32 = 64;
/// The same for bricks without heads, while there are requests of files.
const MOVES_MAX_SSD: u32 = 16;
/// Moves under way when nobody has asked for anything for a while.
const MOVES_UNUSED: u32 = 256;
/// Nanoseconds without a request after which nobody uses the volume.
const UNUSED_NANOS: Nanos = 1_000_000_000;
/// The same when a job begins, which did not see requests before: whoever uses files now has asked for something by then.
pub const FIRST_LOOK_NANOS: Nanos = 10_000_000;
/// Bytes under way, at most.
const BYTES_MAX: u64 = 32 << 20;
/// The interval at which the number of moves is adapted.
const INTERVAL_NANOS: Nanos = 50_000_000;
/// Nanoseconds without a job after which nobody needs to see how long requests of files take.
const QUIET_NANOS: Nanos = 1_000_000_000;
/// The longest sleep of a job that waits for its speed, so that it sees a pause or a new speed.
pub const STEP_NANOS: Nanos = 50_000_000;
/// Latency of a request of a file that is still good while a brick has heads, unless set: two seeks.
const TARGET_NANOS: Nanos = 20_000_000;
/// The same for bricks without heads.
const TARGET_NANOS_SSD: Nanos = 2_000_000;

/// The shortest rest between two steps over metadata while requests of files are slow.
const REST_NANOS: Nanos = 500_000;

/// Decides whether another move may start.
pub struct Pace {
    window: Cell<u32>,
    /// The most that `window` can be while there are requests of files.
    most: Cell<u32>,
    thought: Cell<Nanos>,
    /// The longest request of a file since then.
    longest: Cell<Nanos>,
    /// When nobody uses the volume, unless there is a request by then.
    unused_from: Cell<Nanos>,
    /// The latency that was set.
    target: Cell<Option<Nanos>>,
    /// Bytes per second, when limited, and when the next byte is due.
    speed: Cell<Option<u64>>,
    due: Cell<Nanos>,
    /// The same of checks: one that shared the speed with the moves of a job would find it taken each time.
    check_due: Cell<Nanos>,
    /// Changes when a job begins to look at the time that requests take: from then on all of them are to be seen here.
    pub version: Version,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            window: Cell::new(MOVES_MAX_SSD),
            most: Cell::new(MOVES_MAX_SSD),
            thought: Cell::new(0),
            longest: Cell::new(0),
            unused_from: Cell::new(Nanos::MAX),
            target: Cell::new(None),
            speed: Cell::new(None),
            due: Cell::new(0),
            check_due: Cell::new(0),
            version: Version::default(),
        }
    }
}

impl Pace {
    /// A request of a file took so long.
    pub fn saw_request(&self, took: Nanos) {
        self.longest.set(self.longest.get().max(took));
    }

    /// Sets the latency of requests of files that moves must leave room for; `None`: by the kind of the bricks.
    pub fn set_target(&self, nanos: Option<Nanos>) {
        self.target.set(nanos.map(|nanos| nanos.max(1)));
    }

    /// Sets the most bytes that are moved in a second, and the most that a check looks at.
    pub fn set_speed(&self, bytes_per_second: Option<u64>) {
        self.speed.set(bytes_per_second.map(|speed| speed.max(1)));
        self.due.set(0);
        self.check_due.set(0);
    }

    /// Moves of `bytes` each that may be under way together; `heads`: whether any brick has heads to be moved.
    pub fn window(&self, now: Nanos, bytes: u64, heads: impl FnOnce() -> bool) -> u32 {
        if now >= self.thought.get() + INTERVAL_NANOS {
            if self.is_quiet(now) {
                self.version.changes();
                self.unused_from.set(now + FIRST_LOOK_NANOS);
            }
            self.thought.set(now);
            let (most, target) =
                if heads() { (MOVES_MAX, TARGET_NANOS) } else { (MOVES_MAX_SSD, TARGET_NANOS_SSD) };
            // Bricks with heads begin with all of it, too.
            let window = self.window.get() + most.saturating_sub(self.most.replace(most));
            let longest = self.longest.replace(0);
            if longest > 0 {
                self.unused_from.set(now + UNUSED_NANOS);
            }
            let slow = longest > self.target.get().unwrap_or(target);
            self.window.set(match longest {
                0 => (window + (window / 2).max(4)).min(MOVES_MAX),
                _ if slow => (window.min(most) / 2).max(1),
                _ => (window + 4).min(most),
            });
        }
        self.window.get().min(fitting(bytes)).max(1)
    }

    /// The same of moves. One is at one of two bricks at a time, so that twice as many as are worth it for one brick keep both busy; not
    /// while there are requests of files, since all may be at the same one. While nobody uses the volume, as many as there is memory
    /// for, unless they are spread over many bricks already: more at once would gather at some of these. `spread`: how many times as
    /// many bricks have something to do in these moves as in others.
    pub fn moves(&self, now: Nanos, bytes: u64, spread: u32, heads: impl FnOnce() -> bool) -> u32 {
        let window = self.window(now, bytes, heads);
        let moves = (window + window.saturating_sub(self.most.get())) * spread;
        let is_unused = spread == 1 && self.longest.get() == 0 && now >= self.unused_from.get();
        if is_unused { moves.max(fitting(bytes).min(MOVES_UNUSED)) } else { moves }
    }

    /// No job looks at the time that requests take.
    pub fn is_quiet(&self, now: Nanos) -> bool {
        let thought = self.thought.get();
        thought == 0 || now >= thought + QUIET_NANOS
    }

    /// The pause of a walk over metadata after each step: not at all while requests of files are quick, and the longer
    /// the fewer moves may be under way. `heads`: as for [`window`](Pace::window).
    pub fn rest(&self, now: Nanos, heads: impl FnOnce() -> bool) -> Nanos {
        let window = self.window(now, 1, heads);
        let most = self.most.get();
        if window * 2 > most { 0 } else { REST_NANOS * Nanos::from(most / window) }
    }

    /// The time that the next move of `bytes` must wait for the speed limit; the move is counted when that is 0.
    pub fn wait(&self, now: Nanos, bytes: u64) -> Nanos {
        self.wait_until(&self.due, now, bytes)
    }

    /// The same for the next step of a check, which has looked at `bytes`.
    pub fn wait_check(&self, now: Nanos, bytes: u64) -> Nanos {
        self.wait_until(&self.check_due, now, bytes)
    }

    fn wait_until(&self, next: &Cell<Nanos>, now: Nanos, bytes: u64) -> Nanos {
        let Some(speed) = self.speed.get() else { return 0 };
        let due = next.get().max(now.saturating_sub(INTERVAL_NANOS));
        if due > now {
            return due - now;
        }
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(speed);
        next.set(due.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX)));
        0
    }
}

/// Moves of `bytes` each that there is memory for.
fn fitting(bytes: u64) -> u32 {
    u32::try_from(BYTES_MAX / bytes.max(1)).unwrap_or(MOVES_UNUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_halve_the_moves_and_quick_ones_bring_them_back() {
        for (heads, most, target) in
            [(true, MOVES_MAX, TARGET_NANOS), (false, MOVES_MAX_SSD, TARGET_NANOS_SSD)]
        {
            let pace = Pace::default();
            let mut now = 0;
            let mut after = |took, bytes| {
                pace.saw_request(took);
                now += INTERVAL_NANOS;
                pace.window(now, bytes, || heads)
            };
            assert!((0..20).all(|_| after(target, 1 << 17) == most));
            assert_eq!((0..20).map(|_| after(target + 1, 1 << 17)).last(), Some(1));
            assert_eq!((0..20).map(|_| after(target, 1 << 17)).last(), Some(most));
            assert_eq!(after(target, 16 << 20), 2);
        }
    }

    #[test]
    fn while_nobody_uses_the_volume_more_are_under_way_until_somebody_does() {
        for (heads, most) in [(true, MOVES_MAX), (false, MOVES_MAX_SSD)] {
            let pace = Pace::default();
            let mut windows = (1..20).map(|nr| pace.window(nr * INTERVAL_NANOS, 1 << 17, || heads));
            assert!(windows.next().is_some_and(|window| window <= most.max(MOVES_MAX_SSD * 3 / 2)));
            assert_eq!(windows.last(), Some(MOVES_MAX));
            assert_eq!(pace.moves(19 * INTERVAL_NANOS, 1 << 17, 1, || heads), MOVES_UNUSED);
            pace.saw_request(1);
            assert_eq!(pace.window(20 * INTERVAL_NANOS, 1 << 17, || heads), most);
            assert_eq!(pace.moves(20 * INTERVAL_NANOS, 1 << 17, 1, || heads), most);
        }
    }

    #[test]
    fn a_job_has_the_bricks_to_itself_once_nobody_asked_for_a_while() {
        let pace = Pace::default();
        let at = |now| pace.moves(now, 1 << 17, 1, || false);
        let began = 2 * QUIET_NANOS;
        assert!(at(began) <= 2 * MOVES_MAX_SSD);
        assert!(at(began + FIRST_LOOK_NANOS - 1) <= 2 * MOVES_MAX_SSD);
        assert_eq!(at(began + FIRST_LOOK_NANOS), MOVES_UNUSED);
        pace.saw_request(1);
        assert!(at(began + FIRST_LOOK_NANOS + 1) <= 2 * MOVES_MAX_SSD);
        let seen = began + INTERVAL_NANOS;
        assert_eq!(at(seen), MOVES_MAX_SSD);
        for now in (seen + 1..seen + UNUSED_NANOS).step_by(10_000_000) {
            assert!(at(now) < 2 * MOVES_MAX);
        }
        assert_eq!(at(seen + UNUSED_NANOS), MOVES_UNUSED);
    }

    #[test]
    fn a_latency_that_was_set_holds_for_all_bricks() {
        for heads in [true, false] {
            let pace = Pace::default();
            pace.set_target(Some(50_000_000));
            pace.saw_request(50_000_000);
            let all = pace.window(INTERVAL_NANOS, 1 << 17, || heads);
            pace.saw_request(50_000_001);
            assert_eq!(pace.window(2 * INTERVAL_NANOS, 1 << 17, || heads), all / 2);
            pace.set_target(None);
            pace.saw_request(30_000_000);
            assert_eq!(pace.window(3 * INTERVAL_NANOS, 1 << 17, || heads), all / 4);
        }
    }

    #[test]
    fn bricks_that_come_change_how_many_moves_are_under_way() {
        let pace = Pace::default();
        for (nr, heads, most) in
            [(1, false, MOVES_MAX_SSD), (2, true, MOVES_MAX), (3, false, MOVES_MAX_SSD)]
        {
            pace.saw_request(1);
            assert_eq!(pace.window(nr * INTERVAL_NANOS, 1 << 17, || heads), most);
        }
    }

    #[test]
    fn steps_over_metadata_rest_only_while_requests_are_slow() {
        let pace = Pace::default();
        assert_eq!(pace.rest(INTERVAL_NANOS, || false), 0);
        for step in 2..6 {
            pace.saw_request(TARGET_NANOS_SSD + 1);
            pace.rest(step * INTERVAL_NANOS, || false);
        }
        assert_eq!(pace.rest(5 * INTERVAL_NANOS, || false), 16 * REST_NANOS);
        pace.rest(6 * INTERVAL_NANOS, || false);
        pace.rest(7 * INTERVAL_NANOS, || false);
        assert_eq!(pace.rest(8 * INTERVAL_NANOS, || false), 0);
    }

    #[test]
    fn a_speed_is_kept_over_time() {
        let pace = Pace::default();
        pace.set_speed(Some(1 << 20));
        let (mut now, mut bytes) = (1_000_000_000, 0u64);
        let end = now + 10_000_000_000;
        while now < end {
            match pace.wait(now, 1 << 17) {
                0 => bytes += 1 << 17,
                wait => now += wait,
            }
        }
        assert!((10 << 20..=11 << 20).contains(&bytes), "{bytes} bytes in ten seconds at 1 MiB/s");
    }

    #[test]
    fn a_check_and_moves_that_keep_to_a_speed_do_not_wait_for_each_other() {
        let pace = Pace::default();
        pace.set_speed(Some(1 << 20));
        let now = 1_000_000_000;
        assert_eq!(pace.wait(now, 1 << 30), 0);
        assert!(pace.wait(now, 1) > 0);
        assert_eq!(pace.wait_check(now, 1 << 30), 0);
        assert!(pace.wait_check(now, 1) > 0);
    }
}
