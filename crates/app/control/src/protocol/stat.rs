//! What arrays and their members have done, in the shape in which it is sent.
//!
//! One shape at every layer: an [`Io`] is what came to an array, or what a member was asked. Times are in
//! nanoseconds, sizes in bytes. Histograms are sparse: an upper bound, and the requests up to it that are above the bound
//! before.

use super::counters::Counters;
use super::job::Job;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an array has done since it was started, or between two moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stat {
    /// The name that it is exported under.
    pub name: String,
    /// As mdadm writes it.
    pub uuid: String,
    /// The level's name.
    pub level: String,
    /// Its state in words.
    pub state: String,
    /// Slots without a member in sync.
    pub degraded: usize,
    /// Writes that wait because the file system that a member lies on is full.
    pub waiting_for_space: u64,
    /// Sectors that the last check found not to match.
    pub mismatch_count: u64,
    /// The job that is running.
    pub job: Option<Job>,
    /// Seconds in which it was done.
    pub seconds: f64,
    /// Shards that own stripes now.
    pub shards: u16,
    /// Requests that came to the array.
    pub io: Io,
    /// Requests, and how they were carried out.
    pub counters: Counters,
    /// The stripe cache.
    pub cache: Cache,
    /// All members.
    pub members: Vec<MemberIo>,
}

/// A stripe cache, all shards together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// Lines that it may hold now.
    pub capacity: u64,
    /// Lines that it holds now.
    pub lines: u64,
    /// Memory that it takes now.
    pub bytes: u64,
    /// Blocks of lines that a write needed and found: each a read avoided.
    pub hits: u64,
    /// Blocks of lines that a write needed and had to read.
    pub misses: u64,
    /// Lines let go for others.
    pub evictions: u64,
}

/// What went to one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberIo {
    /// Its number while the array runs.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its slot.
    pub slot: Option<usize>,
    /// active sync, rebuilding, replacing, spare or faulty.
    pub state: String,
    /// Requests of the array to it.
    pub requests_in: u64,
    /// What was left of them, merged: what the member was asked.
    pub requests_out: u64,
    /// Bytes that it got or gave.
    pub bytes: u64,
    /// I/Os that it got; `None` for one that lends its memory: what is done there in place, nobody counts.
    pub io: Option<Io>,
    /// What it has done itself, when it is an array of this server.
    pub array: Option<Box<Stat>>,
}

/// Requests of all directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Io {
    /// Reads.
    pub read: Flow,
    /// Writes.
    pub write: Flow,
    /// Discards and write-zeroes.
    pub discard: Flow,
    /// Flushes.
    pub flush: Flow,
    /// Latencies are taken and what follows is measured: not where all is in memory.
    pub timed: bool,
    /// Requests under way at the end.
    pub in_flight: u64,
    /// Time in which any request was under way; the shards' added up.
    pub busy_ns: u64,
}

/// Requests by size: a bound in bytes, and the requests up to it; the last bound may be none.
pub type Sizes = Vec<(Option<u64>, u64)>;

/// Requests of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// Requests that arrived, merged ones counted once.
    pub requests: u64,
    /// Requests that are not among them because they were merged into a neighbour on the way.
    pub merged: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests by size.
    pub sizes: Sizes,
    /// The same before merging; empty where nothing merges.
    pub sizes_in: Sizes,
    /// Times from submission to completion; `None` before the first.
    pub latency: Option<Latency>,
}

/// How long requests took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Requests that have completed.
    pub requests: u64,
    /// The sum of their times.
    pub total_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Requests by time: upper bounds, up to eight for each doubling.
    pub buckets: Vec<(u64, u64)>,
}

impl Stat {
    /// What was done since `before`. What only says how things stand is as it was at the later moment.
    pub fn since(&self, before: &Stat) -> Stat {
        let (a, b) = (&self.counters, &before.counters);
        let less = u64::saturating_sub;
        let counters = Counters {
            reads: less(a.reads, b.reads),
            read_bytes: less(a.read_bytes, b.read_bytes),
            writes: less(a.writes, b.writes),
            written_bytes: less(a.written_bytes, b.written_bytes),
            pieces: less(a.pieces, b.pieces),
            batches: less(a.batches, b.batches),
            lookups: less(a.lookups, b.lookups),
            member_reads: less(a.member_reads, b.member_reads),
            member_writes: less(a.member_writes, b.member_writes),
            full_stripes: less(a.full_stripes, b.full_stripes),
            read_modify_writes: less(a.read_modify_writes, b.read_modify_writes),
            reconstruct_writes: less(a.reconstruct_writes, b.reconstruct_writes),
            recovered_reads: less(a.recovered_reads, b.recovered_reads),
            corrected_reads: less(a.corrected_reads, b.corrected_reads),
        };
        let cache = Cache {
            hits: less(self.cache.hits, before.cache.hits),
            misses: less(self.cache.misses, before.cache.misses),
            evictions: less(self.cache.evictions, before.cache.evictions),
            ..self.cache
        };
        let member = |member: &MemberIo| {
            let old = before.members.iter().find(|old| old.number == member.number);
            // A member that is new since then has done all of it in between.
            old.map_or_else(|| member.clone(), |old| member.since(old))
        };
        Stat {
            seconds: (self.seconds - before.seconds).max(0.0),
            io: self.io.since(&before.io),
            counters,
            cache,
            members: self.members.iter().map(member).collect(),
            ..self.clone()
        }
    }

