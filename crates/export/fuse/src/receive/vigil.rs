//! Staying awake for the next request.
//!
//! A process that makes, reads or removes many small files asks again within microseconds of an answer. To sleep meanwhile
//! costs the shard two switches of task, and the process the time until the shard's processor has woken. So the shard looks
//! for requests a moment longer, in turns in which it does whatever else is to be done. When nothing came it sleeps at once
//! the next time, and twice as often after each further time in a row: on a processor that the process has to share with the
//! shard nothing can come.

use braid_shard::Nanos;

/// The longest vigil: a processor that sleeps takes some tens of microseconds to wake.
const VIGIL_NANOS: Nanos = 50_000;
/// Sleeps without a vigil before them, at most, after vigils in vain.
const SLEEPS_MAX: u32 = 256;

/// Decides if the shard stays awake.
#[derive(Default)]
pub(super) struct Vigil {
    /// The end of the vigil under way.
    until: Option<Nanos>,
    /// Sleeps that come before the next one.
    sleeps: u32,
    /// The number that the last one in vain has brought.
    penalty: u32,
}

impl Vigil {
    /// There is no request at `now`. True: look again in the next turn; false: sleep. `idle`: all that were read are
    /// answered; else whoever could ask waits for a brick, perhaps.
    pub fn stays(&mut self, now: Nanos, idle: bool) -> bool {
        match self.until {
            _ if !idle => self.until = None,
            Some(until) if now < until => return true,
            Some(_) => {
                self.until = None;
                self.penalty = (self.penalty * 2).clamp(1, SLEEPS_MAX);
                self.sleeps = self.penalty;
            }
            None if self.sleeps > 0 => self.sleeps -= 1,
            None => {
                self.until = Some(now.saturating_add(VIGIL_NANOS));
                return true;
            }
        }
        false
    }

    /// A request has come.
    pub fn came(&mut self) {
        if self.until.take().is_some() {
            self.penalty = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps until the next vigil begins.
    fn sleeps(vigil: &mut Vigil, now: Nanos) -> u32 {
        (0..).take_while(|_| !vigil.stays(now, true)).count() as u32
    }

    /// One in vain, which began at 0.
    fn in_vain(vigil: &mut Vigil) {
        assert!(vigil.stays(VIGIL_NANOS - 1, true));
        assert!(!vigil.stays(VIGIL_NANOS, true));
    }

    #[test]
    fn vigils_in_vain_become_rare_and_one_that_pays_brings_them_back() {
        let mut vigil = Vigil::default();
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(sleeps(&mut vigil, 0));
            in_vain(&mut vigil);
        }
        assert_eq!(seen, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert_eq!(sleeps(&mut vigil, 0), SLEEPS_MAX);
        vigil.came();
        assert_eq!(sleeps(&mut vigil, 0), 0);
        in_vain(&mut vigil);
        assert_eq!(sleeps(&mut vigil, 0), 1);
    }

    #[test]
    fn nobody_is_waited_for_while_a_request_is_under_way() {
        let mut vigil = Vigil::default();
        assert!(!vigil.stays(0, false));
        assert!(vigil.stays(0, true) && !vigil.stays(1, false));
        // That was not in vain.
        assert!(vigil.stays(2, true));
    }

    #[test]
    fn a_request_after_a_sleep_says_nothing_of_vigils() {
        let mut vigil = Vigil::default();
        for _ in 0..3 {
            sleeps(&mut vigil, 0);
            in_vain(&mut vigil);
        }
        vigil.came();
        assert_eq!(sleeps(&mut vigil, 0), 4);
    }
}
