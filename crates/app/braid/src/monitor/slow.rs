//! Members that are slow beside the others of their array: a disk that is about to fail often says so first.

use super::Event;
use crate::output::time;
use braid_control::protocol::{Detail, Stat};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Means are taken over so long.
pub const WINDOW: Duration = Duration::from_secs(20);
/// A member that is slow in so many windows, one after the other, is told of: a minute.
const WINDOWS: u32 = 3;
/// In a window with fewer requests a mean says little.
const REQUESTS_MIN: u64 = 20;
/// A slow member takes so many times as long as the median of the others.
const TIMES: u64 = 3;
/// Below this nobody is slow: a disk has to seek.
const SLOW_NS: u64 = 20_000_000;

/// The arrays as they were at the last window, and how long their members have been slow.
#[derive(Default)]
pub struct Slow {
    last: Option<Instant>,
    before: BTreeMap<String, Stat>,
    /// By array and member, windows in which it was slow.
    slow: BTreeMap<(String, u32), u32>,
}

impl Slow {
    /// It is time for another window.
    pub fn is_due(&self, at: Instant) -> bool {
        self.last.is_none_or(|last| at.saturating_duration_since(last) >= WINDOW)
    }

    /// The members that have been slow for a minute now, and were not told of before.
    pub fn look(&mut self, now: Vec<Stat>, details: &[Detail], at: Instant) -> Vec<Event> {
        self.last = Some(at);
        let mut events = Vec::new();
        let mut kept = BTreeMap::new();
        for stat in &now {
            let Some(before) = self.before.get(&stat.uuid) else { continue };
            let means = means(&stat.since(before));
            for (number, name, mean) in &means {
                let key = (stat.uuid.clone(), *number);
                let windows = self.slow.get(&key).copied().unwrap_or(0);
                let others = means.iter().filter(|(other, ..)| other != number);
                let mut others: Vec<u64> = others.filter_map(|(.., mean)| *mean).collect();
                others.sort_unstable();
                let typical = others.get(others.len() / 2).copied();
                let windows = match (*mean, typical) {
                    (Some(mean), Some(typical)) => {
                        let is_slow = mean >= SLOW_NS && mean >= typical.saturating_mul(TIMES);
                        if is_slow && windows + 1 == WINDOWS {
                            let detail = details.iter().find(|detail| detail.uuid == stat.uuid);
                            events.extend(detail.map(|detail| event(detail, name, mean, typical)));
                        }
                        if is_slow { windows.saturating_add(1) } else { 0 }
                    }
                    // Nothing is known of this window.
                    _ => windows,
                };
                kept.insert(key, windows);
            }
        }
        self.slow = kept;
        self.before = now.into_iter().map(|stat| (stat.uuid.clone(), stat)).collect();
        events
    }
}

/// Numbers, names and mean times of members in sync; `None` where there were too few requests.
fn means(between: &Stat) -> Vec<(u32, String, Option<u64>)> {
    let in_sync = between.members.iter().filter(|member| member.state == "active sync");
    in_sync
        .filter_map(|member| {
            let io = member.io.as_ref().filter(|io| io.timed)?;
            let latencies = io.flows().into_iter().filter_map(|(_, flow)| flow.latency.as_ref());
            let requests: u64 = latencies.map(|latency| latency.requests).sum();
            let mean = (requests >= REQUESTS_MIN).then(|| io.total_ns() / requests);
            Some((member.number, member.name.clone(), mean))
        })
        .collect()
}

fn event(detail: &Detail, member: &str, mean: u64, typical: u64) -> Event {
    let text = format!(
        "member {member} of array {} is slow: its requests take {} on average, for a minute, those of the others {}; look at \
         the disk (smartctl), or replace it: braid replace {} {member}",
        detail.name,
        time::short(mean),
        time::short(typical),
        detail.name
    );
    Event::of(detail, "MemberSlow", Some(member), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    const MS: u64 = 1_000_000;

    /// An array after so many requests to each member, which take so many milliseconds.
    fn stat(requests: u64, millis: &[u64]) -> Stat {
        let member = |(slot, each): (usize, &u64)| {
            let flow = samples::flow(requests, 0, requests << 12, each * MS);
            let io = samples::io(flow, samples::flow(0, 0, 0, 0));
            let mut member = samples::member(&format!("disk{slot}"), slot, Some(io), None);
            member.number = u32::try_from(slot).unwrap();
            member
        };
        let members = millis.iter().enumerate().map(member).collect();
        let none = samples::io(samples::flow(0, 0, 0, 0), samples::flow(0, 0, 0, 0));
        samples::stat("data", "raid5", none, members)
    }

    /// Requests to each member, and the milliseconds that each takes.
    type Window = (u64, &'static [u64]);

    fn looked(windows: &[Window]) -> Vec<usize> {
        let mut slow = Slow::default();
        let mut requests = 0;
        let begin = Instant::now();
        let mut all = Vec::new();
        for (at, (more, millis)) in windows.iter().enumerate() {
            // Counts go on from what they were, at the speed of this window.
            let before = stat(requests, millis);
            slow.before.entry(before.uuid.clone()).and_modify(|known| *known = before);
            requests += more;
            let now = stat(requests, millis);
            let mut detail = samples::detail("data", &["active sync"; 3]);
            detail.uuid.clone_from(&now.uuid);
            let events = slow.look(vec![now], &[detail], begin + WINDOW * at as u32);
            for event in &events {
                assert_eq!(
                    (event.event.as_str(), event.member.as_deref()),
                    ("MemberSlow", Some("disk1"))
                );
                assert!(
                    event.text.contains("disk1") && event.text.contains("smartctl"),
                    "{}",
                    event.text
                );
            }
            all.push(events.len());
        }
        all
    }

    #[test]
    fn a_member_is_told_of_once_after_a_minute() {
        let slow: Window = (100, &[5, 60, 4]);
        assert_eq!(looked(&[slow; 6]), [0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_pause_starts_the_minute_anew_and_an_idle_window_does_not() {
        let (slow, well, idle): (Window, Window, Window) =
            ((100, &[5, 60, 4]), (100, &[5, 6, 4]), (3, &[5, 900, 4]));
        assert_eq!(looked(&[slow, slow, slow, well, slow, slow, slow]), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(looked(&[slow, slow, slow, idle, slow]), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn nobody_is_slow_where_all_are_or_where_it_is_fast_enough() {
        let (all, fast): (Window, Window) = ((100, &[60, 90, 70]), (100, &[1, 15, 1]));
        assert_eq!(looked(&[all; 5]), [0; 5]);
        assert_eq!(looked(&[fast; 5]), [0; 5]);
    }
}