    /// The arrays below this one.
    pub fn nested(&self) -> impl Iterator<Item = &Stat> {
        self.members.iter().filter_map(|member| member.array.as_deref())
    }
}

impl MemberIo {
    fn since(&self, before: &MemberIo) -> MemberIo {
        let array = match (&self.array, &before.array) {
            (Some(now), Some(before)) => Some(Box::new(now.since(before))),
            (now, _) => now.clone(),
        };
        MemberIo {
            requests_in: self.requests_in.saturating_sub(before.requests_in),
            requests_out: self.requests_out.saturating_sub(before.requests_out),
            bytes: self.bytes.saturating_sub(before.bytes),
            io: match (&self.io, &before.io) {
                (Some(now), Some(before)) => Some(now.since(before)),
                (now, _) => now.clone(),
            },
            array,
            ..self.clone()
        }
    }
}

impl Io {
    /// All directions with their names.
    pub fn flows(&self) -> [(&'static str, &Flow); 4] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("discard", &self.discard),
            ("flush", &self.flush),
        ]
    }

    fn since(&self, before: &Io) -> Io {
        Io {
            read: self.read.since(&before.read),
            write: self.write.since(&before.write),
            discard: self.discard.since(&before.discard),
            flush: self.flush.since(&before.flush),
            timed: self.timed,
            in_flight: self.in_flight,
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
        }
    }

    /// Time that requests have waited, all together.
    pub fn total_ns(&self) -> u64 {
        let totals = self.flows().into_iter().filter_map(|(_, flow)| flow.latency.as_ref());
        totals.fold(0, |sum, latency| sum.saturating_add(latency.total_ns))
    }
}

impl Flow {
    fn since(&self, before: &Flow) -> Flow {
        let latency = self.latency.as_ref().map(|now| match &before.latency {
            Some(before) => now.since(before),
            None => now.clone(),
        });
        Flow {
            requests: self.requests.saturating_sub(before.requests),
            merged: self.merged.saturating_sub(before.merged),
            bytes: self.bytes.saturating_sub(before.bytes),
            sizes: difference(&self.sizes, &before.sizes),
            sizes_in: difference(&self.sizes_in, &before.sizes_in),
            latency: latency.filter(|latency| latency.requests > 0),
        }
    }

    /// Requests before merging.
    pub fn requests_in(&self) -> u64 {
        self.requests.saturating_add(self.merged)
    }
}

impl Latency {
    /// The quantiles are those of the buckets then.
    fn since(&self, before: &Latency) -> Latency {
        let buckets = difference(&self.buckets, &before.buckets);
        let requests = self.requests.saturating_sub(before.requests);
        let total_ns = self.total_ns.saturating_sub(before.total_ns);
        // The longest of all may have been before.
        let longest = buckets.last().map_or(0, |(up_to, _)| *up_to).min(self.max_ns);
        let quantile = |share: f64| {
            let wanted = ((requests as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = buckets.iter().find(|(_, requests)| {
                seen += requests;
                seen >= wanted
            });
            found.map_or(longest, |(up_to, _)| (*up_to).min(longest))
        };
        Latency {
            requests,
            total_ns,
            mean_ns: total_ns.checked_div(requests).unwrap_or(0),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: longest,
            buckets,
        }
    }
}

/// What buckets hold more than before.
fn difference<K: Copy + PartialEq>(now: &[(K, u64)], before: &[(K, u64)]) -> Vec<(K, u64)> {
    let more = now.iter().map(|(bound, count)| {
        let old = before.iter().find(|(known, _)| known == bound).map_or(0, |(_, count)| *count);
        (*bound, count.saturating_sub(old))
    });
    more.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(buckets: &[(u64, u64)], total_ns: u64, max_ns: u64) -> Latency {
        let requests = buckets.iter().map(|(_, count)| count).sum();
        Latency { requests, total_ns, max_ns, buckets: buckets.to_vec(), ..Latency::default() }
    }

    #[test]
    fn an_interval_has_quantiles_of_its_own() {
        let before = latency(&[(100, 10), (90_000, 5)], 451_000, 90_000);
        let now = latency(&[(100, 10), (200, 98), (300, 2), (90_000, 5)], 471_000, 90_000);
        let between = now.since(&before);
        assert_eq!((between.requests, between.total_ns, between.mean_ns), (100, 20_000, 200));
        assert_eq!((between.p50_ns, between.p99_ns, between.max_ns), (200, 300, 300));
        assert_eq!(between.buckets, [(200, 98), (300, 2)]);
    }

    #[test]
    fn an_interval_without_requests_has_no_latency() {
        let flow = Flow { latency: Some(latency(&[(100, 1)], 90, 90)), ..Flow::default() };
        assert_eq!(flow.since(&flow).latency, None);
        assert_eq!(flow.since(&Flow::default()).latency, flow.latency);
    }
}
